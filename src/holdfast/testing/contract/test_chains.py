"""Chains: runs that go on as another are one run to callers."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.errors import IllegalMove, KeyReused, UsageError
from holdfast.lifecycle import Move, Status
from holdfast.records import NewRun, RunFilter

from .chains import chain, go_on, next_of
from .driver import EPOCH, TYPE, ask, call, done, task
from .schedules import HOUR, fire, made, seen

decode = msgspec.json.decode


@pytest.mark.spec("FLOW-24")
def test_each_run_is_shown_as_it_is_stored_with_its_chain_and_the_present_run(driver):
    alone = driver.get(driver.start(type="shop.x.v1"))
    assert (alone.chain, alone.present) == (alone.id, alone.id)
    ids, _ = chain(driver, 3)
    shown = [driver.get(run) for run in ids]
    assert [(run.id, run.chain, run.present) for run in shown] == [(run, ids[0], ids[2]) for run in ids]
    assert [run.status for run in shown] == ["succeeded", "succeeded", "leased"]
    assert shown[0].result == {"continued_as": str(ids[1])}
    listed = {run.id: (run.chain, run.present) for run in driver.run(driver.store.list(RunFilter(type=TYPE)))}
    assert listed == dict.fromkeys(ids, (ids[0], ids[2]))
    for run in ids:
        driver.assert_replayed(run)


@pytest.mark.spec("FLOW-24")
def test_only_a_run_that_says_so_goes_on_as_another(driver):
    """A run that a commit starts beside its end is no part of a chain; nor is a run of another type."""
    claim, other, apart = driver.held(), driver.id(), driver.id()
    driver.complete(claim, starts=(
        NewRun(id=other, type=TYPE), NewRun(id=apart, type="shop.x.v1", follows=claim.id),
    ))  # fmt: skip
    assert [driver.get(run).chain for run in (claim.id, other, apart)] == [claim.id, other, apart]
    assert driver.get(claim.id).present == claim.id


@pytest.mark.spec("FLOW-24")
def test_nobody_goes_on_as_another_but_by_its_own_complete(driver):
    claim, other = driver.held(), driver.held()
    with pytest.raises(UsageError, match="follows"):
        driver.start(follows=claim.id)
    before = driver.everything()
    with pytest.raises(UsageError, match="follows"):
        driver.complete(claim, starts=(NewRun(id=driver.id(), type=TYPE, follows=other.id),))
    assert driver.everything() == before


@pytest.mark.spec("FLOW-24")
def test_a_run_goes_on_as_one_other(driver):
    claim = driver.held()
    before = driver.everything()
    with pytest.raises(UsageError, match="several runs follow"):
        driver.complete(claim, starts=(next_of(driver, claim), next_of(driver, claim)))
    assert driver.everything() == before


@pytest.mark.spec("FLOW-24")
def test_the_same_item_again_makes_the_chain_no_longer(driver):
    claim = driver.held()
    item = driver.item(claim, Move.COMPLETE, starts=(next_of(driver, claim),))
    first = driver.send(item)
    before = driver.everything()
    assert driver.send(item) == first
    assert driver.everything() == before
    present = driver.get(claim.id).present
    driver.complete(driver.take(present))
    assert (driver.send(item), driver.get(claim.id).present) == (first, present)


@pytest.mark.spec("FLOW-24")
def test_the_first_run_keeps_the_key(driver):
    """A start with the key returns the first id, however long the chain is; another call is refused."""
    ids, _ = chain(driver, 3, key="k", digest="d")
    assert [driver.get(run).key for run in ids] == ["k", None, None]
    new = NewRun(id=driver.id(), type=TYPE, key="k", digest="d")
    (answer,) = driver.start_many([new])
    assert (answer.id, answer.created) == (ids[0], False)
    (refusal,) = driver.start_many([msgspec.structs.replace(new, digest="other")])
    assert (type(refusal), refusal.run_id) == (KeyReused, ids[0])


@pytest.mark.spec("FLOW-24")
@pytest.mark.parametrize("by", [0, 1, 2])
def test_cancel_pause_and_resume_by_any_id_act_on_the_present_run(driver, by):
    ids, claim = chain(driver, 3)
    assert driver.pause(ids[by], by="ann").id == ids[2]
    assert driver.get(ids[2]).pause_asked_by == "ann"
    assert driver.resume(ids[by]).pause_asked_by is None
    assert driver.cancel(ids[by], by="ann").id == ids[2]
    assert [driver.status(run) for run in ids] == ["succeeded", "succeeded", "cancelled"]
    assert driver.checkpoint(claim).answer == "cancelled"
    assert driver.cancel(ids[by]).status is Status.CANCELLED
    with pytest.raises(IllegalMove) as refusal:
        driver.pause(ids[by])
    assert (refusal.value.run_id, refusal.value.status) == (ids[2], Status.CANCELLED)


@pytest.mark.spec("FLOW-24")
@pytest.mark.parametrize("by", [0, 1, 2])
def test_approve_and_reject_by_any_id_decide_the_gate_of_the_present_run(driver, by):
    ids, claim = chain(driver, 3)
    driver.park(claim, ask("gate"), known=0)
    decided = driver.approve(ids[by], by="ann")
    assert (decided.run.id, decided.step, decided.repeated) == (ids[2], "gate", False)
    assert driver.status(ids[2]) is Status.PENDING
    assert driver.approve(ids[by], "gate").repeated


@pytest.mark.spec("FLOW-24")
def test_a_pause_that_was_asked_for_holds_for_the_next_run(driver):
    """The next run is paused by the same person, and goes on when it is resumed."""
    claim = driver.held()
    driver.pause(claim.id, by="ann")
    run = go_on(driver, claim)
    assert (driver.status(claim.id), driver.status(run)) == (Status.SUCCEEDED, Status.PAUSED)
    assert (driver.told(run), driver.last(run, "paused")) == (["created", "paused"], {"by": "ann"})
    assert driver.claim() == []
    driver.assert_replayed(run)
    assert driver.resume(claim.id).id == run
    driver.take(run)


@pytest.mark.spec("FLOW-24")
def test_a_priority_that_was_given_meanwhile_holds_for_the_next_run(driver):
    """The holder has read the old priority."""
    claim = driver.held(priority=50)
    new = next_of(driver, claim, priority=50)
    driver.set_priority(claim.id, 9, by="ann")
    driver.complete(claim, starts=(new,))
    assert driver.get(new.id).priority == 9


@pytest.mark.spec("COST-3", "FLOW-24")
def test_a_budget_that_was_raised_meanwhile_holds_for_the_next_run(driver):
    """The holder has read the old budget."""
    claim = driver.held(budget=10)
    new = next_of(driver, claim, budget=10)
    driver.resume(claim.id, by="ann", budget=1000)
    driver.complete(claim, done("a", cost=10), starts=(new,))
    seen = driver.get(new.id)
    assert (seen.status, seen.cost_units, seen.budget_units) == (Status.PENDING, 10, 1000)


@pytest.mark.spec("FLOW-24")
def test_what_was_spent_goes_along_and_a_budget_that_is_reached_pauses_the_next_run(driver):
    claim = driver.held(budget=10)
    run = go_on(driver, claim, done("a", cost=6), budget=10)
    assert (driver.get(claim.id).cost_units, driver.get(run).cost_units) == (6, 6)
    last = go_on(driver, driver.take(run), done("a", cost=4), budget=10)
    shown = driver.get(last)
    assert (shown.status, shown.cost_units, shown.budget_units) == (Status.PAUSED, 10, 10)
    assert (shown.pause_asked_by, driver.last(last, "paused")) == ("budget", {"by": "budget"})
    assert driver.resume(claim.id, budget=11).status is Status.PENDING


@pytest.mark.spec("FLOW-24")
@pytest.mark.parametrize("how", ["rewind", "retry"])
def test_rewind_and_retry_of_an_earlier_run_are_refused_and_name_the_present_one(driver, how):
    claim = driver.held()
    run = go_on(driver, claim, done("a"))
    driver.fail(driver.take(run), done("b"), step="b")
    before = driver.everything()
    with pytest.raises(IllegalMove, match=str(run)):
        driver.rewind(claim.id, "a") if how == "rewind" else driver.retry_run(claim.id)
    assert driver.everything() == before
    again = driver.rewind(run, "b") if how == "rewind" else driver.retry_run(run)
    assert (again.id, again.status) == (run, Status.PENDING)


@pytest.mark.spec("FLOW-24")
def test_a_parent_waits_for_the_end_of_its_childs_chain(driver):
    parent, child = driver.held(), driver.id()
    driver.park(parent, call("c", child), known=0)
    claim = driver.take(child)
    run = go_on(driver, claim, parent=parent.id, parent_step="c")
    assert (driver.deliver(), driver.status(parent.id)) == (0, Status.WAITING)
    driver.complete(driver.take(run), result="7")
    assert driver.deliver() == 1
    said = decode(driver.step(parent.id, "c").output)
    assert (said["run"], said["result"]) == (str(run), 7)


@pytest.mark.spec("FLOW-24")
def test_a_childs_chain_is_cancelled_with_its_parent(driver):
    parent, child = driver.held(), driver.id()
    driver.park(parent, call("c", child), known=0)
    run = go_on(driver, driver.take(child), parent=parent.id, parent_step="c")
    driver.cancel(parent.id)
    assert (driver.status(child), driver.status(run)) == (Status.SUCCEEDED, Status.CANCELLED)


@pytest.mark.spec("FLOW-24", "SCHED-1")
def test_a_schedule_that_skips_does_not_start_a_second_chain(driver):
    """The run of the schedule counts as open until the chain has ended."""
    (run,) = fire(driver, made(driver), EPOCH + HOUR).started
    last = go_on(driver, driver.take(run))
    last = go_on(driver, driver.take(last))
    assert fire(driver, seen(driver), EPOCH + 2 * HOUR).skipped == 1
    assert fire(driver, seen(driver), EPOCH + 3 * HOUR).skipped == 1
    driver.complete(driver.take(last))
    assert fire(driver, seen(driver), EPOCH + 4 * HOUR).started


@pytest.mark.spec("FLOW-24")
def test_a_plan_is_no_chain(driver):
    """Only a run of code can go on as another."""
    run = driver.plan(task("A"), key="k")
    assert (driver.get(run).chain, driver.get(run).present) == (run, run)
