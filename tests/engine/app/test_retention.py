"""Retention of runs, and runs that are deleted while a worker executes them."""

from __future__ import annotations

import asyncio
import logging
from itertools import pairwise

import pytest

from holdfast import App, days, hours, minutes
from holdfast.engine.worker import keeper as keeping
from holdfast.engine.worker.keeper import Keeper
from holdfast.errors import Unavailable, UsageError
from holdfast.lifecycle import Status
from holdfast.records import ANY, Chore, Purged, Ticked
from tests.engine.kit import outcome, trail, until, working

ROUND = keeping.PURGE_FIRST_SECONDS + 2 * keeping.PURGE_SECONDS


def quick(app):
    @app.workflow("shop.quick.v1")
    async def quick(ctx, _):
        return "done"

    return quick


@pytest.mark.slow
@pytest.mark.spec("TTL-1", "OPS-1")
async def test_a_worker_removes_runs_when_their_ttl_after_the_end_has_passed(store, world):
    """The ttl of the app counts, or the run's own."""
    app = App(store, world=world, ttl=minutes(40))
    quick(app)
    async with working(app):
        usual, short = await app.start("shop.quick.v1"), await app.start("shop.quick.v1", ttl=minutes(10))
        for run in (usual, short):
            await until(app, run)
        await asyncio.sleep(10 * 60 - 1)
        assert await app.get(short.id) is not None
        await asyncio.sleep(ROUND)
        assert await app.get(short.id) is None
        await asyncio.sleep(30 * 60 - ROUND)
        assert await app.get(usual.id) is not None
        await asyncio.sleep(ROUND)
        assert await app.get(usual.id) is None


@pytest.mark.spec("TTL-1")
async def test_runs_are_kept_for_thirty_days_by_default(app):
    """Thirty days is the default. A worker without a keeper removes nothing."""
    quick(app)
    async with working(app, keeper=False):
        run = await app.start("shop.quick.v1")
        await until(app, run)
    keeper = Keeper(app.store)
    await asyncio.sleep(days(30).total_seconds() - 1)
    assert await keeper.purge() == 0
    await asyncio.sleep(1)
    async with working(app, keeper=False):
        await asyncio.sleep(ROUND)
    assert await keeper.purge() == 1


@pytest.mark.slow
async def test_a_worker_does_not_purge_as_soon_as_it_starts(store, world):
    """Workers that were started together do not all purge at the same time either."""
    calls = []
    app = App(WatchedStore(store, world, calls), world=world)
    begun = world.monotonic()
    async with working(app), working(app), working(app):
        await asyncio.sleep(ROUND)
    firsts = sorted(at - begun for at in calls)[:3]
    assert firsts[0] >= keeping.PURGE_FIRST_SECONDS
    assert len(set(firsts)) == 3


class WatchedStore:
    """A store that records the times of purge calls, and gives the answers of the test."""

    def __init__(self, store, world, calls, answers=()):
        self._store, self._world, self._calls, self._answers = store, world, calls, list(answers)

    def __getattr__(self, name):
        return getattr(self._store, name)

    async def purge(self, **terms):
        self._calls.append(self._world.monotonic())
        answer = self._answers.pop(0) if self._answers else Purged()
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.mark.spec("TTL-1")
async def test_a_purge_pauses_between_slices_so_that_others_can_write(store, world):
    """The keeper pauses after each slice."""
    calls = []
    keeper = Keeper(WatchedStore(store, world, calls, [Purged(runs=100), Purged(runs=100), Purged(runs=1)]))
    assert await keeper.purge() == 201
    pauses = [later - sooner for sooner, later in pairwise(calls)]
    assert len(pauses) == 3
    assert min(pauses) == pytest.approx(keeping.PURGE_PAUSE_SECONDS)


async def test_a_failed_purge_is_retried_in_the_next_round(store, world, caplog):
    """The keeper logs a warning and continues."""
    calls = []
    app = App(WatchedStore(store, world, calls, [Unavailable("the disk is gone")]), world=world)
    with caplog.at_level(logging.WARNING, "holdfast.keeper"):
        async with working(app):
            await asyncio.sleep(ROUND + keeping.PURGE_SECONDS)
    assert "cannot purge now" in caplog.text
    assert len(calls) >= 2


def test_a_negative_ttl_is_refused():
    """The refusal names the option, before anything starts."""
    with pytest.raises(UsageError, match="ttl is -1 s"):
        App("memory://", ttl=-1)


@pytest.mark.spec("FLOW-21", "TTL-1")
async def test_continue_as_passes_the_ttl_on_to_the_next_run(app):
    """The next run is kept as long."""

    @app.workflow("shop.loop.v1")
    async def loop(ctx, left):
        if left:
            ctx.continue_as(left - 1)

    async with working(app):
        first = await app.start("shop.loop.v1", 1, ttl=hours(2))
        ended = await until(app, first)
        (following,) = [run for run in await app.list() if run.id != first.id]
    assert ended.ttl_seconds == following.ttl_seconds == hours(2).total_seconds()


@pytest.mark.spec("DEL-1", "LEASE-4")
async def test_a_run_deleted_during_execution_is_lost_and_continues_when_restored(app):
    """The worker's work since the deletion is lost. Recorded steps stay."""
    began, done = [], []

    async def slow():
        began.append(1)
        await asyncio.sleep(5)
        done.append(1)

    @app.workflow("shop.slow.v1")
    async def work(ctx, _):
        await ctx.step("first", str)
        await ctx.step("slow", slow)
        return "done"

    async with working(app):
        run = await app.start("shop.slow.v1")
        await until(app, run, Status.LEASED)
        while not began:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await app.store.delete(run.id, ANY)
        await asyncio.sleep(60)
        assert await app.get(run.id) is None
        await app.store.restore(run.id, ANY)
        assert [step.key for step in await app.steps(run.id)] == ["first"]
        assert await outcome(app, run) == ("succeeded", "done")
    assert len(began) == 2
    assert (await trail(app, run)).count("deleted") == 1


@pytest.mark.spec("DEL-1", "FLOW-21")
async def test_a_run_that_is_deleted_before_continue_as_starts_no_next_run(app):
    """The worker has lost the run, so it starts no second run."""

    @app.workflow("shop.loop.v1")
    async def loop(ctx, left):
        if left:
            await app.store.delete(ctx.run_id, ANY)
            ctx.continue_as(left - 1)
        return "end"

    async with working(app):
        run = await app.start("shop.loop.v1", 1)
        await asyncio.sleep(60)
        assert await app.list() == []
        assert (await app.store.restore(run.id, ANY)).status is Status.PENDING


@pytest.mark.spec("OPS-1")
async def test_a_tick_ends_even_if_the_store_always_reports_more(app):
    """A chore that moves nothing is left to the next call. A chore that moves something is finished."""
    rounds = []

    async def tick(*, only, **_):
        rounds.append(only)
        moved = only is Chore.LAPSE and rounds.count(only) <= 2 * keeping.IDLE_ROUNDS
        return Ticked(lapsed=int(moved), more=moved or only is Chore.DELIVER)

    async with working(app, keeper=False):
        app.store.tick = tick
        done = await Keeper(app.store).tick()
    assert (done.lapsed, done.more) == (2 * keeping.IDLE_ROUNDS, True)
    assert rounds.count(Chore.DELIVER) == 1 + keeping.IDLE_ROUNDS
