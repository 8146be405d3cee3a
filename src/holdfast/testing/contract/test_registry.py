"""The registry: which runtime executes a type, and whether the type is enabled."""

from __future__ import annotations

import pytest

from holdfast.lifecycle import Status
from holdfast.records import ANY, Hold, Presence, moment

from .driver import TYPE


def register(driver, name=TYPE, **fields):
    return driver.run(driver.store.register(name, **fields))


def unregister(driver, name=TYPE):
    return driver.run(driver.store.unregister(name))


def held_back(driver, run, *runtime):
    return driver.run(driver.store.held_back(run, ANY, *runtime))


@pytest.mark.spec("REG-1")
def test_an_entry_begins_with_defaults_and_keeps_what_is_not_said_again(driver):
    """The defaults are python, enabled, no description, workflow; created_at stays, updated_at is the last
    change.
    """
    made = register(driver)
    begun = moment(driver.clock.now)
    assert (made.workflow_name, made.runtime, made.is_enabled) == (TYPE, "python", True)
    assert (made.description, made.intent_type) == ("", "workflow")
    assert (made.created_at, made.updated_at) == (begun, begun)
    driver.clock.turn(5)
    register(driver, runtime="go", description="orders", intent_type="command")
    changed = register(driver, enabled=False)
    assert (changed.runtime, changed.is_enabled, changed.description) == ("go", False, "orders")
    assert (changed.intent_type, changed.created_at) == ("command", begun)
    assert changed.updated_at == moment(driver.clock.now)
    other = register(driver, "a.b.v1")
    assert driver.run(driver.store.registry()) == [other, changed]


@pytest.mark.spec("REG-1")
def test_a_type_without_an_entry_is_open_to_any_runtime(driver):
    """This holds also after its entry was removed; a second removal says that there was none."""
    register(driver, "other.type.v1", enabled=False)
    run = driver.start()
    assert driver.take(run, runtime="go").attempt == 1
    register(driver, enabled=False)
    second = driver.start()
    assert driver.claim() == []
    assert (unregister(driver), unregister(driver)) == (True, False)
    driver.take(second)
    assert unregister(driver, "other.type.v1")
    assert driver.run(driver.store.registry()) == []


@pytest.mark.spec("REG-2", "LEASE-12")
def test_a_disabled_type_is_neither_claimed_nor_failed_nor_due(driver):
    """Its runs stay as they are and use no attempt, until it is enabled."""
    register(driver, enabled=False)
    run, other = driver.start(), driver.start("other.type.v1")
    before = driver.snapshot(run)
    types = (TYPE, "other.type.v1")
    assert [claim.id for claim in driver.claim(types=types)] == [other]
    assert driver.claim() == []
    assert driver.due().claim_at is None
    driver.clock.turn(3600)
    driver.tick()
    assert driver.snapshot(run) == before
    assert held_back(driver, run) == (Hold(why="disabled", name=TYPE, rule=TYPE),)
    register(driver, enabled=True)
    assert driver.due().claim_at == before[0].run_at.timestamp() * 1e6
    assert held_back(driver, run) == ()
    driver.take(run)
    assert held_back(driver, run) == ()


@pytest.mark.spec("REG-2", "LEASE-12")
def test_switching_the_runtime_moves_unclaimed_runs_and_a_leased_one_ends_where_it_is(driver):
    """Producers change nothing: the next claim of the other runtime finds the runs."""
    leased, left = driver.held(), driver.start()
    register(driver, runtime="go")
    assert driver.claim() == []
    assert driver.due().claim_at is None
    assert driver.due(runtime="go").claim_at is not None
    assert held_back(driver, left) == (Hold(why="runtime", name=TYPE, rule=TYPE, runtime="go"),)
    assert held_back(driver, left, "go") == ()
    assert driver.checkpoint(leased).answer == "applied"
    assert driver.complete(leased).status is Status.SUCCEEDED
    assert driver.take(left, runtime="go").attempt == 1


@pytest.mark.spec("REG-1")
def test_a_name_without_version_counts_for_versions_without_an_entry(driver):
    """`shop.order` counts for shop.order.v1 and v2; an entry of the full type comes first."""
    register(driver, "shop.order", enabled=False)
    register(driver, "shop.order.v2", enabled=True)
    first, second = driver.start("shop.order.v1"), driver.start("shop.order.v2")
    types = ("shop.order.v1", "shop.order.v2", "shop.orders.v1")
    others = driver.start("shop.orders.v1")
    assert {claim.id for claim in driver.claim(types=types)} == {second, others}
    assert held_back(driver, first) == (Hold(why="disabled", name="shop.order.v1", rule="shop.order"),)


@pytest.mark.spec("LEASE-12")
def test_runs_that_no_live_worker_may_take_are_unclaimable(driver):
    """A worker with the type but another runtime cannot take them; nobody can take a disabled type."""
    driver.start()
    driver.run(driver.store.present(Presence(worker="w1", types=(TYPE,))))
    assert driver.stats().unclaimable == {}
    register(driver, runtime="go")
    assert driver.stats().unclaimable == {TYPE: 1}
    driver.run(driver.store.present(Presence(worker="w2", types=(TYPE,), runtime="go")))
    assert driver.stats().unclaimable == {}
    assert [worker.runtime for worker in driver.stats().workers] == ["python", "go"]
    register(driver, enabled=False)
    assert driver.stats().unclaimable == {TYPE: 1}


@pytest.mark.spec("LEASE-15")
def test_a_claim_that_finds_only_a_disabled_type_writes_nothing(driver):
    """Nothing changes."""
    register(driver, enabled=False)
    run = driver.start()
    before = driver.everything(), driver.snapshot(run), driver.run(driver.store.registry())
    assert driver.claim() == []
    assert (driver.everything(), driver.snapshot(run), driver.run(driver.store.registry())) == before
