"""The trace of whoever starts a run comes with every claim of it, and is never looked into."""

from __future__ import annotations

import pytest

from holdfast.errors import UsageError
from holdfast.records import NewRun

from .hand import TYPE, call, done, noise, task

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def test_a_claim_brings_the_trace_of_the_start(hand):
    """Each run its own, those without one an empty text; also where limits decide what is claimed."""
    runs = {hand.start(trace=TRACE): TRACE, hand.start(): "", hand.start(trace='"{}"é'): '"{}"é'}
    assert {one.id: one.trace for one in hand.claim(limit=2)} == dict(list(runs.items())[:2])
    hand.run(hand.store.limit("type", TYPE, concurrency=10))
    assert [one.trace for one in hand.claim()] == ['"{}"é']


def test_the_trace_stays_the_same_however_often_a_run_is_claimed(hand):
    """After steps, a release and a rewind."""
    claim = hand.held(trace=TRACE, labels='{"a":"b"}')
    hand.checkpoint(claim, done("A"))
    hand.release(claim)
    again = hand.take(claim.id)
    hand.rewind(claim.id, "A")
    assert (again.trace, hand.take(claim.id).trace) == (TRACE, TRACE)


def test_a_run_whose_values_are_unread_brings_its_trace(hand):
    """`load` reads values; the trace is none."""
    run = hand.start(trace=TRACE, params=noise(5_000))
    claim = hand.take(run, bytes=100)
    assert (claim.unread, claim.trace) == (True, TRACE)


def test_plans_children_and_keyed_starts_have_traces_too(hand):
    """Every way in which a run is started."""
    hand.publish(task("A"), type="shop.plan.v1")
    parent, child, later = hand.held(), hand.id(), hand.id()
    hand.complete(
        parent, call("kid", child, trace=TRACE), starts=(NewRun(id=later, type=TYPE, trace="later"),)
    )
    plan = hand.start("shop.plan.v1", trace=TRACE)
    keyed = hand.start(key="k", digest="d", trace="keyed")
    claims = hand.claim(types=(TYPE, "shop.plan.v1"))
    assert {one.id: one.trace for one in claims} == {
        child: TRACE, later: "later", plan: TRACE, keyed: "keyed"
    }  # fmt: skip


@pytest.mark.parametrize("trace", ["x" * 10_001, "a\0b", 7, None])
def test_a_trace_that_no_store_keeps_is_the_error_of_its_item(hand, trace):
    """At most 10,000 characters of text; the others are started."""
    runs = [NewRun(id=hand.id(), type=TYPE, trace=one) for one in (trace, "x" * 10_000)]
    refused, started = hand.start_many(runs)
    assert isinstance(refused, UsageError)
    assert hand.take(started.id).trace == "x" * 10_000
