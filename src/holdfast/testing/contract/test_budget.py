"""Budgets: a run that has spent what it may pauses before its next step, once, and says why."""

from __future__ import annotations

import pytest

from holdfast.contract import BUDGET
from holdfast.lifecycle import Move, Status
from holdfast.records import COST_UNIT, Answer

from .hand import backing_off, broken, done, gate, listen

SPENT = 100
# How an item may bring the run to its budget, what the trail tells, and where the run resumes to.
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


def _assert_paused(hand, run, verdict, *, cost=SPENT):
    assert (verdict.answer, verdict.status) == ("paused", Status.PAUSED)
    seen = hand.get(run)
    assert (seen.status, seen.cost_units, seen.leased_by) == (Status.PAUSED, cost, None)
    assert hand.last(run, "paused") == {"by": BUDGET}
    hand.assert_replayed(run)


@pytest.mark.spec("COST-2")
@pytest.mark.parametrize("name", CROSSINGS)
@pytest.mark.parametrize("budget", [1, SPENT])
def test_a_run_that_reaches_its_budget_pauses_before_its_next_step(hand, name, budget):
    """At it or above: what was done is kept, in the same commit; then the run is as if paused by a person."""
    move, write, told, resumed = CROSSINGS[name]
    claim = hand.held(budget=budget)
    assert (claim.budget, claim.cost) == (budget, 0)
    fields = {"error": write.error, "delay_seconds": 0.0} if move is Move.RETRY else {}
    verdict = hand.commit(claim, move, write, **fields)
    _assert_paused(hand, claim.id, verdict)
    assert hand.told(claim.id, 2) == [*told, "paused"]
    assert hand.claim() == []
    assert hand.resume(claim.id, by="ann").status is resumed
    hand.assert_replayed(claim.id)


@pytest.mark.spec("COST-2")
def test_a_park_that_reaches_the_budget_pauses_and_resumes_to_its_wait(hand):
    """The wait stays open meanwhile."""
    claim = hand.held(budget=SPENT)
    verdict = hand.park(claim, done("a", cost=SPENT), listen("w", "t"), known=0)
    _assert_paused(hand, claim.id, verdict)
    assert hand.told(claim.id)[-2:] == ["waiting", "paused"]
    assert hand.resume(claim.id).status is Status.WAITING
    assert hand.emit("t").woken == 1


@pytest.mark.spec("COST-2", "PLAN-5")
@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize(("following", "resumed"), [("B", Status.PENDING), (gate("B"), Status.WAITING)])
def test_a_plan_that_reaches_its_budget_pauses_before_its_next_step(hand, following, resumed, in_place):
    """The step has succeeded; the next is neither executed nor asked for."""
    claim = hand.begun("A", following, budget=SPENT)
    verdict = hand.advance(claim, done("A", cost=SPENT), in_place=in_place)
    _assert_paused(hand, claim.id, verdict)
    assert hand.shape(claim.id) == [("A", "succeeded"), ("B", "pending")]
    assert (hand.approvals(), hand.told(claim.id, 2)) == ([], ["step_succeeded", "paused"])
    assert hand.resume(claim.id).status is resumed
    hand.assert_replayed(claim.id)


@pytest.mark.spec("COST-2")
def test_below_its_budget_a_run_goes_on(hand):
    """Nothing of it is seen."""
    claim = hand.held(budget=SPENT)
    assert hand.checkpoint(claim, done("a", cost=SPENT - 1)).answer == "applied"
    assert hand.checkpoint(claim, done("b", cost=0)).answer == "applied"
    _assert_paused(hand, claim.id, hand.checkpoint(claim, done("c", cost=1)))


@pytest.mark.spec("COST-2")
def test_a_resumed_run_is_not_paused_for_its_budget_again(hand):
    """Whoever resumes it has agreed to what it still costs."""
    claim = hand.held(budget=SPENT)
    hand.checkpoint(claim, done("a", cost=SPENT))
    hand.resume(claim.id)
    claim = hand.take(claim.id)
    assert (claim.cost, claim.budget) == (SPENT, SPENT)
    assert hand.checkpoint(claim, done("b", cost=SPENT)).answer == "applied"
    assert hand.complete(claim).status is Status.SUCCEEDED
    assert (hand.get(claim.id).cost_units, hand.told(claim.id).count("paused")) == (2 * SPENT, 1)


@pytest.mark.spec("COST-2", "PAUSE-3")
@pytest.mark.parametrize("end", ["complete", "fail", "the last step of a plan"])
def test_an_end_wins_over_the_budget(hand, end):
    """There is no next step that could be kept from running."""
    if end == "the last step of a plan":
        claim = hand.begun("A", budget=SPENT)
        verdict = hand.advance(claim, done("A", cost=SPENT))
    else:
        claim = hand.held(budget=SPENT)
        verdict = getattr(hand, end)(claim, done("a", cost=SPENT))
    assert verdict.answer is Answer.APPLIED
    seen = hand.get(claim.id)
    assert seen.status is (Status.FAILED if end == "fail" else Status.SUCCEEDED)
    assert (seen.pause_asked_by, seen.cost_units) == (None, SPENT)
    assert "paused" not in hand.told(claim.id)


@pytest.mark.spec("COST-2", "PAUSE-3")
def test_a_pause_that_a_person_asked_for_stays_his(hand):
    """The trail names him, and not the budget that was reached in the same commit."""
    claim = hand.held(budget=SPENT)
    hand.pause(claim.id, by="ann")
    hand.checkpoint(claim, done("a", cost=SPENT))
    assert hand.last(claim.id, "paused") == {"by": "ann"}


@pytest.mark.spec("COST-1", "COST-2", "LEASE-14")
def test_what_adds_no_cost_reaches_no_budget(hand):
    """A kept step, the same item again, a zombie."""
    zombie = hand.held(budget=SPENT)
    hand.checkpoint(zombie, done("a", cost=SPENT - 1))
    hand.clock.turn(31)
    hand.tick()
    claim = hand.take(zombie.id)
    assert hand.checkpoint(zombie, done("b", cost=SPENT)).answer == "lost"
    assert hand.checkpoint(claim, done("a", cost=SPENT)).answer == "applied"
    item = hand.item(claim, Move.CHECKPOINT, done("c", cost=1))
    assert [verdict.answer for verdict in hand.send(item) + hand.send(item)] == ["paused", "paused"]
    assert hand.get(claim.id).cost_units == SPENT
    assert hand.told(claim.id).count("paused") == 1


@pytest.mark.spec("COST-2")
def test_the_budget_is_the_starts_or_else_the_workflows(hand):
    """Shown in the units that costs are written in; None: no limit."""
    unlimited = hand.start()
    hand.publish(budget=3 * COST_UNIT)
    usual, own = hand.start(), hand.start(budget=COST_UNIT // 2)
    assert [hand.get(run).budget for run in (unlimited, usual, own)] == [None, 3.0, 0.5]


@pytest.mark.spec("COST-1", "REW-3", "COST-2")
def test_a_rewound_run_has_spent_what_it_has_spent(hand):
    """The cost stays, and so the budget is not reached a second time."""
    claim = hand.held(budget=SPENT)
    hand.checkpoint(claim, done("a", cost=SPENT))
    assert hand.rewind(claim.id, "a").cost_units == SPENT
    hand.resume(claim.id)
    claim = hand.take(claim.id)
    assert hand.checkpoint(claim, done("a", cost=SPENT)).answer == "applied"
    assert hand.get(claim.id).cost_units == 2 * SPENT
