"""Steps in items of a plan's holder: only the current task, with the status that belongs to the move."""

from __future__ import annotations

import pytest

from holdfast.errors import UsageError
from holdfast.lifecycle import Move, StepKind, StepStatus
from holdfast.records import NewEvent, StepWrite

from .driver import backing_off, broken, done, listen, task

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
def test_a_plans_step_in_a_status_that_is_not_the_moves_is_lost(driver, move, step):
    """Nothing changes: no outcome is recorded that the run could not go on from."""
    claim = driver.begun("A", "B")
    before = driver.snapshot(claim.id), driver.everything()
    steps = () if step is None else (step,)
    assert driver.commit(claim, move, *steps).answer == "lost"
    assert (driver.snapshot(claim.id), driver.everything()) == before
    assert driver.advance(claim, "A", in_place=True).answer == "applied"


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
def test_a_plans_step_in_the_status_of_the_move_is_taken(driver, move, step):
    claim = driver.begun("A", "B")
    steps = () if step is None else (step,)
    assert driver.commit(claim, move, *steps).answer == "applied"
    driver.assert_replayed(claim.id)


@pytest.mark.spec("PLAN-12", "LEASE-4")
@pytest.mark.parametrize("late", [True, False])
def test_an_item_with_a_plans_rows_has_no_step(driver, late):
    """A step beside the rows would make it a code run, or skip a row."""
    claim = driver.held() if late else driver.begun("A")
    before = driver.snapshot(claim.id)
    assert driver.advance(claim, "A", plan=(task("A"),)).answer == "lost"
    assert driver.snapshot(claim.id) == before


@pytest.mark.spec("PLAN-3", "TEN-5")
def test_a_wrong_step_is_lost_whatever_else_the_item_brings(driver):
    """This holds also with an event for another tenant, which alone would be an error."""
    claim = driver.begun("A", "B")
    event = NewEvent(topic="t", id="e", tenant="acme")
    assert driver.checkpoint(claim, done("C"), events=(event,)).answer == "lost"
    assert driver.advance(claim, "A", in_place=True).answer == "applied"


@pytest.mark.spec("PLAN-12", "START-10")
def test_a_plan_that_begins_without_rows_is_refused(driver):
    """Nobody could show such a plan."""
    claim = driver.held()
    with pytest.raises(UsageError, match="needs at least one"):
        driver.advance(claim, None, plan=())
    assert driver.complete(claim).answer == "applied"
