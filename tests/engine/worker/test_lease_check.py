"""The moves of people reach the worker that holds the run within a second; without hints, within a third
of the lease."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.engine.worker import lease_check
from holdfast.errors import Unavailable
from holdfast.lifecycle import Status
from holdfast.records import BEGINNING
from tests.engine.kit import until, working


class Watched:
    """A store that counts reads of leases. `deaf`: it gives no hints."""

    def __init__(self, store):
        self._store, self.reads, self.deaf, self.broken = store, 0, False, False

    def __getattr__(self, name):
        return getattr(self._store, name)

    def listen(self, hint, holders=None, changed=None):
        return (lambda: None) if self.deaf else self._store.listen(hint, holders)

    async def lease_states(self, leases):
        self.reads += 1
        if self.broken:
            raise Unavailable("not now")
        return await self._store.lease_states(leases)


@pytest.fixture
def store(store):
    return Watched(store)


def slow(app, ends, world):
    """Return a workflow with a step of an hour, which notes when it is interrupted."""

    async def charge():
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            ends.append(world.monotonic())
            raise

    @app.workflow("shop.slow.v1")
    async def order(ctx) -> None:
        await ctx.step("charge", charge)

    return order


MOVES = {
    "cancel": lambda app, run: app.cancel(run.id),
    "rewind": lambda app, run: app.rewind(run.id, BEGINNING),
    "delete": lambda app, run: app.delete(run.id),
}


async def seconds_to_reach(app, world, move, ends, order, before=5.0):
    run = await app.start(order)
    await asyncio.sleep(before)
    moved_at = world.monotonic()
    await MOVES[move](app, run)
    async with asyncio.timeout(60):
        while not ends:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return ends[0] - moved_at


@pytest.mark.spec("CANC-6", "CANC-2")
@pytest.mark.parametrize("move", MOVES)
async def test_the_step_of_a_leased_run_is_interrupted_within_a_second(app, world, move):
    ends = []
    order = slow(app, ends, world)
    async with working(app, slots=1):
        assert await seconds_to_reach(app, world, move, ends, order) < 0.5
        for run in await app.list():
            await app.cancel(run.id)


@pytest.mark.spec("CANC-6", "LEASE-8")
@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("lost", ["deaf", "broken"])
async def test_a_lost_hint_still_ends_within_a_third_of_the_lease(app, store, world, move, lost):
    """Also when the read after it fails."""
    setattr(store, lost, True)
    ends = []
    order = slow(app, ends, world)
    async with working(app, lease=30, poll=0.5, slots=1):
        took = await seconds_to_reach(app, world, move, ends, order)
        assert 0.5 < took <= 10.0
        for run in await app.list():
            await app.cancel(run.id)


@pytest.mark.spec("CANC-6")
async def test_a_pause_takes_effect_at_the_next_boundary_of_a_segment(app, store):
    """Nothing of a segment is committed before its end: without the hint, only a renewal would tell it."""
    done = []

    async def work(n):
        done.append(n)
        await asyncio.sleep(1)

    @app.workflow("shop.segment.v1", checkpoint="segment", refresh=3600)
    async def segment(ctx) -> None:
        for n in range(9):
            await ctx.step(f"s{n}", work, n)

    async with working(app, lease=3600):
        run = await app.start(segment)
        await asyncio.sleep(2.5)
        await app.pause(run.id)
        await until(app, run, Status.PAUSED, within=2)
    assert done == [0, 1, 2]


@pytest.mark.spec("CANC-6")
async def test_many_moves_make_at_most_five_reads_a_second(app, store, world):
    ends = []
    order = slow(app, ends, world)
    async with working(app, slots=100):
        runs = [await app.start(order) for _ in range(100)]
        await asyncio.sleep(1)
        store.reads = 0
        for run in runs:
            await app.cancel(run.id)
            await asyncio.sleep(0.05)
        await asyncio.sleep(1)
        assert len(ends) == 100
    assert 20 <= store.reads <= 5 / lease_check.CHECK_SECONDS + 2


@pytest.mark.spec("CANC-6")
async def test_a_move_during_a_read_is_not_missed(app, store, world):
    """The read may have come before it: another one follows."""
    ends, reading = [], asyncio.Event()
    order = slow(app, ends, world)
    inner = store._store.lease_states

    async def slowly(leases):
        states = await inner(leases)
        reading.set()
        await asyncio.sleep(0.3)
        return states

    store.__dict__["lease_states"] = slowly
    async with working(app):
        first, second = [await app.start(order) for _ in range(2)]
        await asyncio.sleep(1)
        await app.cancel(first.id)
        await reading.wait()
        await app.cancel(second.id)
        await asyncio.sleep(0.9)
        assert len(ends) == 2


@pytest.mark.spec("CANC-6", "LEASE-15")
async def test_a_worker_reads_its_leases_after_no_other_commit(app, store, world):
    """An idle worker does not read them at all."""

    @app.workflow("shop.quick.v1")
    async def quick(ctx) -> None:
        for n in range(5):
            await ctx.step(f"s{n}", asyncio.sleep, 0.5)

    ends = []
    order = slow(app, ends, world)
    async with working(app):
        held = await app.start(order)
        await asyncio.sleep(1)
        store.reads = 0
        for _ in range(5):
            await until(app, await app.start(quick))
        waiting = await app.start(quick, delay=3600)
        await app.pause(waiting.id)
        await app.cancel(waiting.id)
        await asyncio.sleep(1)
        assert store.reads == 0
        await app.cancel(held.id)
        await asyncio.sleep(1)
        reads = store.reads
        assert reads > 0
        await app.cancel((await app.start(quick, delay=3600)).id)
        await asyncio.sleep(1)
        assert store.reads == reads


@pytest.mark.spec("CANC-6", "LEASE-10")
async def test_a_cancel_in_the_grace_period_is_quick_too(app, world):
    ends = []
    order = slow(app, ends, world)
    async with working(app, grace=20) as worker:
        run = await app.start(order)
        await asyncio.sleep(1)
        stopping = asyncio.create_task(worker.stop())
        await asyncio.sleep(1)
        moved_at = world.monotonic()
        await app.cancel(run.id)
        await stopping
    assert ends[0] - moved_at < 0.5


@pytest.mark.spec("CANC-6")
async def test_a_cancel_between_a_claim_and_its_answer_reaches_the_run(app, store, world):
    """The run is leased in the store, and the worker does not hold it yet."""
    ends, committed, arrives = [], asyncio.Event(), asyncio.Event()

    async def claim(ask):
        found = await store._store.claim(ask)
        if found:
            committed.set()
            await arrives.wait()
        return found

    store.claim = claim
    run = await app.start(slow(app, ends, world))
    async with working(app):
        await committed.wait()
        await app.cancel(run.id)
        await asyncio.sleep(0.1)
        arrives.set()
        await asyncio.sleep(1)
        assert len(ends) == 1
