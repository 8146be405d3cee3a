"""Budgets: a run that has reached its budget pauses before its next step, once, with the reason."""

from __future__ import annotations

import pytest

from holdfast.contract import BUDGET
from holdfast.errors import IllegalMove
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
    assert driver.resume(claim.id, by="ann", budget=SPENT + 1).status is resumed
    assert driver.told(claim.id)[-2:] == ["budget_set", "resumed"]
    driver.assert_replayed(claim.id)


@pytest.mark.spec("COST-2")
def test_a_park_that_reaches_the_budget_pauses_and_resumes_to_its_wait(driver):
    """The wait stays open during the pause."""
    claim = driver.held(budget=SPENT)
    verdict = driver.park(claim, done("a", cost=SPENT), listen("w", "t"), known=0)
    _assert_paused(driver, claim.id, verdict)
    assert driver.told(claim.id)[-2:] == ["waiting", "paused"]
    assert driver.resume(claim.id, budget=SPENT + 1).status is Status.WAITING
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
    assert driver.resume(claim.id, budget=SPENT + 1).status is resumed
    driver.assert_replayed(claim.id)


@pytest.mark.spec("COST-2")
def test_below_its_budget_a_run_goes_on(driver):
    """A budget that is not reached has no effect."""
    claim = driver.held(budget=SPENT)
    assert driver.checkpoint(claim, done("a", cost=SPENT - 1)).answer == "applied"
    assert driver.checkpoint(claim, done("b", cost=0)).answer == "applied"
    _assert_paused(driver, claim.id, driver.checkpoint(claim, done("c", cost=1)))


@pytest.mark.spec("COST-3")
def test_a_resumed_run_goes_on_with_its_new_budget_and_pauses_when_that_is_reached(driver):
    """The budget is set in the commit of the resume. The same budget again is no change."""
    claim = driver.held(budget=SPENT)
    driver.checkpoint(claim, done("a", cost=SPENT))
    seen = driver.resume(claim.id, by="ann", budget=3 * SPENT)
    assert (seen.status, seen.budget_units, seen.pause_asked_by) == (Status.PENDING, 3 * SPENT, None)
    assert driver.last(claim.id, "budget_set") == {"by": "ann", "budget": 3 * SPENT / COST_UNIT}
    claim = driver.take(claim.id)
    assert (claim.cost, claim.budget) == (SPENT, 3 * SPENT)
    assert driver.checkpoint(claim, done("b", cost=SPENT)).answer == "applied"
    assert driver.resume(claim.id, budget=3 * SPENT).budget_units == 3 * SPENT
    _assert_paused(driver, claim.id, driver.checkpoint(claim, done("c", cost=SPENT)), cost=3 * SPENT)
    assert driver.told(claim.id).count("budget_set") == 1


@pytest.mark.spec("COST-3")
@pytest.mark.parametrize("budget", [None, 1, SPENT])
def test_a_run_that_has_spent_its_budget_is_resumed_only_with_a_higher_one(driver, budget):
    """It would pause again before its next step. The refusal names what is spent, and changes nothing."""
    claim = driver.held(budget=SPENT)
    driver.checkpoint(claim, done("a", cost=SPENT))
    before = driver.get(claim.id)
    with pytest.raises(IllegalMove) as refused:
        driver.resume(claim.id, budget=budget)
    said = "of its budget of 0.0001: resume it with a higher budget" if budget is None else "is too low"
    assert "it has spent 0.0001" in str(refused.value)
    assert said in str(refused.value)
    assert (driver.get(claim.id), driver.told(claim.id)[-1]) == (before, "paused")


@pytest.mark.spec("COST-3")
@pytest.mark.parametrize("status", ["pending", "waiting", "leased", "succeeded"])
def test_an_open_run_that_is_not_paused_gets_a_new_budget_and_keeps_its_status(driver, status):
    """The budget can be raised before it is reached. An ended run has no use for one."""
    run = driver.start(budget=SPENT)
    if status != "pending":
        claim = driver.take(run)
    if status == "waiting":
        driver.park(claim, listen("w", "t"))
    elif status == "succeeded":
        driver.complete(claim)
        with pytest.raises(IllegalMove):
            driver.resume(run, budget=2 * SPENT)
        return
    seen = driver.resume(run, by="ann", budget=2 * SPENT)
    assert (seen.status, seen.budget_units) == (status, 2 * SPENT)
    assert driver.told(run)[-1] == "budget_set"
    driver.assert_replayed(run)
    if status == "leased":
        assert driver.checkpoint(claim, done("a", cost=SPENT)).answer == "applied"


@pytest.mark.spec("COST-3")
def test_a_new_budget_withdraws_a_pause_that_is_asked_for(driver):
    """As every resume does."""
    claim = driver.held(budget=SPENT)
    driver.pause(claim.id, by="ann")
    assert driver.resume(claim.id, budget=2 * SPENT).pause_asked_by is None
    assert driver.checkpoint(claim, done("a")).answer == "applied"


@pytest.mark.spec("COST-3")
def test_a_paused_run_names_who_asked_for_the_pause(driver):
    """A person or the budget; the name goes with the pause."""
    one, two = driver.held(budget=SPENT), driver.held()
    three = driver.start()
    driver.checkpoint(one, done("a", cost=SPENT))
    driver.pause(two.id, by="ann")
    driver.checkpoint(two, done("a"))
    driver.pause(three, by="bob")
    assert [driver.get(run).pause_asked_by for run in (one.id, two.id, three)] == [BUDGET, "ann", "bob"]
    assert driver.rewind(two.id, None).pause_asked_by == "ann"
    assert [driver.resume(run).pause_asked_by for run in (two.id, three)] == [None, None]
    assert driver.cancel(one.id).pause_asked_by is None


@pytest.mark.spec("COST-4")
def test_a_run_pauses_before_a_step_that_may_cost_more_than_is_left(driver):
    """The holder gives it back with what the step may cost. The reason is in the trail."""
    claim = driver.held(budget=SPENT)
    driver.checkpoint(claim, done("a", cost=60))
    verdict = driver.commit(claim, Move.RELEASE, cost_max=41, before="b")
    assert (verdict.answer, verdict.status) == ("paused", Status.PAUSED)
    assert driver.told(claim.id)[-2:] == ["released", "paused"]
    why = {"step": "b", "cost_max": 41 / COST_UNIT, "cost": 60 / COST_UNIT, "budget": SPENT / COST_UNIT}
    assert driver.last(claim.id, "paused") == {"by": BUDGET, **why}
    assert driver.get(claim.id).pause_asked_by == BUDGET
    with pytest.raises(IllegalMove, match=r"it has spent 0\.00006 of its budget of 0\.0001: resume it with"):
        driver.resume(claim.id)
    assert driver.resume(claim.id, budget=SPENT + 1).status is Status.PENDING
    driver.assert_replayed(claim.id)


@pytest.mark.spec("COST-4")
@pytest.mark.parametrize("cost_max", [0, 40])
def test_a_step_that_the_rest_of_the_budget_pays_does_not_pause_the_run(driver, cost_max):
    """The store decides by the budget as it is now: it may have been raised since the holder looked."""
    unlimited, claim = driver.held(), driver.held(budget=SPENT)
    verdict = driver.commit(claim, Move.RELEASE, done("a", cost=60), cost_max=cost_max, before="b")
    assert (verdict.answer, verdict.status) == ("applied", Status.PENDING)
    assert driver.told(claim.id)[-1] == "released"
    assert driver.commit(unlimited, Move.RELEASE, cost_max=10**12, before="b").status is Status.PENDING


@pytest.mark.spec("COST-4", "PAUSE-3")
def test_a_pause_of_a_person_stands_before_the_shortage(driver):
    """The trail names the person, and a resume needs no new budget."""
    claim = driver.held(budget=SPENT)
    driver.pause(claim.id, by="ann")
    assert driver.commit(claim, Move.RELEASE, cost_max=SPENT + 1, before="b").answer == "paused"
    assert driver.last(claim.id, "paused") == {"by": "ann"}
    assert driver.resume(claim.id).status is Status.PENDING


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
    """The cost stays, and so does the reason of the pause."""
    claim = driver.held(budget=SPENT)
    driver.checkpoint(claim, done("a", cost=SPENT))
    assert driver.rewind(claim.id, "a").cost_units == SPENT
    driver.resume(claim.id, budget=3 * SPENT)
    claim = driver.take(claim.id)
    assert driver.checkpoint(claim, done("a", cost=SPENT)).answer == "applied"
    assert driver.get(claim.id).cost_units == 2 * SPENT
