"""Small words for tests of schedules: what a keeper sends, and what is seen of it."""

from __future__ import annotations

from holdfast.records import ANY, SECOND, Fire, Firing, NewRun, NewSchedule, RunFilter

from .hand import EPOCH, TYPE

HOUR = 3600 * SECOND


def new(hand, **fields):
    standard = {
        "id": hand.id(),
        "name": "nightly",
        "type": TYPE,
        "cron": "0 * * * *",
        "next_at": EPOCH + HOUR,
    }
    return NewSchedule(**{**standard, **fields})


def made(hand, **fields):
    return hand.run(hand.store.schedule(new(hand, **fields)))


def seen(hand, name="nightly", tenant="default"):
    (found,) = hand.run(hand.store.schedules(tenant, name))
    return found


def due(hand, **fields):
    return [one.name for one in hand.run(hand.store.due_schedules(**fields))]


def shot(hand, schedule, at, id=None):
    run = NewRun(id=id or hand.id(), type=schedule.type, params=schedule.params_json, tenant=schedule.tenant)
    return Fire(at, run)


def firing(hand, schedule, *times, **fields):
    """What a keeper makes of it for these times; by default it moves on by an hour."""
    fires = tuple(time if isinstance(time, Fire) else shot(hand, schedule, time) for time in times)
    last = max((fire.at for fire in fires), default=EPOCH)
    standard = {
        "schedule": schedule.id, "name": schedule.name, "tenant": schedule.tenant, "rev": schedule.rev,
        "fires": fires, "next_at": last + HOUR,
    }  # fmt: skip
    return Firing(**{**standard, **fields})


def fire(hand, schedule, *times, **fields):
    return hand.run(hand.store.fire_schedule(firing(hand, schedule, *times, **fields)))


def runs(hand):
    return {run.id for run in hand.run(hand.store.list(RunFilter(tenant=ANY)))}


def end(hand, run):
    hand.complete(hand.take(run))
