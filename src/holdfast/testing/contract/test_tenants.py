"""Tenants: a run writes only for its own tenant, and no verb guesses the tenant of a run."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.errors import UsageError
from holdfast.lifecycle import Move, StepStatus
from holdfast.records import ANY, NewEvent, NewRun, RunFilter

from .driver import TYPE, call, done
from .test_transact import refuses, send, work_of

ITEMS = ("event", "start", "child", "started child")


def item_of(driver, claim, what, tenant):
    """Return an item that brings something for a tenant."""
    move, steps, brings = Move.CHECKPOINT, (done("a"),), {}
    match what:
        case "event":
            brings = {"events": (NewEvent(topic="parcel", id="e1", tenant=tenant),)}
        case "start":
            move, brings = Move.COMPLETE, {"starts": (NewRun(id=driver.id(), type=TYPE, tenant=tenant),)}
        case "child":
            steps = (call("c", driver.id(), tenant=tenant),)
        case _:
            steps = (call("c", driver.id(), status=StepStatus.SUCCEEDED, tenant=tenant),)
    return driver.item(claim, move, *steps, **brings)


def seen(driver):
    return driver.everything(), {run.id for run in driver.run(driver.store.list(RunFilter(tenant=ANY)))}


@pytest.mark.spec("TEN-6")
@pytest.mark.parametrize("what", ITEMS)
@pytest.mark.parametrize("other", ["default", "beta", "b" * 80])
def test_a_commit_brings_nothing_for_another_tenant(driver, what, other):
    """Every store refuses the whole item with the same words; the run stays leased."""
    claim, neighbour = driver.held(tenant="acme"), driver.held()
    before = seen(driver)
    with pytest.raises(UsageError) as refused:
        driver.send(driver.item(neighbour, Move.CHECKPOINT, done("n")), item_of(driver, claim, what, other))
    shown = f"'{other}'" if len(other) <= 60 else f"'{other[:60]}'…"
    assert str(refused.value) == (
        f"run {claim.id} cannot start a run or send an event for tenant {shown}: only for its own tenant"
    )
    assert seen(driver) == before
    assert driver.steps(neighbour.id) == []
    assert driver.complete(claim).answer == "applied"


@pytest.mark.spec("TEN-6")
@pytest.mark.parametrize("what", ITEMS)
def test_a_commit_writes_for_its_runs_own_tenant(driver, what):
    """This holds for every tenant; a repeat gets the first answer."""
    claim = driver.held(tenant="acme")
    item = item_of(driver, claim, what, "acme")
    assert [driver.send(item)[0].answer, driver.send(item)[0].answer] == ["applied", "applied"]
    found = {run.tenant for run in driver.run(driver.store.list(RunFilter(tenant=ANY)))}
    assert found == {"acme"}


@pytest.mark.spec("TEN-6")
def test_an_item_without_the_lease_is_lost_whatever_tenant_it_names(driver):
    """A guess does not show the tenant of the run."""
    claim = driver.held(tenant="acme")
    item = item_of(driver, claim, "event", "beta")
    driver.cancel(claim.id)
    assert driver.send(item)[0].answer == "cancelled"


@pytest.mark.spec("TEN-6")
def test_a_transaction_brings_nothing_for_another_tenant(driver):
    """The effects that its function added are checked too, and nothing of them stays."""
    if refuses(driver):
        return
    claim = driver.held(tenant="acme")
    before = driver.snapshot(claim.id)
    work = work_of(driver, claim, events=(NewEvent(topic="parcel", id="e1", tenant="beta"),))
    with pytest.raises(UsageError, match="only for its own tenant"):
        send(driver, work)
    assert driver.snapshot(claim.id) == before
    own = msgspec.structs.replace(work.item, number=work.item.number + 1)
    work = work_of(driver, claim, events=(NewEvent(topic="parcel", id="e1", tenant="acme"),))
    work.item = own
    assert send(driver, work).answer == "applied"


VERBS = {
    "get": (), "steps": (), "held_back": (), "cancel": (), "pause": (), "resume": (), "rewind": ("first",),
    "retry_run": (), "set_priority": (5,), "append_step": ("NEW",), "delete": (), "restore": (), "trail": (),
}  # fmt: skip


@pytest.mark.spec("TEN-5")
@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_on_one_run_needs_a_tenant(driver, verb):
    """None is refused: a caller that means all tenants says ANY."""
    run = driver.start()
    before, call = driver.snapshot(run), getattr(driver.store, verb)
    with pytest.raises(TypeError, match="tenant"):
        driver.run(call(run, *VERBS[verb]))
    with pytest.raises(UsageError, match="tenant is None: name a tenant, or give ANY for all tenants"):
        driver.run(call(run, *VERBS[verb], None))
    assert driver.snapshot(run) == before


@pytest.mark.spec("TEN-5")
def test_what_holds_back_a_run_is_told_to_its_own_tenant(driver):
    run = driver.start(tenant="acme")
    driver.run(driver.store.register(TYPE, enabled=False))
    told = [bool(driver.run(driver.store.held_back(run, tenant))) for tenant in (ANY, "acme", "beta")]
    assert told == [True, True, False]
