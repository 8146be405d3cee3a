"""The registry: which runtime executes a type, and whether it is executed at all."""

from __future__ import annotations

import pytest

from holdfast.lifecycle import Status
from holdfast.records import ANY, Hold, Presence, moment

from .hand import TYPE


def register(hand, name=TYPE, **fields):
    return hand.run(hand.store.register(name, **fields))


def unregister(hand, name=TYPE):
    return hand.run(hand.store.unregister(name))


def held_back(hand, run, *runtime):
    return hand.run(hand.store.held_back(run, ANY, *runtime))


@pytest.mark.spec("REG-1")
def test_an_entry_begins_with_defaults_and_keeps_what_is_not_said_again(hand):
    """python, enabled, no description, workflow; created_at stays, updated_at is the last change."""
    made = register(hand)
    begun = moment(hand.clock.now)
    assert (made.workflow_name, made.runtime, made.is_enabled) == (TYPE, "python", True)
    assert (made.description, made.intent_type) == ("", "workflow")
    assert (made.created_at, made.updated_at) == (begun, begun)
    hand.clock.turn(5)
    register(hand, runtime="go", description="orders", intent_type="command")
    changed = register(hand, enabled=False)
    assert (changed.runtime, changed.is_enabled, changed.description) == ("go", False, "orders")
    assert (changed.intent_type, changed.created_at) == ("command", begun)
    assert changed.updated_at == moment(hand.clock.now)
    other = register(hand, "a.b.v1")
    assert hand.run(hand.store.registry()) == [other, changed]


@pytest.mark.spec("REG-1")
def test_a_type_without_an_entry_is_open_to_any_runtime(hand):
    """Also after its entry was removed; removing it again tells that there was none."""
    register(hand, "other.type.v1", enabled=False)
    run = hand.start()
    assert hand.take(run, runtime="go").attempt == 1
    register(hand, enabled=False)
    second = hand.start()
    assert hand.claim() == []
    assert (unregister(hand), unregister(hand)) == (True, False)
    hand.take(second)
    assert unregister(hand, "other.type.v1")
    assert hand.run(hand.store.registry()) == []


@pytest.mark.spec("REG-2", "LEASE-12")
def test_a_disabled_type_is_not_claimed_and_not_failed_and_nobody_hurries(hand):
    """Its runs stay as they are, burn no attempt, and no claim is due for them until it is enabled."""
    register(hand, enabled=False)
    run, other = hand.start(), hand.start("other.type.v1")
    before = hand.snapshot(run)
    types = (TYPE, "other.type.v1")
    assert [claim.id for claim in hand.claim(types=types)] == [other]
    assert hand.claim() == []
    assert hand.due().claim_at is None
    hand.clock.turn(3600)
    hand.tick()
    assert hand.snapshot(run) == before
    assert held_back(hand, run) == (Hold(why="disabled", name=TYPE, rule=TYPE),)
    register(hand, enabled=True)
    assert hand.due().claim_at == before[0].run_at.timestamp() * 1e6
    assert held_back(hand, run) == ()
    hand.take(run)
    assert held_back(hand, run) == ()


@pytest.mark.spec("REG-2", "LEASE-12")
def test_switching_the_runtime_moves_unclaimed_runs_and_a_leased_one_ends_where_it_is(hand):
    """No producer changes anything: the next claim of the other runtime finds them."""
    leased, left = hand.held(), hand.start()
    register(hand, runtime="go")
    assert hand.claim() == []
    assert hand.due().claim_at is None
    assert hand.due(runtime="go").claim_at is not None
    assert held_back(hand, left) == (Hold(why="runtime", name=TYPE, rule=TYPE, runtime="go"),)
    assert held_back(hand, left, "go") == ()
    assert hand.checkpoint(leased).answer == "applied"
    assert hand.complete(leased).status is Status.SUCCEEDED
    assert hand.take(left, runtime="go").attempt == 1


@pytest.mark.spec("REG-1")
def test_a_bare_name_speaks_for_all_versions_that_have_no_entry_of_their_own(hand):
    """`shop.order` for shop.order.v1 and v2; the full type comes first."""
    register(hand, "shop.order", enabled=False)
    register(hand, "shop.order.v2", enabled=True)
    first, second = hand.start("shop.order.v1"), hand.start("shop.order.v2")
    types = ("shop.order.v1", "shop.order.v2", "shop.orders.v1")
    others = hand.start("shop.orders.v1")
    assert {claim.id for claim in hand.claim(types=types)} == {second, others}
    assert held_back(hand, first) == (Hold(why="disabled", name="shop.order.v1", rule="shop.order"),)


@pytest.mark.spec("LEASE-12")
def test_what_the_registry_keeps_from_all_live_workers_is_seen_as_unclaimable(hand):
    """A worker that has the type, but not the runtime, cannot take it; of a disabled type nobody can."""
    hand.start()
    hand.run(hand.store.present(Presence(worker="w1", types=(TYPE,))))
    assert hand.stats().unclaimable == {}
    register(hand, runtime="go")
    assert hand.stats().unclaimable == {TYPE: 1}
    hand.run(hand.store.present(Presence(worker="w2", types=(TYPE,), runtime="go")))
    assert hand.stats().unclaimable == {}
    assert [worker.runtime for worker in hand.stats().workers] == ["python", "go"]
    register(hand, enabled=False)
    assert hand.stats().unclaimable == {TYPE: 1}


@pytest.mark.spec("LEASE-15")
def test_looking_for_what_the_registry_holds_back_writes_nothing(hand):
    """A claim that finds a disabled type only leaves everything as it was."""
    register(hand, enabled=False)
    run = hand.start()
    before = hand.everything(), hand.snapshot(run), hand.run(hand.store.registry())
    assert hand.claim() == []
    assert (hand.everything(), hand.snapshot(run), hand.run(hand.store.registry())) == before
