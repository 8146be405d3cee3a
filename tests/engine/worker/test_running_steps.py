"""Running steps: a step that has run for 2 s is shown, in one write for all runs of a worker."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

import holdfast as hf
from holdfast.errors import Unavailable
from holdfast.lifecycle import Status
from tests.engine.kit import process, trail, until, working


class Watched:
    """A store that counts the writes of running steps, and may refuse some."""

    def __init__(self, store):
        self._store, self.writes, self.refusals = store, [], 0

    def __getattr__(self, name):
        return getattr(self._store, name)

    async def show_running(self, worker, rows):
        self.writes.append([(row.run, [(one.step, one.attempt) for one in row.steps]) for row in rows])
        if self.refusals:
            self.refusals -= 1
            raise Unavailable("not now")
        return await self._store.show_running(worker, rows)


@pytest.fixture
def store(store):
    return Watched(store)


def names(run):
    return [(one.step, one.attempt) for one in run.running]


async def seen(app, run):
    """Return the running steps of a run: name and try."""
    return names(await app.get(run.id))


@pytest.mark.spec("LEASE-20")
async def test_a_step_is_shown_after_two_seconds_until_it_is_recorded(app, store):
    """With the time at which it began; before that nothing is written."""

    @app.workflow("shop.slow.v1")
    async def slow(ctx) -> None:
        await ctx.step("quick", asyncio.sleep, 1.5)
        await ctx.step("charge", asyncio.sleep, 8)
        await ctx.step("bill", asyncio.sleep, 1.9)

    async with working(app):
        run = await app.start(slow)
        began = (await app.get(run.id)).created_at + timedelta(seconds=1.5)
        await asyncio.sleep(3.4)
        assert store.writes == []
        await asyncio.sleep(0.6)
        assert await seen(app, run) == [("charge", 1)]
        shown = (await app.get(run.id)).running[0]
        assert abs(shown.started_at - began) < timedelta(seconds=0.1)
        await asyncio.sleep(5.3)
        assert await seen(app, run) == [("charge", 1)]
        await asyncio.sleep(0.5)
        assert await seen(app, run) == []
        await until(app, run)
    assert store.writes == [[(run.id, [("charge", 1)])]]


@pytest.mark.spec("LEASE-20")
async def test_short_steps_cost_nothing(app, store):
    @app.workflow("shop.short.v1")
    async def short(ctx) -> None:
        for n in range(20):
            await ctx.step(f"s{n}", asyncio.sleep, 1.9)

    async with working(app):
        await until(app, await app.start(short))
    assert store.writes == []


@pytest.mark.spec("LEASE-20")
async def test_all_runs_of_a_worker_share_one_write_at_most_every_two_seconds(app, store):
    """Each step is written once. A step that comes due right after a write waits for the next one."""

    @app.workflow("shop.slow.v1")
    async def slow(ctx, wait: float) -> None:
        await asyncio.sleep(wait)
        await ctx.step("charge", asyncio.sleep, 20)

    async with working(app):
        runs = [await app.start(slow, wait) for wait in (0.0, 0.0, 0.0, 0.5, 0.6)]
        await asyncio.sleep(3.9)
        assert [len(rows) for rows in store.writes] == [3]
        await asyncio.sleep(0.4)
        assert [len(rows) for rows in store.writes] == [3, 2]
        assert [await seen(app, run) for run in runs] == [[("charge", 1)]] * 5
        await asyncio.sleep(10)
    assert [len(rows) for rows in store.writes] == [3, 2]


@pytest.mark.spec("LEASE-20")
async def test_branches_are_shown_by_name_the_oldest_twenty(app, store):
    @app.workflow("shop.wide.v1")
    async def wide(ctx, count: int) -> None:
        await ctx.map("page", lambda n: asyncio.sleep(3 if n < 25 else 30), range(count), limit=count)

    async with working(app):
        run = await app.start(wide, 60)
        await asyncio.sleep(2.5)
        assert await seen(app, run) == [(f"page[{n}]", 1) for n in range(20)]
        await asyncio.sleep(2.5)
        assert await seen(app, run) == [(f"page[{n}]", 1) for n in range(25, 45)]


@pytest.mark.spec("LEASE-20")
async def test_a_retried_step_is_shown_with_its_try(app, store):
    tries = []

    async def charge():
        tries.append(1)
        await asyncio.sleep(3)
        if len(tries) == 1:
            raise OSError("down")

    @app.workflow("shop.slow.v1")
    async def slow(ctx) -> None:
        await ctx.step("charge", charge, retry=hf.Backoff.exponential(0.25, attempts=3, jitter=0.0))

    async with working(app):
        run = await app.start(slow)
        await asyncio.sleep(2.5)
        assert await seen(app, run) == [("charge", 1)]
        await asyncio.sleep(0.7)
        assert await seen(app, run) == []
        await asyncio.sleep(2.8)
        assert await seen(app, run) == [("charge", 2)]


@pytest.mark.spec("LEASE-20")
async def test_the_task_of_a_plan_is_shown(app, store):
    plan = app.plan("shop.ship.v1", [hf.Task("pack"), hf.Task("send")])

    @plan.task("pack")
    async def pack(task) -> None:
        await asyncio.sleep(5)

    @plan.task("send")
    async def send(task) -> None:
        await asyncio.sleep(5)

    async with working(app):
        run = await app.start(plan)
        await asyncio.sleep(3)
        assert await seen(app, run) == [("pack", 1)]
        await asyncio.sleep(5)
        assert await seen(app, run) == [("send", 1)]
        await until(app, run)


@pytest.mark.spec("LEASE-20", "TRAIL-1")
async def test_started_is_in_the_trail_after_two_seconds(app):
    """Not only with the first renewal, which comes after a third of the lease."""

    @app.workflow("shop.slow.v1")
    async def slow(ctx) -> None:
        await ctx.step("charge", asyncio.sleep, 20)

    async with working(app):
        run = await app.start(slow)
        await asyncio.sleep(1.5)
        assert "started" not in await trail(app, run)
        await asyncio.sleep(1)
        assert (await trail(app, run)).count("started") == 1
        await until(app, run)
        assert (await trail(app, run)).count("started") == 1


@pytest.mark.spec("LEASE-20")
async def test_a_write_that_failed_is_sent_again(app, store):
    store.refusals = 2

    @app.workflow("shop.slow.v1")
    async def slow(ctx) -> None:
        await ctx.step("charge", asyncio.sleep, 20)

    async with working(app):
        run = await app.start(slow)
        await asyncio.sleep(5)
        assert await seen(app, run) == []
        await asyncio.sleep(2)
        assert await seen(app, run) == [("charge", 1)]
    assert len(store.writes) == 3


@pytest.mark.spec("LEASE-20")
async def test_a_dead_workers_steps_are_shown_until_the_run_is_taken_from_it(app):
    """People see where it hangs. The next holder shows its own steps."""

    @app.workflow("shop.slow.v1")
    async def slow(ctx) -> None:
        await ctx.step("charge", asyncio.sleep, 50)

    first = await process(app, 1, keeper=False)
    run = await app.start(slow)
    await asyncio.sleep(5)
    first.kill()
    await asyncio.sleep(10)
    assert await seen(app, run) == [("charge", 1)]
    await asyncio.sleep(30)
    async with working(app):
        await until(app, run, Status.LEASED)
        await asyncio.sleep(0.1)
        assert await seen(app, run) == [] or (await app.get(run.id)).fence == 1
        await asyncio.sleep(4)
        assert await seen(app, run) == [("charge", 1)]
        await app.cancel(run.id)


@pytest.mark.spec("LEASE-20")
async def test_explain_names_the_running_step(app):
    @app.workflow("shop.slow.v1")
    async def slow(ctx) -> None:
        await ctx.step("charge", asyncio.sleep, 50)

    async with working(app):
        run = await app.start(slow)
        await asyncio.sleep(1)
        assert "executes it" in (await app.explain(run.id)).text
        await asyncio.sleep(7)
        why = await app.explain(run.id)
        assert "executes its step 'charge' since" in why.text
        assert "(8 s ago)" in why.text
        assert [one["step"] for one in why.data["running"]] == ["charge"]
        await app.cancel(run.id)
