"""Budgets that cover the children of a run, and theirs: one account for all of them."""

from __future__ import annotations

import pytest

from holdfast.errors import IllegalMove
from holdfast.lifecycle import Move, Status, StepStatus
from holdfast.records import ANY, COST_UNIT, RunFilter

from .chains import go_on
from .driver import TYPE, call, done, listen

MOST = 100


def family(driver, **fields):
    """Start a run whose budget covers its children, a child of it, and a child of that; claim all three."""
    top = driver.start(budget=MOST, covers_children=True, **fields)
    child = driver.start(parent=top, **fields)
    last = driver.start(parent=child, **fields)
    claims = {claim.id: claim for claim in driver.claim()}
    return [claims[run] for run in (top, child, last)]


def stop(driver, claim, **fields):
    """Give a run back before a step, because nothing is left of its budget."""
    return driver.commit(claim, Move.RELEASE, before="next", **fields)


@pytest.mark.spec("COST-5")
def test_the_cost_of_children_and_theirs_counts_against_the_budget_of_the_run_at_the_top(driver):
    """Each claim says what is left, and each answer to a holder that asks. Each run has its own cost."""
    top, child, last = family(driver)
    assert [(claim.account, claim.left) for claim in (top, child, last)] == [(top.id, MOST)] * 3
    assert driver.checkpoint(top, done("a", cost=10), shares=True).left == 90
    assert driver.checkpoint(child, done("a", cost=20), shares=True).left == 70
    assert driver.retry(last, done("a", cost=30), shares=True).left == 40
    assert driver.checkpoint(top, done("b")).left is None
    assert driver.checkpoint(top, done("c"), shares=True).left == 40
    shown = [driver.get(claim.id) for claim in (top, child, last)]
    assert [run.cost_units for run in shown] == [10, 20, 30]
    assert {(run.account, run.account_cost_units, run.account_budget_units) for run in shown} == {
        (top.id, 60, MOST)
    }


@pytest.mark.spec("COST-5")
def test_runs_without_such_a_budget_have_no_account(driver):
    """A budget covers children only where that is said, and only if there is a budget."""
    plain, none = driver.start(budget=MOST), driver.start(covers_children=True)
    child = driver.start(parent=plain)
    for claim in driver.claim():
        assert (claim.account, claim.left) == (None, None)
        assert driver.checkpoint(claim, done("a", cost=1), shares=True).left is None
    assert [driver.get(run).account for run in (plain, none, child)] == [None, None, None]


@pytest.mark.spec("COST-5")
def test_a_published_workflow_may_say_that_its_budget_covers_children(driver):
    """A start by name alone gets it. A covered run opens no account of its own."""
    driver.publish(budget=MOST, covers_children=True)
    (found,) = driver.run(driver.store.definitions())
    assert found.covers_children
    top = driver.start()
    child = driver.start(parent=top, budget=7)
    assert [driver.get(run).account for run in (top, child)] == [top, top]
    assert [driver.get(run).account_budget_units for run in (top, child)] == [MOST, MOST]


@pytest.mark.spec("COST-5", "FLOW-1")
def test_a_child_that_a_step_starts_is_covered(driver):
    """The account goes along with the row that starts it."""
    top, *_ = family(driver)
    kid = driver.id()
    driver.checkpoint(top, call("kid", kid, status=StepStatus.SUCCEEDED))
    assert (driver.get(kid).parent, driver.get(kid).account) == (top.id, top.id)


@pytest.mark.spec("COST-5")
def test_a_covered_run_pauses_before_a_step_when_nothing_is_left_and_says_whose_budget_it_is(driver):
    """The holder gives it back before the step; the store looks at the account as it is then."""
    top, child, last = family(driver)
    assert stop(driver, last).status is Status.PENDING  # something is left
    assert driver.checkpoint(child, done("a", cost=MOST), shares=True).left == 0
    assert (stop(driver, child).answer, stop(driver, top).answer) == ("paused", "paused")
    why = {"step": "next", "cost_max": 0.0, "cost": MOST / COST_UNIT, "budget": MOST / COST_UNIT}
    assert driver.last(child.id, "paused") == {"by": f"budget of {top.id}", **why}
    assert driver.last(top.id, "paused") == {"by": "budget", **why}
    assert driver.get(child.id).pause_asked_by == f"budget of {top.id}"
    for run in (top.id, child.id):
        driver.assert_replayed(run)


@pytest.mark.spec("COST-4", "COST-5")
def test_a_covered_run_pauses_before_a_step_that_may_cost_more_than_is_left(driver):
    """The cost that the step may have counts against the common budget too."""
    top, child, _ = family(driver)
    driver.checkpoint(top, done("a", cost=60))
    assert stop(driver, child, cost_max=41).answer == "paused"
    assert driver.last(child.id, "paused")["cost_max"] == 41 / COST_UNIT


@pytest.mark.spec("COST-3", "COST-5")
def test_a_new_budget_of_the_run_at_the_top_lets_the_paused_children_go_on(driver):
    """Also when that run itself is not paused. A child that a person paused stays paused."""
    top, child, last = family(driver)
    driver.park(top, listen("w", "t"))
    driver.checkpoint(child, done("a", cost=MOST))
    assert (stop(driver, child).answer, stop(driver, last).answer) == ("paused", "paused")
    other = driver.start(parent=top.id)
    driver.pause(other, by="ann")
    seen = driver.resume(top.id, by="ann", budget=2 * MOST)
    assert (seen.status, seen.budget_units, seen.account_budget_units) == (
        Status.WAITING, 2 * MOST, 2 * MOST,
    )  # fmt: skip
    driver.deliver()
    assert [driver.status(run) for run in (child.id, last.id, other)] == ["pending", "pending", "paused"]
    assert driver.last(child.id, "resumed") == {"by": f"budget of {top.id}", "status": "pending"}
    assert driver.take(child.id, limit=1).left == MOST
    driver.assert_replayed(top.id)
    driver.assert_replayed(child.id)


@pytest.mark.spec("COST-3", "COST-5")
def test_a_paused_child_is_refused_while_nothing_is_left_and_the_refusal_names_the_run_at_the_top(driver):
    """A budget of its own would not help it. The run at the top needs more than all have spent."""
    top, child, _ = family(driver)
    driver.checkpoint(child, done("a", cost=MOST))
    stop(driver, child)
    stop(driver, top)
    for budget in (None, 2 * MOST):
        with pytest.raises(IllegalMove, match=f"run {top.id}, whose budget covers it, has spent 0.0001 of"):
            driver.resume(child.id, budget=budget)
    with pytest.raises(IllegalMove, match=r"it has spent 0\.0001 of its budget of 0\.0001"):
        driver.resume(top.id)
    with pytest.raises(IllegalMove, match=r"it has spent 0\.0001: a budget of 0\.0001 is too low"):
        driver.resume(top.id, budget=MOST)


@pytest.mark.spec("COST-3", "COST-5")
def test_an_ended_run_can_still_share_a_higher_budget(driver):
    """Its children may outlive it. The run itself stays as it is."""
    top, child, _ = family(driver)
    driver.complete(top, done("a", cost=MOST))
    stop(driver, child)
    assert driver.resume(top.id, budget=2 * MOST).status is Status.SUCCEEDED
    driver.deliver()
    assert driver.status(child.id) is Status.PENDING


@pytest.mark.spec("COST-1", "COST-5", "LEASE-14")
def test_an_account_counts_each_cost_once(driver):
    """A repeated item, a kept step and an item of a zombie add nothing."""
    top, zombie, _ = family(driver)
    item = driver.item(zombie, Move.CHECKPOINT, done("a", cost=10), shares=True)
    assert [verdict.left for verdict in driver.send(item) + driver.send(item)] == [90, 90]
    driver.clock.turn(31)
    driver.tick()
    driver.clock.turn(60)
    claim = next(one for one in driver.claim() if one.id == zombie.id)
    assert claim.left == 90
    assert driver.checkpoint(zombie, done("b", cost=10)).answer == "lost"
    assert driver.checkpoint(claim, done("a", cost=10), shares=True).left == 90
    assert driver.get(top.id).account_cost_units == 10


@pytest.mark.spec("COST-5", "FLOW-24")
def test_a_chain_keeps_its_account(driver):
    """The next run of the run at the top, and that of a child, count to the same budget."""
    top, child, _ = family(driver)
    next_top = go_on(driver, top, done("a", cost=10), budget=MOST)
    next_child = go_on(driver, child, done("a", cost=20), parent=top.id)
    assert [driver.get(run).account for run in (next_top, next_child)] == [top.id, top.id]
    claims = {claim.id: claim for claim in driver.claim()}
    assert claims[next_top].left == claims[next_child].left == 70
    assert driver.checkpoint(claims[next_top], done("b", cost=70), shares=True).left == 0
    stop(driver, claims[next_child])
    assert stop(driver, claims[next_top]).answer == "paused"
    driver.resume(top.id, budget=2 * MOST)
    driver.deliver()
    assert [driver.status(run) for run in (next_top, next_child)] == ["pending", "pending"]


@pytest.mark.spec("COST-5", "FLOW-24")
def test_a_run_that_goes_on_as_another_opens_no_account(driver):
    """Its workflow got such a budget meanwhile. An account belongs to the first run of a chain."""
    claim = driver.held(budget=MOST)
    driver.publish(budget=MOST, covers_children=True)
    run = go_on(driver, claim, budget=MOST, covers_children=True)
    last = go_on(driver, driver.take(run), budget=MOST)
    assert [driver.get(one).account for one in (claim.id, run, last)] == [None, None, None]
    assert driver.get(driver.start(parent=last, type="shop.x.v1")).account is None


@pytest.mark.spec("COST-5")
def test_an_account_ends_with_its_run(driver):
    """Open children that outlive a purge go on without the common budget."""
    top, child, _ = family(driver)
    driver.complete(top)
    driver.purge(ttl_seconds=0.0)
    assert driver.get(top.id) is None
    assert driver.checkpoint(child, done("a", cost=1), shares=True).left is None
    assert stop(driver, child).status is Status.PENDING
    seen = driver.get(child.id)
    assert (seen.account, seen.account_cost_units) == (top.id, None)


@pytest.mark.spec("COST-5")
def test_many_covered_runs_commit_at_once(driver):
    """One batch with runs of several accounts counts each cost to its own account."""
    tops = [driver.start(budget=MOST, covers_children=True) for _ in range(3)]
    kids = [driver.start(parent=top) for top in tops for _ in range(3)]
    claims = {claim.id: claim for claim in driver.claim()}
    items = [driver.item(claims[run], Move.CHECKPOINT, done("a", cost=5)) for run in (*reversed(kids), *tops)]
    driver.send(*items)
    assert [driver.get(top).account_cost_units for top in tops] == [20, 20, 20]


@pytest.mark.spec("RERUN-1")
@pytest.mark.parametrize("plan", [False, True])
def test_a_run_names_the_run_that_it_repeats(driver, plan):
    """In its record, in lists and in its trail."""
    if plan:
        driver.publish("A", type=TYPE)
    first = driver.start()
    again = driver.start(origin=first)
    assert [driver.get(run).origin for run in (first, again)] == [None, first]
    assert driver.last(again, "created")["origin"] == str(first)
    assert "origin" not in driver.last(first, "created")
    listed = driver.run(driver.store.list(RunFilter(tenant=ANY)))
    assert [run.origin for run in listed] == [first, None]
