"""Edge cases that a review found: times beyond the calendar, and corners of limits and repeats."""

from __future__ import annotations

import math

import pytest

from holdfast.errors import UsageError
from holdfast.lifecycle import Move, Status
from holdfast.records import NewEvent, RunFilter, TrailWrite

from .driver import done, listen, sleep

TOO_LATE = 4000.0
ENDLESS = [1e12, 9.2e12, 1e30, math.inf]


def listed(driver):
    return [run.id for run in driver.run(driver.store.list(RunFilter()))]


@pytest.mark.spec("READ-1")
@pytest.mark.parametrize("seconds", ENDLESS)
@pytest.mark.parametrize("field", ["delay_seconds", "timeout_seconds", "ttl_seconds"])
def test_a_run_with_an_endless_time_does_not_break_what_is_read(driver, field, seconds):
    """A time of a thousand years is shown, and so are the other runs."""
    neighbour, run = driver.start(), driver.start(**{field: seconds})
    assert driver.get(run).id == run
    assert listed(driver) == [run, neighbour]


@pytest.mark.parametrize("seconds", ENDLESS)
def test_a_run_that_is_kept_for_ever_can_end(driver, seconds):
    """Whatever its ttl, it completes, and its expiry is a date."""
    claim = driver.held(ttl_seconds=seconds)
    assert driver.complete(claim).status is Status.SUCCEEDED
    assert driver.get(claim.id).expires_at.year > 3000


@pytest.mark.spec("LEASE-6")
def test_a_run_that_is_kept_for_ever_does_not_stop_the_keeper(driver):
    """It fails at the crash cap like any other, and leases of other runs expire."""
    kept, other = driver.start(ttl_seconds=1e30), driver.start()
    for _ in range(4):
        driver.claim()
        driver.clock.turn(TOO_LATE)
        driver.tick()
        driver.clock.turn(TOO_LATE)
    assert (driver.status(kept), driver.status(other)) == (Status.FAILED, Status.FAILED)


@pytest.mark.parametrize("seconds", ENDLESS)
def test_an_endless_sleep_and_an_endless_backoff_are_recorded(driver, seconds):
    """The run parks and backs off; it can be read and cancelled."""
    sleeper, trier = driver.held(), driver.held()
    assert driver.park(sleeper, sleep("nap", seconds), known=0).status is Status.WAITING
    assert driver.retry(trier, delay=seconds).status is Status.PENDING
    assert driver.get(trier.id).run_at.year > 3000
    assert {driver.cancel(sleeper.id).status, driver.cancel(trier.id).status} == {Status.CANCELLED}


def test_nan_in_an_item_is_refused_and_nothing_of_that_batch_is_written(driver):
    """Neither the item nor the others are applied."""
    first, second = driver.held(), driver.held()
    before = driver.everything()
    good = driver.item(first, Move.CHECKPOINT, done("a"))
    for bad in (
        driver.item(second, Move.PARK, sleep("nap", math.nan)),
        driver.item(second, Move.RETRY, done("b"), delay_seconds=math.nan),
    ):
        with pytest.raises(UsageError, match="NaN"):
            driver.send(good, bad)
        assert driver.everything() == before
    assert (driver.steps(first.id), driver.steps(second.id)) == ([], [])


def test_a_ttl_is_counted_in_whole_microseconds_alike_on_every_store(driver):
    """Half a microsecond is rounded once, in one place."""
    claim = driver.held(ttl_seconds=0.0000005)
    driver.complete(claim)
    run = driver.get(claim.id)
    assert run.expires_at == run.finished_at


@pytest.mark.spec("EVENT-3", "MOVE-2")
def test_an_undelivered_event_is_due_at_once_also_when_the_clock_was_set_back(driver):
    """A keeper finishes the delivery without waiting for the clock."""
    waiter, emitter = driver.held(), driver.held()
    driver.park(waiter, listen(), known=0)
    driver.checkpoint(emitter, events=(NewEvent(topic="parcel", id="e1"),))
    driver.clock.turn(-100)
    assert driver.due().chore_at <= driver.clock.now
    assert driver.tick().delivered == 1
    assert driver.status(waiter.id) is Status.PENDING


@pytest.mark.spec("TRAIL-4")
@pytest.mark.parametrize("given", ['"x"', "null", "[1]", "true", "1.5"])
def test_log_data_of_any_name_does_not_stop_claims(driver, given):
    """The count of logs is a number, whatever names user code gives its data."""
    claim = driver.held()
    row = '{"message":"m","step":"a","log_no":' + given + "}"
    driver.checkpoint(claim, done("a"), trail=(TrailWrite("log", row), TrailWrite("log", '{"log_no":2}')))
    driver.release(claim)
    assert driver.take(claim.id).logs == 2


def test_a_negative_limit_shows_nothing(driver):
    """It does not show everything, as SQL would."""
    driver.start()
    assert driver.run(driver.store.list(RunFilter(), -1)) == []
    assert driver.trail(limit=-1) == []
    assert driver.claim(limit=-1) == []
