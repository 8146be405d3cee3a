"""Tenants: what a run writes is its own tenant's, and no verb guesses whose run is meant."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.errors import UsageError
from holdfast.lifecycle import Move, StepStatus
from holdfast.records import ANY, NewEvent, NewRun, RunFilter

from .hand import TYPE, call, done
from .test_transact import refuses, send, work_of

ITEMS = ("event", "start", "child", "started child")


def item_of(hand, claim, what, tenant):
    """An item that brings something for a tenant."""
    move, steps, brings = Move.CHECKPOINT, (done("a"),), {}
    match what:
        case "event":
            brings = {"events": (NewEvent(topic="parcel", id="e1", tenant=tenant),)}
        case "start":
            move, brings = Move.COMPLETE, {"starts": (NewRun(id=hand.id(), type=TYPE, tenant=tenant),)}
        case "child":
            steps = (call("c", hand.id(), tenant=tenant),)
        case _:
            steps = (call("c", hand.id(), status=StepStatus.SUCCEEDED, tenant=tenant),)
    return hand.item(claim, move, *steps, **brings)


def seen(hand):
    return hand.everything(), {run.id for run in hand.run(hand.store.list(RunFilter(tenant=ANY)))}


@pytest.mark.spec("TEN-6")
@pytest.mark.parametrize("what", ITEMS)
@pytest.mark.parametrize("other", ["default", "beta", "b" * 80])
def test_a_commit_brings_nothing_for_another_tenant(hand, what, other):
    """It is refused in the same words by every store, with all that came with it; the run stays held."""
    claim, neighbour = hand.held(tenant="acme"), hand.held()
    before = seen(hand)
    with pytest.raises(UsageError) as refused:
        hand.send(hand.item(neighbour, Move.CHECKPOINT, done("n")), item_of(hand, claim, what, other))
    shown = f"'{other}'" if len(other) <= 60 else f"'{other[:60]}'…"
    assert str(refused.value) == (
        f"run {claim.id} cannot start a run or send an event for tenant {shown}: only for its own tenant"
    )
    assert seen(hand) == before
    assert hand.steps(neighbour.id) == []
    assert hand.complete(claim).answer == "applied"


@pytest.mark.spec("TEN-6")
@pytest.mark.parametrize("what", ITEMS)
def test_a_commit_brings_what_is_of_its_runs_own_tenant(hand, what):
    """Whatever the tenant is; the same item again is answered as before."""
    claim = hand.held(tenant="acme")
    item = item_of(hand, claim, what, "acme")
    assert [hand.send(item)[0].answer, hand.send(item)[0].answer] == ["applied", "applied"]
    found = {run.tenant for run in hand.run(hand.store.list(RunFilter(tenant=ANY)))}
    assert found == {"acme"}


@pytest.mark.spec("TEN-6")
def test_an_item_of_one_who_has_lost_the_run_is_lost_whatever_it_names(hand):
    """A guess learns nothing of whose run it is."""
    claim = hand.held(tenant="acme")
    item = item_of(hand, claim, "event", "beta")
    hand.cancel(claim.id)
    assert hand.send(item)[0].answer == "cancelled"


@pytest.mark.spec("TEN-6")
def test_a_transaction_brings_nothing_for_another_tenant(hand):
    """What its function has added is looked at too, and nothing of it stays."""
    if refuses(hand):
        return
    claim = hand.held(tenant="acme")
    before = hand.snapshot(claim.id)
    work = work_of(hand, claim, events=(NewEvent(topic="parcel", id="e1", tenant="beta"),))
    with pytest.raises(UsageError, match="only for its own tenant"):
        send(hand, work)
    assert hand.snapshot(claim.id) == before
    own = msgspec.structs.replace(work.item, number=work.item.number + 1)
    work = work_of(hand, claim, events=(NewEvent(topic="parcel", id="e1", tenant="acme"),))
    work.item = own
    assert send(hand, work).answer == "applied"


VERBS = {
    "get": (), "steps": (), "held_back": (), "cancel": (), "pause": (), "resume": (), "rewind": ("first",),
    "retry_run": (), "set_priority": (5,), "append_step": ("NEW",), "delete": (), "restore": (), "trail": (),
}  # fmt: skip


@pytest.mark.spec("TEN-5")
@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_on_one_run_asks_whose_run_is_meant(hand, verb):
    """No tenant is no answer, and None is none: whoever means all says ANY."""
    run = hand.start()
    before, call = hand.snapshot(run), getattr(hand.store, verb)
    with pytest.raises(TypeError, match="tenant"):
        hand.run(call(run, *VERBS[verb]))
    with pytest.raises(UsageError, match="tenant is None: name a tenant, or say ANY where all are meant"):
        hand.run(call(run, *VERBS[verb], None))
    assert hand.snapshot(run) == before


@pytest.mark.spec("TEN-5")
def test_what_holds_back_a_run_is_told_to_its_own_tenant(hand):
    run = hand.start(tenant="acme")
    hand.run(hand.store.register(TYPE, enabled=False))
    told = [bool(hand.run(hand.store.held_back(run, tenant))) for tenant in (ANY, "acme", "beta")]
    assert told == [True, True, False]
