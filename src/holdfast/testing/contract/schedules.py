"""Driver functions for schedules: the calls of a keeper, and their results."""

from __future__ import annotations

from holdfast.records import ANY, SECOND, Fire, Firing, NewRun, NewSchedule, RunFilter

from .driver import EPOCH, TYPE

HOUR = 3600 * SECOND


def new(driver, **fields):
    standard = {
        "id": driver.id(),
        "name": "nightly",
        "type": TYPE,
        "cron": "0 * * * *",
        "next_at": EPOCH + HOUR,
    }
    return NewSchedule(**{**standard, **fields})


def made(driver, **fields):
    return driver.run(driver.store.schedule(new(driver, **fields)))


def seen(driver, name="nightly", tenant="default"):
    (found,) = driver.run(driver.store.schedules(tenant, name))
    return found


def due(driver, **fields):
    return [one.name for one in driver.run(driver.store.due_schedules(**fields))]


def shot(driver, schedule, at, id=None):
    run = NewRun(
        id=id or driver.id(), type=schedule.type, params=schedule.params_json, tenant=schedule.tenant
    )
    return Fire(at, run)


def firing(driver, schedule, *times, **fields):
    """Return the firing that a keeper makes for these times; by default the schedule moves on by an hour."""
    fires = tuple(time if isinstance(time, Fire) else shot(driver, schedule, time) for time in times)
    last = max((fire.at for fire in fires), default=EPOCH)
    standard = {
        "schedule": schedule.id, "name": schedule.name, "tenant": schedule.tenant, "rev": schedule.rev,
        "fires": fires, "next_at": last + HOUR,
    }  # fmt: skip
    return Firing(**{**standard, **fields})


def fire(driver, schedule, *times, **fields):
    return driver.run(driver.store.fire_schedule(firing(driver, schedule, *times, **fields)))


def runs(driver):
    return {run.id for run in driver.run(driver.store.list(RunFilter(tenant=ANY)))}


def end(driver, run):
    driver.complete(driver.take(run))
