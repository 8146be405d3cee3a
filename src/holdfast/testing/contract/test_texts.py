"""Texts and values that some database could not keep: every store refuses them, and nothing changes."""

from __future__ import annotations

from uuid import UUID

import msgspec
import pytest

from holdfast.errors import UsageError
from holdfast.lifecycle import Move
from holdfast.records import (
    Ask,
    Chore,
    Lease,
    NewEvent,
    NewRun,
    NewSchedule,
    Outbound,
    OutboxFilter,
    RelayAsk,
    RunFilter,
    TrailWrite,
)

from .driver import LEASE, TYPE, ask, call, done
from .test_arguments import NEW, refused, unchanged

NO_TEXT = ["a\0b", "half \ud800"]
NO_JSON = ["", "{x", "NaN", "1 2", "[1,]", "\0", '"half \ud800"', '["\\ud800"', "[" * 100_000]


def items(bad):
    """Items with a text in each field of text."""
    return [
        (Move.CHECKPOINT, (done(bad),), {}),
        (Move.CHECKPOINT, (ask(digest=bad),), {}),
        (Move.RETRY, (), {"last_error": bad}),
        (Move.FAIL, (), {"kind": bad}),
        (Move.CHECKPOINT, (done("a"),), {"outbox": (Outbound(id=bad, sink="s"),)}),
        (Move.CHECKPOINT, (done("a"),), {"outbox": (Outbound(id="m", sink="s", step=bad),)}),
        (Move.CHECKPOINT, (done("a"),), {"events": (NewEvent(topic="t", id=bad),)}),
        (Move.CHECKPOINT, (done("a"),), {"trail": (TrailWrite(bad, "{}"),)}),
        (Move.COMPLETE, (done("a"),), {"starts": (NewRun(id=UUID(int=1), type=TYPE, digest=bad),)}),
        (Move.CHECKPOINT, (call("c", UUID(int=1), digest=bad),), {}),
    ]


def values(bad):
    """Items with JSON in each field of JSON."""
    return [
        (Move.CHECKPOINT, (done("a", bad),), {}),
        (Move.CHECKPOINT, (ask(ask=bad),), {}),
        (Move.COMPLETE, (), {"result": bad}),
        (Move.FAIL, (), {"error": bad}),
        (Move.CHECKPOINT, (done("a"),), {"progress": bad}),
        (Move.CHECKPOINT, (done("a"),), {"outbox": (Outbound(id="m", sink="s", payload=bad),)}),
        (Move.CHECKPOINT, (done("a"),), {"events": (NewEvent(topic="t", id="e", payload=bad),)}),
        (Move.CHECKPOINT, (done("a"),), {"trail": (TrailWrite("log", bad),)}),
        (Move.COMPLETE, (done("a"),), {"starts": (NewRun(id=UUID(int=1), type=TYPE, params=bad),)}),
        (Move.CHECKPOINT, (call("c", UUID(int=1), params=bad),), {}),
    ]


NUMBERS = [
    {"number": 2**31},
    {"number": -1},
    {"known": 2**31},
    {"known": 1.5},
    {"outbox": (Outbound(id="m" * 1001, sink="s"),)},
]


@pytest.mark.spec("START-10")
def test_an_item_with_a_text_a_value_or_a_number_that_no_store_can_keep_is_refused(driver):
    claim, other = driver.held(), driver.held()
    before = driver.everything()
    wrong = [
        *(one for bad in NO_TEXT for one in items(bad)),
        *(one for bad in NO_JSON for one in values(bad)),
        *((Move.CHECKPOINT, (done("a"),), fields) for fields in NUMBERS),
    ]
    for move, steps, fields in wrong:
        good = driver.item(other, Move.CHECKPOINT, done("good"))
        refused(driver, "commit", [good, driver.item(claim, move, *steps, **fields)])
    assert driver.everything() == before
    assert driver.steps(claim.id) == []


@pytest.mark.spec("START-10", "START-5")
def test_a_run_with_such_a_text_or_value_is_answered_by_its_error(driver):
    fields = [
        *({name: bad} for name in ("digest", "parent_step") for bad in NO_TEXT),
        *({name: bad} for name in ("params", "labels") for bad in NO_JSON),
        *({"labels": bad} for bad in ("[1]", '{"a":1}', "null", '"x"')),
    ]
    good = NewRun(id=driver.id(), type=TYPE)
    answers = driver.start_many([*(NewRun(id=driver.id(), type=TYPE, **one) for one in fields), good])
    assert [type(one) for one in answers[:-1]] == [UsageError] * len(fields)
    assert answers[-1].created
    assert [run.id for run in driver.run(driver.store.list(RunFilter(), 1000))] == [good.id]


@pytest.mark.spec("START-10")
def test_what_is_sought_is_text_too(driver):
    with unchanged(driver):
        for bad in NO_TEXT:
            refused(driver, "get", UUID(int=1), bad)
            refused(driver, "list", RunFilter(key=bad))
            refused(driver, "list", RunFilter(tenant=bad))
            refused(driver, "outbox", OutboxFilter(id=bad))
            refused(driver, "waiting_on", bad, "default")
            refused(driver, "trail", None, "default", [bad])
            refused(driver, "unschedule", bad, "default")
            refused(driver, "resend", bad, "default")


@pytest.mark.spec("START-10", "EVENT-1", "SCHED-1")
def test_an_event_and_a_schedule_with_a_value_that_is_no_json_are_refused(driver):
    with unchanged(driver):
        for bad in NO_JSON:
            refused(driver, "emit", NewEvent(topic="t", id="e", payload=bad))
            refused(driver, "schedule", NewSchedule(**{**NEW, "params": bad}))
        refused(driver, "schedule", NewSchedule(**{**NEW, "labels": "[1]"}))


@pytest.mark.spec("START-10", "LEASE-19")
def test_pages_begin_at_a_step_and_have_a_size(driver):
    claim = driver.held()
    lease = Lease(run=claim.id, fence=claim.fence)
    for after in (-2, 2**31, 1.5, True):
        refused(driver, "load", lease, after)
    for size in (2**70, 1.5, "1"):
        refused(driver, "load", lease, -1, size)
        refused(driver, "claim", Ask(worker="w", types=(TYPE,), limit=1, bytes=size))
        refused(driver, "relay", RelayAsk(relay="r", bytes=size))
    refused(driver, "load", Lease(run=claim.id, fence=2**63))
    assert driver.run(driver.store.load(lease, -1, -1)).answer == "applied"


@pytest.mark.spec("START-10", "LEASE-8")
def test_a_progress_that_is_no_json_stops_no_renewal(driver):
    """The progress is left out; the lease, and those of all other runs, are renewed."""
    one, two = driver.held(), driver.held()
    for bad in NO_JSON:
        leases = [Lease(run=one.id, fence=one.fence, progress=bad)]
        leases += [Lease(run=two.id, fence=two.fence, progress='{"n":1}')]
        assert [held.answer for held in driver.renew(*leases).held] == ["applied"] * 2
    assert driver.get(one.id).progress is None
    assert driver.get(two.id).progress is not None
    driver.clock.turn(LEASE - 1)
    assert driver.tick(only=Chore.EXPIRE).expired == 0
    with pytest.raises(UsageError):
        driver.renew(msgspec.structs.replace(leases[0], known=2**31))
