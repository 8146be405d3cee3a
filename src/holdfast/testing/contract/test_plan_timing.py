"""Plans and time: a wait that is settled early, late or in a pause leaves the same run behind."""

from __future__ import annotations

import pytest

from holdfast.lifecycle import Status, StepStatus
from holdfast.records import StepWrite, moment

from .hand import gate, hear, nap


@pytest.mark.spec("PLAN-5")
@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("in_place", [True, False])
def test_a_plan_that_ends_with_a_wait_has_no_result_however_early_that_is_settled(hand, early, in_place):
    """The output of a task is the result of the plan that ends with it, and of no other."""
    claim = hand.begun("A", hear("W"))
    if early:
        hand.emit("parcel")
    hand.advance(claim, "A", result='"of A"', in_place=in_place)
    if not early:
        hand.emit("parcel")
    assert (hand.status(claim.id), hand.get(claim.id).result_json) == (Status.SUCCEEDED, None)
    assert [status for _, status in hand.shape(claim.id)] == ["succeeded", "succeeded"]
    hand.assert_replayed(claim.id)


@pytest.mark.spec("PLAN-5", "PLAN-12")
def test_a_plan_without_a_task_has_no_result_whoever_brings_its_rows(hand):
    """Its rows are inserted, the sleep is over at once, and the run ends with nothing to show."""
    claim = hand.held()
    verdict = hand.advance(claim, None, plan=(nap("N", 0.0),))
    assert (verdict.status, hand.get(claim.id).result_json) == (Status.SUCCEEDED, None)
    assert hand.get(hand.plan(nap("N", 0.0))).result_json is None


def _tried(hand):
    """A task that has crashed once and failed once, and is at it again."""
    hand.begun("A", max_attempts=9)
    hand.clock.turn(31)
    hand.tick()
    hand.clock.turn(60)
    claim = hand.take()
    hand.retry(claim, delay=0.5, in_place=True)
    assert _counts(hand, claim.id) == (3, 1)
    return claim


def _counts(hand, run):
    seen = hand.get(run)
    return seen.attempt, seen.crashes


def _wait(seconds=None):
    return StepWrite(key="A", status=StepStatus.WAITING, topic="parcel", delay_seconds=seconds)


@pytest.mark.spec("PLAN-6", "PAUSE-2")
@pytest.mark.parametrize("what", ["event", "time"])
@pytest.mark.parametrize("paused", [False, True])
def test_a_wait_of_a_task_that_is_settled_is_progress_whenever_that_is(hand, what, paused):
    """The next execution is the first of its attempts, and no crash before it counts any more."""
    claim = _tried(hand)
    hand.park(claim, _wait(5.0))
    if paused:
        hand.pause(claim.id)
    if what == "event":
        hand.emit("parcel")
    else:
        hand.clock.turn(5)
        assert hand.tick().lapsed == 1
    if paused:
        hand.resume(claim.id)
    assert (hand.status(claim.id), _counts(hand, claim.id)) == (Status.PENDING, (0, 0))
    assert hand.take(claim.id).attempt == 1
    hand.assert_replayed(claim.id)


@pytest.mark.spec("PLAN-6", "MOVE-8", "PAUSE-3")
@pytest.mark.parametrize("what", ["event", "time"])
@pytest.mark.parametrize("paused", [False, True])
def test_a_wait_of_a_task_that_a_park_finds_settled_is_progress_as_well(hand, what, paused):
    """Held still, or at once in the pause that was asked for: the counts begin anew."""
    claim = _tried(hand)
    if what == "event":
        hand.emit("parcel")
    if paused:
        hand.pause(claim.id)
    hand.park(claim, _wait(None if what == "event" else 0.0))
    if paused:
        hand.resume(claim.id)
    status, counts = (Status.PENDING, (0, 0)) if paused else (Status.LEASED, (1, 0))
    assert (hand.status(claim.id), _counts(hand, claim.id)) == (status, counts)
    hand.assert_replayed(claim.id)


@pytest.mark.spec("PLAN-6", "PAUSE-2")
def test_a_wait_of_a_task_that_nothing_came_for_is_no_progress(hand):
    """Only the attempt is given back that led to it; a pause changes nothing about that."""
    claim = _tried(hand)
    hand.park(claim, _wait())
    hand.pause(claim.id)
    assert hand.resume(claim.id).status is Status.WAITING
    assert _counts(hand, claim.id) == (2, 1)


@pytest.mark.spec("PLAN-12", "MOVE-5")
@pytest.mark.parametrize("end", ["succeeded", "failed"])
def test_a_plan_that_comes_late_and_ends_at_once_was_due_when_its_rows_came(hand, end):
    """Given back first, then at its end: due now, as any run that is given back."""
    claim = hand.held()
    hand.clock.turn(5)
    last = nap("N", 0.0) if end == "succeeded" else gate("G", 0.0)
    hand.advance(claim, None, plan=(last,))
    seen = hand.get(claim.id)
    assert (seen.status, seen.run_at, seen.attempt) == (end, moment(hand.clock.now), 0)
    assert "released" in hand.told(claim.id)
    hand.assert_replayed(claim.id)
