"""Plans and time: a wait that is settled early, late or in a pause leads to the same run."""

from __future__ import annotations

import pytest

from holdfast.lifecycle import Status, StepStatus
from holdfast.records import StepWrite, moment

from .driver import gate, hear, nap


@pytest.mark.spec("PLAN-5")
@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("in_place", [True, False])
def test_a_plan_that_ends_with_a_wait_has_no_result_however_early_that_is_settled(driver, early, in_place):
    """Only a plan that ends with a task has a result: the output of that task."""
    claim = driver.begun("A", hear("W"))
    if early:
        driver.emit("parcel")
    driver.advance(claim, "A", result='"of A"', in_place=in_place)
    if not early:
        driver.emit("parcel")
    assert (driver.status(claim.id), driver.get(claim.id).result_json) == (Status.SUCCEEDED, None)
    assert [status for _, status in driver.shape(claim.id)] == ["succeeded", "succeeded"]
    driver.assert_replayed(claim.id)


@pytest.mark.spec("PLAN-5", "PLAN-12")
def test_a_plan_without_a_task_has_no_result_whoever_brings_its_rows(driver):
    """Its rows are inserted, the sleep is over at once, and the run ends without a result."""
    claim = driver.held()
    verdict = driver.advance(claim, None, plan=(nap("N", 0.0),))
    assert (verdict.status, driver.get(claim.id).result_json) == (Status.SUCCEEDED, None)
    assert driver.get(driver.plan(nap("N", 0.0))).result_json is None


def _tried(driver):
    """Return a task that has crashed once and failed once, and is leased again."""
    driver.begun("A", max_attempts=9)
    driver.clock.turn(31)
    driver.tick()
    driver.clock.turn(60)
    claim = driver.take()
    driver.retry(claim, delay=0.5, in_place=True)
    assert _counts(driver, claim.id) == (3, 1)
    return claim


def _counts(driver, run):
    seen = driver.get(run)
    return seen.attempt, seen.crashes


def _wait(seconds=None):
    return StepWrite(key="A", status=StepStatus.WAITING, topic="parcel", delay_seconds=seconds)


@pytest.mark.spec("PLAN-6", "PAUSE-2")
@pytest.mark.parametrize("what", ["event", "time"])
@pytest.mark.parametrize("paused", [False, True])
def test_a_wait_of_a_task_that_is_settled_is_progress_whenever_that_is(driver, what, paused):
    """The next execution is attempt 1, and earlier crashes do not count."""
    claim = _tried(driver)
    driver.park(claim, _wait(5.0))
    if paused:
        driver.pause(claim.id)
    if what == "event":
        driver.emit("parcel")
    else:
        driver.clock.turn(5)
        assert driver.tick().lapsed == 1
    if paused:
        driver.resume(claim.id)
    assert (driver.status(claim.id), _counts(driver, claim.id)) == (Status.PENDING, (0, 0))
    assert driver.take(claim.id).attempt == 1
    driver.assert_replayed(claim.id)


@pytest.mark.spec("PLAN-6", "MOVE-8", "PAUSE-3")
@pytest.mark.parametrize("what", ["event", "time"])
@pytest.mark.parametrize("paused", [False, True])
def test_a_wait_of_a_task_that_a_park_finds_settled_is_progress_as_well(driver, what, paused):
    """The counts begin anew, whether the run stays leased or pauses at once."""
    claim = _tried(driver)
    if what == "event":
        driver.emit("parcel")
    if paused:
        driver.pause(claim.id)
    driver.park(claim, _wait(None if what == "event" else 0.0))
    if paused:
        driver.resume(claim.id)
    status, counts = (Status.PENDING, (0, 0)) if paused else (Status.LEASED, (1, 0))
    assert (driver.status(claim.id), _counts(driver, claim.id)) == (status, counts)
    driver.assert_replayed(claim.id)


@pytest.mark.spec("PLAN-6", "PAUSE-2")
def test_a_wait_of_a_task_that_nothing_came_for_is_no_progress(driver):
    """Only the attempt of that execution is refunded; a pause changes nothing about it."""
    claim = _tried(driver)
    driver.park(claim, _wait())
    driver.pause(claim.id)
    assert driver.resume(claim.id).status is Status.WAITING
    assert _counts(driver, claim.id) == (2, 1)


@pytest.mark.spec("PLAN-12", "MOVE-5")
@pytest.mark.parametrize("end", ["succeeded", "failed"])
def test_a_plan_that_comes_late_and_ends_at_once_was_due_when_its_rows_came(driver, end):
    """It is due at the time at which it is given back, like any run."""
    claim = driver.held()
    driver.clock.turn(5)
    last = nap("N", 0.0) if end == "succeeded" else gate("G", 0.0)
    driver.advance(claim, None, plan=(last,))
    seen = driver.get(claim.id)
    assert (seen.status, seen.run_at, seen.attempt) == (end, moment(driver.clock.now), 0)
    assert "released" in driver.told(claim.id)
    driver.assert_replayed(claim.id)
