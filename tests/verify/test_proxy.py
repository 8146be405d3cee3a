"""The proxy that drops answers: it reads the protocol, however the bytes are split."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace as changed

import pytest
from msgspec.structs import replace

from holdfast.errors import Unavailable
from holdfast.lifecycle import StepKind
from holdfast.records import NewRun, RunFilter
from holdfast.stores.postgres import PostgresStore
from holdfast.testing.crashes import Crash
from holdfast.testing.virtual import play
from holdfast.world import RealWorld
from verify.crashpoints.crashpoints import SCENARIOS, stores
from verify.crashpoints.simulation import ScenarioPlay
from verify.environment.ledger import Entry
from verify.outages.lost_answers import Cutter, refused_though_committed
from verify.postgres_outages.proxy import WRITES, Messages, SessionState, proxy


def message(letter, body):
    return letter + (len(body) + 4).to_bytes(4, "big") + body


PREPARED = message(b"P", b'stmt_1\0select "workflow".commit($1, $2)\0\0\0')
OTHER = message(b"P", b'stmt_2\0select "workflow".claim($1)\0\0\0')
CALLED = message(b"B", b"\0stmt_1\0\0\0")
OTHER_CALLED = message(b"B", b"\0stmt_2\0\0\0")


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
def test_messages_are_parsed_however_the_bytes_are_split(size):
    stream = PREPARED + CALLED + message(b"S", b"")
    messages, found = Messages(), []
    for at in range(0, len(stream), size):
        found += messages.feed(stream[at : at + size])
    assert [letter for letter, _ in found] == [b"P", b"B", b"S"]
    assert found[1][1] == b"\0stmt_1\0\0\0"


def test_a_session_knows_which_verb_is_called():
    """The verb is found by the name of its prepared statement."""
    session = SessionState()
    assert session.client_says(b"any greeting") == ""
    assert session.client_says(PREPARED + OTHER) == ""
    assert session.client_says(CALLED) == "commit"
    assert session.client_says(OTHER_CALLED) == "claim"
    assert session.client_says(CALLED[:6]) == ""
    assert session.client_says(CALLED[6:]) == "commit"


def test_an_answer_is_whole_when_the_server_is_ready_again():
    session, answer = SessionState(), message(b"D", b"row") + message(b"C", b"SELECT 1\0")
    assert not session.server_says(answer)
    assert session.server_says(message(b"Z", b"I"))


def test_only_writes_are_cut_and_only_so_many():
    cutter = Cutter(2, 1.0, random.Random(1), verbs=WRITES)
    assert not cutter.wants("claim")
    assert not cutter.wants("")
    closed = []
    while cutter.wants("commit"):
        closed.append(cutter.closes("commit"))
    assert closed == [False, True]
    assert (cutter.count, cutter.closed, cutter.silent) == (2, 1, 1)


@pytest.mark.slow
@pytest.mark.parametrize(("closes", "heard"), [(False, "nothing"), (True, "its run")])
def test_a_start_whose_answer_is_lost_has_happened(postgres_database, tmp_path, closes, heard):
    """Silent connection: the caller knows nothing. Closed connection: the store has asked again, and
    knows.
    """

    async def scenario():
        cutter = Cutter(1, 1.0, random.Random(1), (closes,), WRITES)
        new = NewRun(id=RealWorld().uuid7(), type="shop.lost.v1", key="k")
        async with proxy(postgres_database.dsn, tmp_path, cutter) as dsn:
            store = PostgresStore(f"{dsn}&allow_fsync_off=1")
            await store.open()
            store.call_seconds = 1.0
            try:
                (answer,) = await store.start([new])
                told = "its run" if answer.id == new.id else "another run"
            except Unavailable:
                told = "nothing"
            runs = [run.id for run in await store.list(RunFilter(), 10)]
            await store.close()
        return cutter.count, told, runs == [new.id]

    assert asyncio.run(scenario()) == (1, heard, True)


@pytest.fixture(scope="module")
def evidence():
    return play(lambda: ScenarioPlay(SCENARIOS["journey"], stores()["memory"], Crash()).play()).evidence


def test_a_committed_write_that_was_answered_as_refused_is_found(evidence):
    """Not when another worker has held the run since: then nothing can be said."""
    run, step = next(
        (run, step)
        for run in evidence.runs.values()
        for step in evidence.steps[run.id]
        if step.kind is StepKind.TASK and step.fence == run.fence
    )
    told = Entry(kind="refused", run=str(run.id), step="checkpoint", fence=step.fence, nonce=f"x {step.key}")
    forged = changed(evidence, entries=[*evidence.entries, told])
    assert list(refused_though_committed(evidence)) == []
    assert len(list(refused_though_committed(forged))) == 1
    later = changed(forged, runs={**forged.runs, run.id: replace(run, fence=run.fence + 1)})
    assert list(refused_though_committed(later)) == []


def test_a_session_knows_the_commit_of_a_transaction():
    session = SessionState()
    session.client_says(b"any greeting")
    assert session.client_says(message(b"Q", b"BEGIN;\0")) == "BEGIN"
    assert session.client_says(message(b"Q", b"COMMIT;\0")) == "COMMIT"
