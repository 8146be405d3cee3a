"""The trace of a start comes with every claim of the run, and no store reads it."""

from __future__ import annotations

import pytest

from holdfast.errors import UsageError
from holdfast.records import NewRun

from .driver import TYPE, call, done, noise, task

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
