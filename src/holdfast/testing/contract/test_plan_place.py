"""Where a plan is: number and name of its current step are fields of the run."""

from __future__ import annotations

import pytest

from holdfast.records import ANY, RunFilter

from .hand import done, gate


def _place(hand, run):
    """What `get` says, and lists with values and without say too."""
    seen = hand.get(run)
    place = seen.current_step_seq, seen.current_step_name
    for values in (True, False):
        (listed,) = hand.run(hand.store.list(RunFilter(values=values, tenant=ANY), 10))
        assert (listed.current_step_seq, listed.current_step_name, listed.cursor) == (*place, seen.cursor)
    return place


@pytest.mark.spec("PLAN-17")
def test_number_and_name_of_the_current_step_follow_the_plan(hand):
    """A gate that is open, and a task in the queue or at work, alike; at the end there is none."""
    run = hand.plan("B", gate("A"), "9", 'x"y')
    assert _place(hand, run) == (0, "B")
    claim = hand.take(run)
    assert _place(hand, run) == (0, "B")
    hand.advance(claim, "B")
    assert _place(hand, run) == (1, "A")
    hand.approve(run)
    assert _place(hand, run) == (2, "9")
    claim = hand.take(run)
    hand.advance(claim, "9", in_place=True)
    assert _place(hand, run) == (3, 'x"y')
    hand.rewind(run, "9")
    assert _place(hand, run) == (2, "9")
    claim = hand.take(run)
    hand.advance(claim, "9", in_place=True)
    hand.advance(claim, 'x"y')
    assert _place(hand, run) == (None, None)
    assert hand.get(run).cursor == 'x"y'


@pytest.mark.spec("PLAN-17")
@pytest.mark.parametrize("end", ["fail", "cancel"])
def test_a_plan_that_ended_without_success_says_where(hand, end):
    claim = hand.begun("B", "A", "9")
    hand.advance(claim, "B", in_place=True)
    if end == "fail":
        hand.fail(claim)
    else:
        hand.cancel(claim.id)
    assert _place(hand, claim.id) == (1, "A")


@pytest.mark.spec("PLAN-17")
def test_code_has_no_current_step(hand):
    claim = hand.held()
    hand.checkpoint(claim, done("a"))
    assert _place(hand, claim.id) == (None, None)
    assert hand.get(claim.id).cursor == "a"
