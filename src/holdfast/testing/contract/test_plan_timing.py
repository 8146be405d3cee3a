"""Plans and time: a wait that is settled early, late or in a pause leaves the same run behind."""

from __future__ import annotations

import pytest

from holdfast.lifecycle import Status

from .hand import hear, nap


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
    """Not even the one that the item carries which inserts them."""
    claim = hand.held()
    verdict = hand.advance(claim, None, plan=(nap("N", 0.0),), result='"what?"')
    assert (verdict.status, hand.get(claim.id).result_json) == (Status.SUCCEEDED, None)
    assert hand.get(hand.plan(nap("N", 0.0))).result_json is None
