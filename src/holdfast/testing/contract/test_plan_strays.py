"""What a plan's holder may bring with a move: the current task, as the status that belongs to the move."""

from __future__ import annotations

import pytest

from holdfast.errors import UsageError
from holdfast.lifecycle import Move, StepKind, StepStatus
from holdfast.records import NewEvent, StepWrite

from .hand import backing_off, broken, done, listen, task

WAITING = StepWrite(key="A", status=StepStatus.WAITING, topic="parcel")
STRAYS = [
    (Move.PARK, done("A")),
    (Move.PARK, broken("A")),
    (Move.PARK, None),
    (Move.PARK, StepWrite(key="A", status=StepStatus.WAITING)),
    (Move.PARK, listen("A")),
    (Move.PARK, StepWrite(key="A", kind=StepKind.EVENT, status=StepStatus.CANCELLED)),
    (Move.RETRY, done("A")),
    (Move.RETRY, broken("A")),
    (Move.RETRY, listen("A")),
    (Move.RELEASE, done("A")),
    (Move.RELEASE, broken("A")),
    (Move.RELEASE, listen("A")),
    (Move.FAIL, done("A")),
    (Move.FAIL, listen("A")),
]


@pytest.mark.spec("PLAN-3", "LEASE-4")
@pytest.mark.parametrize(("move", "step"), STRAYS)
def test_a_plans_step_in_a_status_that_is_not_the_moves_is_lost(hand, move, step):
    """Nothing changes: no outcome is recorded that the run would not go on from."""
    claim = hand.begun("A", "B")
    before = hand.snapshot(claim.id), hand.everything()
    steps = () if step is None else (step,)
    assert hand.commit(claim, move, *steps).answer == "lost"
    assert (hand.snapshot(claim.id), hand.everything()) == before
    assert hand.advance(claim, "A", in_place=True).answer == "applied"


@pytest.mark.spec("PLAN-3", "LEASE-4")
@pytest.mark.parametrize(
    ("move", "step"),
    [
        (Move.PARK, WAITING),
        (Move.PARK, StepWrite(key="A", status=StepStatus.WAITING, due_at=1)),
        (Move.PARK, StepWrite(key="A", status=StepStatus.WAITING, delay_seconds=0.0)),
        (Move.RETRY, backing_off("A")),
        (Move.RETRY, None),
        (Move.RELEASE, None),
        (Move.FAIL, broken("A")),
        (Move.FAIL, None),
    ],
)
def test_a_plans_step_in_the_status_of_the_move_is_taken(hand, move, step):
    claim = hand.begun("A", "B")
    steps = () if step is None else (step,)
    assert hand.commit(claim, move, *steps).answer == "applied"
    hand.assert_replayed(claim.id)


@pytest.mark.spec("PLAN-12", "LEASE-4")
@pytest.mark.parametrize("late", [True, False])
def test_whoever_brings_a_plans_rows_brings_no_step(hand, late):
    """A step that was recorded beside them would make it a code run, or skip a row."""
    claim = hand.held() if late else hand.begun("A")
    before = hand.snapshot(claim.id)
    assert hand.advance(claim, "A", plan=(task("A"),)).answer == "lost"
    assert hand.snapshot(claim.id) == before


@pytest.mark.spec("PLAN-3", "TEN-5")
def test_a_stray_is_lost_whatever_else_it_brings(hand):
    """Also an event for another tenant, which alone would be refused with an error."""
    claim = hand.begun("A", "B")
    event = NewEvent(topic="t", id="e", tenant="acme")
    assert hand.checkpoint(claim, done("C"), events=(event,)).answer == "lost"
    assert hand.advance(claim, "A", in_place=True).answer == "applied"


@pytest.mark.spec("PLAN-12", "START-10")
def test_a_plan_that_begins_without_rows_is_refused(hand):
    """It would be a plan that nobody can show."""
    claim = hand.held()
    with pytest.raises(UsageError, match="needs at least one"):
        hand.advance(claim, None, plan=())
    assert hand.complete(claim).answer == "applied"
