"""A write is committed and its answer is lost: the caller learns the truth, or that it is unknown, but never
that the write has failed.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager

import pytest

from holdfast.errors import DuplicateRun, TooManyRuns, Unavailable
from holdfast.lifecycle import Status
from holdfast.records import ANY, Ask, Item, NewEvent, NewRun, Started
from holdfast.records.moves import PARK
from holdfast.testing.contract.driver import ask
from holdfast.world import RealWorld
from tests.stores.postgres.sessions.opened import opened
from verify.outages.lost_answers import Cutter
from verify.postgres_outages.proxy import proxy

IDS = RealWorld().uuid7


@pytest.fixture
def losing(postgres_database, tmp_path):
    """A store that loses the connection with the answer to the first call of a verb, and a count of that."""

    @asynccontextmanager
    async def losing(*verbs):
        cutter = Cutter(1, 1.0, random.Random(1), (True,), frozenset(verbs))
        async with opened(postgres_database.url):
            pass
        async with (
            proxy(postgres_database.dsn, tmp_path, cutter) as dsn,
            opened(f"{dsn}&allow_fsync_off=1") as store,
        ):
            yield store
        assert cutter.count == 1

    return losing


def new(**fields):
    return NewRun(id=IDS(), type="shop.order.v1", **fields)


@pytest.mark.parametrize("key", [None, "k"])
def test_a_start_is_told_of_its_own_run(losing, key):
    """The caller chose the id: a run with this id and the same fields is the run of this call."""

    async def scene():
        async with losing("start") as store:
            run = new(key=key, params='{"a": [1, 2]}')
            (answer,) = await store.start([run])
            assert isinstance(answer, Started)
            assert answer.id == run.id
            assert (await store.stats()).by_status[Status.PENDING] == 1

    asyncio.run(scene())


def test_an_id_that_another_has_is_a_duplicate_all_the_same(losing):
    async def scene():
        async with losing("start") as store:
            run = new(params="1")
            await store.start([run])
        async with losing("start_together") as store:
            other = NewRun(id=run.id, type="shop.order.v1", params="2")
            (answer, started) = await store.start([other, new()])
            assert isinstance(answer, DuplicateRun)
            assert started.created

    asyncio.run(scene())


@pytest.mark.spec("TEN-3")
@pytest.mark.parametrize("verb", ["start", "start_together"])
def test_a_start_that_took_the_last_place_is_told_of_its_own_run(losing, verb):
    """When it is sent again the limit is reached, by this run itself."""
    limit = {"api_key": "abc123def456", "open_runs_max": 1}

    async def scene():
        async with losing(verb) as store:
            runs = [new(**limit), new()][: 1 if verb == "start" else 2]
            answers = await store.start(runs)
            assert answers == [Started(run.id, created=True) for run in runs]
            (answer,) = await store.start([new(**limit)])
            assert isinstance(answer, TooManyRuns)

    asyncio.run(scene())


def test_what_is_refused_the_second_time_is_not_known(losing):
    """A run that was resumed cannot be resumed again: the caller must look whether it was."""

    async def scene():
        async with losing("resume") as store:
            run = new()
            await store.start([run])
            await store.pause(run.id, ANY)
            with pytest.raises(Unavailable, match="may have been carried out"):
                await store.resume(run.id, ANY)
            assert (await store.get(run.id, ANY)).status is Status.PENDING

    asyncio.run(scene())


@pytest.mark.spec("FLOW-24")
def test_a_decision_is_not_sent_again(losing):
    """By then the chain may have gone on to a run with a gate of the same name."""

    async def scene():
        async with losing("decide") as store:
            run = new()
            await store.start([run])
            (claim,) = await store.claim(Ask(worker="w", types=(run.type,), limit=1, lease_seconds=60))
            await store.commit([
                Item(run=run.id, fence=claim.fence, number=1, move=PARK, steps=(ask("gate"),), known=0)
            ])  # fmt: skip
            with pytest.raises(Unavailable, match="not sent again: it may have been carried out"):
                await store.decide(run.id, "gate", approved=True, tenant=ANY)
            assert [entry.type for entry in await store.trail(run.id, ANY)].count("approved") == 1
            assert (await store.decide(run.id, "gate", approved=True, tenant=ANY)).repeated

    asyncio.run(scene())


@pytest.mark.parametrize("verb", ["cancel", "pause"])
def test_what_may_be_done_twice_is_answered(losing, verb):
    async def scene():
        async with losing(verb) as store:
            run = new()
            await store.start([run])
            answer = await getattr(store, verb)(run.id, ANY)
            assert answer.status in {Status.CANCELLED, Status.PAUSED}

    asyncio.run(scene())


def test_an_event_is_there_once(losing):
    async def scene():
        async with losing("emit_at_once") as store:
            await store.emit(NewEvent(id="e", topic="t"))
            assert (await store.emit(NewEvent(id="e", topic="t"))).duplicate

    asyncio.run(scene())
