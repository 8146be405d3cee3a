"""Steps that are added to a plan: sending the same call again is safe, and another one is refused."""

from __future__ import annotations

import pytest

from holdfast.errors import Conflict
from holdfast.lifecycle import Status, StepStatus
from holdfast.records import StepWrite


@pytest.mark.spec("PLAN-14", "START-4")
@pytest.mark.parametrize("attempts", [None, 7])
@pytest.mark.parametrize("status", ["pending", "ready", "running", "paused"])
def test_a_step_that_is_added_once_more_is_answered_as_the_first_time(hand, status, attempts):
    """The lost reply: as long as it is the last row and still to be done, nothing changes."""
    claim = hand.begun("A")
    first = hand.append_step(claim.id, "X", max_attempts=attempts)
    if status == "paused":
        hand.pause(claim.id)
    if status != "pending":
        hand.advance(claim, "A", in_place=status == "running")
    before = hand.snapshot(claim.id)
    assert hand.append_step(claim.id, "X", max_attempts=attempts) == first
    assert hand.snapshot(claim.id) == before
    hand.assert_replayed(claim.id)


@pytest.mark.spec("PLAN-14")
@pytest.mark.parametrize("other", ["attempts", "no longer last", "of the plan itself", "waits", "failed"])
def test_another_step_of_a_name_that_is_there_is_refused(hand, other):
    """It would not be executed: nobody is told that it was added."""
    claim = hand.begun("A", "B")
    name, fields = "X", {}
    if other == "of the plan itself":
        name = "B"
    else:
        hand.append_step(claim.id, "X")
    match other:
        case "attempts":
            fields = {"max_attempts": 9}
        case "no longer last":
            hand.append_step(claim.id, "Y")
        case "waits" | "failed":
            hand.advance(claim, "A", in_place=True)
            hand.advance(claim, "B", in_place=True)
    if other == "waits":
        hand.park(claim, StepWrite(key="X", status=StepStatus.WAITING, topic="parcel"))
    if other == "failed":
        hand.fail(claim)
        assert hand.status(claim.id) is Status.FAILED
    before = hand.snapshot(claim.id)
    with pytest.raises(Conflict):
        hand.append_step(claim.id, name, **fields)
    assert hand.snapshot(claim.id) == before
