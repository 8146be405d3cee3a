"""Chains: runs that went on as another are one run to the outside."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.errors import IllegalMove, KeyReused, UsageError
from holdfast.lifecycle import Move, Status
from holdfast.records import NewRun, RunFilter

from .chaining import chain, go_on, next_of
from .hand import EPOCH, TYPE, ask, call, done, task
from .timetable import HOUR, fire, made, seen

decode = msgspec.json.decode


@pytest.mark.spec("FLOW-24")
def test_each_run_is_shown_as_it_is_stored_with_its_chain_and_the_present_run(hand):
    alone = hand.get(hand.start(type="shop.x.v1"))
    assert (alone.chain, alone.present) == (alone.id, alone.id)
    ids, _ = chain(hand, 3)
    shown = [hand.get(run) for run in ids]
    assert [(run.id, run.chain, run.present) for run in shown] == [(run, ids[0], ids[2]) for run in ids]
    assert [run.status for run in shown] == ["succeeded", "succeeded", "leased"]
    assert shown[0].result == {"continued_as": str(ids[1])}
    listed = {run.id: (run.chain, run.present) for run in hand.run(hand.store.list(RunFilter(type=TYPE)))}
    assert listed == dict.fromkeys(ids, (ids[0], ids[2]))
    for run in ids:
        hand.assert_replayed(run)


@pytest.mark.spec("FLOW-24")
def test_only_a_run_that_says_so_goes_on_as_another(hand):
    """A run that a commit starts beside its end is no part of a chain; nor is one of another type."""
    claim, other, apart = hand.held(), hand.id(), hand.id()
    hand.complete(claim, starts=(
        NewRun(id=other, type=TYPE), NewRun(id=apart, type="shop.x.v1", follows=claim.id),
    ))  # fmt: skip
    assert [hand.get(run).chain for run in (claim.id, other, apart)] == [claim.id, other, apart]
    assert hand.get(claim.id).present == claim.id


@pytest.mark.spec("FLOW-24")
def test_nobody_goes_on_as_another_but_by_its_own_complete(hand):
    claim, other = hand.held(), hand.held()
    with pytest.raises(UsageError, match="follows"):
        hand.start(follows=claim.id)
    before = hand.everything()
    with pytest.raises(UsageError, match="follows"):
        hand.complete(claim, starts=(NewRun(id=hand.id(), type=TYPE, follows=other.id),))
    assert hand.everything() == before


@pytest.mark.spec("FLOW-24")
def test_a_run_goes_on_as_one_other(hand):
    claim = hand.held()
    before = hand.everything()
    with pytest.raises(UsageError, match="several runs follow"):
        hand.complete(claim, starts=(next_of(hand, claim), next_of(hand, claim)))
    assert hand.everything() == before


@pytest.mark.spec("FLOW-24")
def test_the_same_item_again_makes_the_chain_no_longer(hand):
    claim = hand.held()
    item = hand.item(claim, Move.COMPLETE, starts=(next_of(hand, claim),))
    first = hand.send(item)
    before = hand.everything()
    assert hand.send(item) == first
    assert hand.everything() == before
    present = hand.get(claim.id).present
    hand.complete(hand.take(present))
    assert (hand.send(item), hand.get(claim.id).present) == (first, present)


@pytest.mark.spec("FLOW-24")
def test_the_first_run_keeps_the_key(hand):
    """A start with it answers the first id, however long the chain is; another call is refused."""
    ids, _ = chain(hand, 3, key="k", digest="d")
    assert [hand.get(run).key for run in ids] == ["k", None, None]
    new = NewRun(id=hand.id(), type=TYPE, key="k", digest="d")
    (answer,) = hand.start_many([new])
    assert (answer.id, answer.created) == (ids[0], False)
    (refusal,) = hand.start_many([msgspec.structs.replace(new, digest="other")])
    assert (type(refusal), refusal.run_id) == (KeyReused, ids[0])


@pytest.mark.spec("FLOW-24")
@pytest.mark.parametrize("by", [0, 1, 2])
def test_cancel_pause_and_resume_by_any_id_act_on_the_present_run(hand, by):
    ids, claim = chain(hand, 3)
    assert hand.pause(ids[by], by="ann").id == ids[2]
    assert hand.get(ids[2]).pause_asked_by == "ann"
    assert hand.resume(ids[by]).pause_asked_by is None
    assert hand.cancel(ids[by], by="ann").id == ids[2]
    assert [hand.status(run) for run in ids] == ["succeeded", "succeeded", "cancelled"]
    assert hand.checkpoint(claim).answer == "cancelled"
    assert hand.cancel(ids[by]).status is Status.CANCELLED
    with pytest.raises(IllegalMove) as refusal:
        hand.pause(ids[by])
    assert (refusal.value.run_id, refusal.value.status) == (ids[2], Status.CANCELLED)


@pytest.mark.spec("FLOW-24")
@pytest.mark.parametrize("by", [0, 1, 2])
def test_approve_and_reject_by_any_id_decide_the_gate_of_the_present_run(hand, by):
    ids, claim = chain(hand, 3)
    hand.park(claim, ask("gate"), known=0)
    decided = hand.approve(ids[by], by="ann")
    assert (decided.run.id, decided.step, decided.repeated) == (ids[2], "gate", False)
    assert hand.status(ids[2]) is Status.PENDING
    assert hand.approve(ids[by], "gate").repeated


@pytest.mark.spec("FLOW-24")
def test_a_pause_that_was_asked_for_holds_for_the_next_run(hand):
    """It is there, paused by the same person, and goes on when it is resumed."""
    claim = hand.held()
    hand.pause(claim.id, by="ann")
    run = go_on(hand, claim)
    assert (hand.status(claim.id), hand.status(run)) == (Status.SUCCEEDED, Status.PAUSED)
    assert (hand.told(run), hand.last(run, "paused")) == (["created", "paused"], {"by": "ann"})
    assert hand.claim() == []
    hand.assert_replayed(run)
    assert hand.resume(claim.id).id == run
    hand.take(run)


@pytest.mark.spec("FLOW-24")
def test_a_priority_that_was_given_meanwhile_holds_for_the_next_run(hand):
    """Its holder has read another one before."""
    claim = hand.held(priority=50)
    new = next_of(hand, claim, priority=50)
    hand.set_priority(claim.id, 9, by="ann")
    hand.complete(claim, starts=(new,))
    assert hand.get(new.id).priority == 9


@pytest.mark.spec("FLOW-24")
def test_what_was_spent_goes_along_and_a_budget_that_is_reached_pauses_the_next_run(hand):
    claim = hand.held(budget=10)
    run = go_on(hand, claim, done("a", cost=6), budget=10)
    assert (hand.get(claim.id).cost_units, hand.get(run).cost_units) == (6, 6)
    last = go_on(hand, hand.take(run), done("a", cost=4), budget=10)
    shown = hand.get(last)
    assert (shown.status, shown.cost_units, shown.budget_units) == (Status.PAUSED, 10, 10)
    assert hand.last(last, "paused") == {"by": "budget"}
    assert hand.resume(claim.id).status is Status.PENDING


@pytest.mark.spec("FLOW-24")
@pytest.mark.parametrize("how", ["rewind", "retry"])
def test_rewind_and_retry_of_an_earlier_run_are_refused_and_name_the_present_one(hand, how):
    claim = hand.held()
    run = go_on(hand, claim, done("a"))
    hand.fail(hand.take(run), done("b"), step="b")
    before = hand.everything()
    with pytest.raises(IllegalMove, match=str(run)):
        hand.rewind(claim.id, "a") if how == "rewind" else hand.retry_run(claim.id)
    assert hand.everything() == before
    again = hand.rewind(run, "b") if how == "rewind" else hand.retry_run(run)
    assert (again.id, again.status) == (run, Status.PENDING)


@pytest.mark.spec("FLOW-24")
def test_a_parent_waits_for_the_end_of_its_childs_chain(hand):
    parent, child = hand.held(), hand.id()
    hand.park(parent, call("c", child), known=0)
    claim = hand.take(child)
    run = go_on(hand, claim, parent=parent.id, parent_step="c")
    assert (hand.deliver(), hand.status(parent.id)) == (0, Status.WAITING)
    hand.complete(hand.take(run), result="7")
    assert hand.deliver() == 1
    said = decode(hand.step(parent.id, "c").output)
    assert (said["run"], said["result"]) == (str(run), 7)


@pytest.mark.spec("FLOW-24")
def test_a_childs_chain_is_cancelled_with_its_parent(hand):
    parent, child = hand.held(), hand.id()
    hand.park(parent, call("c", child), known=0)
    run = go_on(hand, hand.take(child), parent=parent.id, parent_step="c")
    hand.cancel(parent.id)
    assert (hand.status(child), hand.status(run)) == (Status.SUCCEEDED, Status.CANCELLED)


@pytest.mark.spec("FLOW-24", "SCHED-1")
def test_a_schedule_that_skips_does_not_start_a_second_chain(hand):
    """Its run is open until the chain has ended."""
    (run,) = fire(hand, made(hand), EPOCH + HOUR).started
    last = go_on(hand, hand.take(run))
    last = go_on(hand, hand.take(last))
    assert fire(hand, seen(hand), EPOCH + 2 * HOUR).skipped == 1
    assert fire(hand, seen(hand), EPOCH + 3 * HOUR).skipped == 1
    hand.complete(hand.take(last))
    assert fire(hand, seen(hand), EPOCH + 4 * HOUR).started


@pytest.mark.spec("FLOW-24")
def test_a_plan_is_no_chain(hand):
    """Only a run of code goes on as another."""
    run = hand.plan(task("A"), key="k")
    assert (hand.get(run).chain, hand.get(run).present) == (run, run)
