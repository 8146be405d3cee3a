"""The trace of a start comes with every claim of the run, a holder may replace it, and no store reads it."""

from __future__ import annotations

import pytest

from holdfast.errors import UsageError
from holdfast.records import NewRun, Outbound, RelayAsk

from .driver import TYPE, call, done, nap, noise, sleep, task

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def test_a_claim_brings_the_trace_of_the_start(driver):
    """Each run has its own, a run without one has an empty text; also under limits."""
    runs = {driver.start(trace=TRACE): TRACE, driver.start(): "", driver.start(trace='"{}"é'): '"{}"é'}
    assert {one.id: one.trace for one in driver.claim(limit=2)} == dict(list(runs.items())[:2])
    driver.run(driver.store.limit("type", TYPE, concurrency=10))
    assert [one.trace for one in driver.claim()] == ['"{}"é']


def test_the_trace_stays_the_same_however_often_a_run_is_claimed(driver):
    """It stays after steps, a release and a rewind."""
    claim = driver.held(trace=TRACE, labels='{"a":"b"}')
    driver.checkpoint(claim, done("A"))
    driver.release(claim)
    again = driver.take(claim.id)
    driver.rewind(claim.id, "A")
    assert (again.trace, driver.take(claim.id).trace) == (TRACE, TRACE)


def test_a_run_whose_values_are_unread_brings_its_trace(driver):
    """`load` reads values, and the trace is none of them."""
    run = driver.start(trace=TRACE, params=noise(5_000))
    claim = driver.take(run, bytes=100)
    assert (claim.unread, claim.trace) == (True, TRACE)


def test_plans_children_and_keyed_starts_have_traces_too(driver):
    """Every way to start a run keeps the trace."""
    driver.publish(task("A"), type="shop.plan.v1")
    parent, child, later = driver.held(), driver.id(), driver.id()
    driver.complete(
        parent, call("kid", child, trace=TRACE), starts=(NewRun(id=later, type=TYPE, trace="later"),)
    )
    plan = driver.start("shop.plan.v1", trace=TRACE)
    keyed = driver.start(key="k", digest="d", trace="keyed")
    claims = driver.claim(types=(TYPE, "shop.plan.v1"))
    assert {one.id: one.trace for one in claims} == {
        child: TRACE, later: "later", plan: TRACE, keyed: "keyed"
    }  # fmt: skip


@pytest.mark.parametrize("trace", ["x" * 10_001, "a\0b", 7, None])
def test_a_bad_trace_refuses_only_its_own_run(driver, trace):
    """It has at most 10,000 characters; the other runs are started."""
    runs = [NewRun(id=driver.id(), type=TYPE, trace=one) for one in (trace, "x" * 10_000)]
    refused, started = driver.start_many(runs)
    assert isinstance(refused, UsageError)
    assert driver.take(started.id).trace == "x" * 10_000


LATER = f"{TRACE} 00-4bf92f3577b34da6a3ce929d0e0e4736-1111111111111111-01 7"


@pytest.mark.spec("OPS-4")
def test_a_holder_that_lets_the_run_go_may_replace_its_trace(driver):
    """The item's trace counts when the item ends the lease and the run stays open."""
    claim = driver.held(trace=TRACE)
    driver.park(claim, sleep(seconds=5.0), trace=LATER)
    driver.clock.turn(6)
    driver.tick()
    parked = driver.take(claim.id)
    driver.retry(parked, delay=0.0, trace="retried")
    retried = driver.take(claim.id)
    driver.release(retried, trace="")
    released = driver.take(claim.id)
    driver.pause(claim.id)
    driver.checkpoint(released, done("A"), trace="paused")
    driver.resume(claim.id)
    assert [one.trace for one in (parked, retried, released, driver.take(claim.id))] == [
        LATER, "retried", "", "paused",
    ]  # fmt: skip


@pytest.mark.spec("OPS-4")
def test_a_plan_keeps_the_trace_of_the_holder_before_its_gate(driver):
    """An advance lets the run go when the next row is no task."""
    claim = driver.begun(task("A"), nap("rest", 5.0), task("B"), trace=TRACE)
    driver.advance(claim, trace=LATER, in_place=True)
    driver.clock.turn(6)
    driver.tick()
    again = driver.take(claim.id)
    driver.advance(again, "B", trace="last")
    assert (again.trace, driver.status(claim.id)) == (LATER, "succeeded")


@pytest.mark.spec("OPS-4")
def test_an_item_that_stays_leased_leaves_the_trace_as_it_is(driver):
    """The same holds for an item without a trace, for a retry in place, and for a holder that has lost the
    run.
    """
    claim = driver.held(trace=TRACE)
    driver.checkpoint(claim, done("A"), trace="stays")
    driver.retry(claim, delay=0.0, in_place=True, trace="stays")
    driver.release(claim)
    again = driver.take(claim.id)
    driver.release(claim, trace="late")
    driver.release(again)
    assert (again.trace, driver.take(claim.id).trace) == (TRACE, TRACE)


@pytest.mark.spec("OPS-4")
def test_a_message_brings_the_trace_of_its_run(driver):
    """It is the trace that the run has now; a run without one has an empty text."""
    claims = [driver.held(trace=TRACE), driver.held()]
    for number, claim in enumerate(claims):
        message = Outbound(id=f"m{number}", sink="mail")
        driver.commit(claim, "release", outbox=(message,), **({"trace": LATER} if number == 0 else {}))
    parcels = driver.run(driver.store.relay(RelayAsk(relay="r", sinks=("mail",))))
    assert {one.run: one.trace for one in parcels} == {claims[0].id: LATER, claims[1].id: ""}


@pytest.mark.parametrize("trace", ["x" * 10_001, "a\0b", 7])
def test_a_bad_trace_of_an_item_is_refused(driver, trace):
    """Nothing of the item is applied."""
    claim = driver.held(trace=TRACE)
    with pytest.raises(UsageError):
        driver.release(claim, trace=trace)
    driver.release(claim)
    assert driver.take(claim.id).trace == TRACE
