"""Budgets: a run that has reached its budget pauses before its next step, once, with the reason."""

from __future__ import annotations

import pytest

from holdfast.contract import BUDGET
from holdfast.lifecycle import Move, Status
from holdfast.records import COST_UNIT, Answer

from .driver import backing_off, broken, done, gate, listen

SPENT = 100
# Items that bring the run to its budget, with the trail's row and the status after a resume.
CROSSINGS = {
    "checkpoint": (Move.CHECKPOINT, done("a", cost=SPENT), ["step_succeeded"], Status.PENDING),
    "checkpoint of a failed step": (
        Move.CHECKPOINT,
        broken("a", cost=SPENT),
        ["step_failed"],
        Status.PENDING,
    ),
    "retry": (Move.RETRY, backing_off("a", cost=SPENT), ["retried"], Status.PENDING),
    "release": (Move.RELEASE, done("a", cost=SPENT), ["step_succeeded", "released"], Status.PENDING),
}


def _assert_paused(driver, run, verdict, *, cost=SPENT):
    assert (verdict.answer, verdict.status) == ("paused", Status.PAUSED)
    seen = driver.get(run)
    assert (seen.status, seen.cost_units, seen.leased_by) == (Status.PAUSED, cost, None)
    assert driver.last(run, "paused") == {"by": BUDGET}
    driver.assert_replayed(run)


@pytest.mark.spec("COST-2")
@pytest.mark.parametrize("name", CROSSINGS)
@pytest.mark.parametrize("budget", [1, SPENT])
def test_a_run_that_reaches_its_budget_pauses_before_its_next_step(driver, name, budget):
    """The step is recorded in the same commit; then the run is paused as if by a person."""
    move, write, told, resumed = CROSSINGS[name]
    claim = driver.held(budget=budget)
    assert (claim.budget, claim.cost) == (budget, 0)
    fields = {"error": write.error, "delay_seconds": 0.0} if move is Move.RETRY else {}
    verdict = driver.commit(claim, move, write, **fields)
    _assert_paused(driver, claim.id, verdict)
    assert driver.told(claim.id, 2) == [*told, "paused"]
    assert driver.claim() == []
    assert driver.resume(claim.id, by="ann").status is resumed
    driver.assert_replayed(claim.id)


@pytest.mark.spec("COST-2")
def test_a_park_that_reaches_the_budget_pauses_and_resumes_to_its_wait(driver):
    """The wait stays open during the pause."""
    claim = driver.held(budget=SPENT)
    verdict = driver.park(claim, done("a", cost=SPENT), listen("w", "t"), known=0)
    _assert_paused(driver, claim.id, verdict)
    assert driver.told(claim.id)[-2:] == ["waiting", "paused"]
    assert driver.resume(claim.id).status is Status.WAITING
    assert driver.emit("t").woken == 1


@pytest.mark.spec("COST-2", "PLAN-5")
@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize(("following", "resumed"), [("B", Status.PENDING), (gate("B"), Status.WAITING)])
def test_a_plan_that_reaches_its_budget_pauses_before_its_next_step(driver, following, resumed, in_place):
    """The step has succeeded; the next step is neither executed nor opened."""
    claim = driver.begun("A", following, budget=SPENT)
    verdict = driver.advance(claim, done("A", cost=SPENT), in_place=in_place)
    _assert_paused(driver, claim.id, verdict)
    assert driver.shape(claim.id) == [("A", "succeeded"), ("B", "pending")]
    assert (driver.approvals(), driver.told(claim.id, 2)) == ([], ["step_succeeded", "paused"])
    assert driver.resume(claim.id).status is resumed
    driver.assert_replayed(claim.id)


@pytest.mark.spec("COST-2")
def test_below_its_budget_a_run_goes_on(driver):
    """A budget that is not reached has no effect."""
    claim = driver.held(budget=SPENT)
    assert driver.checkpoint(claim, done("a", cost=SPENT - 1)).answer == "applied"
    assert driver.checkpoint(claim, done("b", cost=0)).answer == "applied"
    _assert_paused(driver, claim.id, driver.checkpoint(claim, done("c", cost=1)))


@pytest.mark.spec("COST-2")
def test_a_resumed_run_is_not_paused_for_its_budget_again(driver):
    """The person who resumes the run accepts its further cost."""
    claim = driver.held(budget=SPENT)
    driver.checkpoint(claim, done("a", cost=SPENT))
    driver.resume(claim.id)
    claim = driver.take(claim.id)
    assert (claim.cost, claim.budget) == (SPENT, SPENT)
    assert driver.checkpoint(claim, done("b", cost=SPENT)).answer == "applied"
    assert driver.complete(claim).status is Status.SUCCEEDED
    assert (driver.get(claim.id).cost_units, driver.told(claim.id).count("paused")) == (2 * SPENT, 1)


@pytest.mark.spec("COST-2", "PAUSE-3")
@pytest.mark.parametrize("end", ["complete", "fail", "the last step of a plan"])
def test_an_end_wins_over_the_budget(driver, end):
    """The run has no next step that could be stopped."""
    if end == "the last step of a plan":
        claim = driver.begun("A", budget=SPENT)
        verdict = driver.advance(claim, done("A", cost=SPENT))
    else:
        claim = driver.held(budget=SPENT)
        verdict = getattr(driver, end)(claim, done("a", cost=SPENT))
    assert verdict.answer is Answer.APPLIED
    seen = driver.get(claim.id)
    assert seen.status is (Status.FAILED if end == "fail" else Status.SUCCEEDED)
    assert (seen.pause_asked_by, seen.cost_units) == (None, SPENT)
    assert "paused" not in driver.told(claim.id)


@pytest.mark.spec("COST-2", "PAUSE-3")
def test_a_pause_that_a_person_asked_for_names_that_person(driver):
    """The trail names the person, not the budget that was reached in the same commit."""
    claim = driver.held(budget=SPENT)
    driver.pause(claim.id, by="ann")
    driver.checkpoint(claim, done("a", cost=SPENT))
    assert driver.last(claim.id, "paused") == {"by": "ann"}


@pytest.mark.spec("COST-1", "COST-2", "LEASE-14")
def test_an_item_without_new_cost_reaches_no_budget(driver):
    """A kept step, a repeated item and an item of a zombie add no cost."""
    zombie = driver.held(budget=SPENT)
    driver.checkpoint(zombie, done("a", cost=SPENT - 1))
    driver.clock.turn(31)
    driver.tick()
    claim = driver.take(zombie.id)
    assert driver.checkpoint(zombie, done("b", cost=SPENT)).answer == "lost"
    assert driver.checkpoint(claim, done("a", cost=SPENT)).answer == "applied"
    item = driver.item(claim, Move.CHECKPOINT, done("c", cost=1))
    assert [verdict.answer for verdict in driver.send(item) + driver.send(item)] == ["paused", "paused"]
    assert driver.get(claim.id).cost_units == SPENT
    assert driver.told(claim.id).count("paused") == 1


@pytest.mark.spec("COST-2")
def test_the_budget_of_the_start_comes_before_the_workflows(driver):
    """The budget is shown in the units of costs; None means no limit."""
    unlimited = driver.start()
    driver.publish(budget=3 * COST_UNIT)
    usual, own = driver.start(), driver.start(budget=COST_UNIT // 2)
    assert [driver.get(run).budget for run in (unlimited, usual, own)] == [None, 3.0, 0.5]


@pytest.mark.spec("COST-1", "REW-3", "COST-2")
def test_a_rewind_keeps_the_cost(driver):
    """The cost stays, so the budget is not reached a second time."""
    claim = driver.held(budget=SPENT)
    driver.checkpoint(claim, done("a", cost=SPENT))
    assert driver.rewind(claim.id, "a").cost_units == SPENT
    driver.resume(claim.id)
    claim = driver.take(claim.id)
    assert driver.checkpoint(claim, done("a", cost=SPENT)).answer == "applied"
    assert driver.get(claim.id).cost_units == 2 * SPENT
