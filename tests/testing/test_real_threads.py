"""Threads in a rehearsal: their answers are waited for in real time, and no virtual time passes meanwhile."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import UTC, datetime

import pytest

import holdfast as hf
from holdfast.stores.memory import MemoryStore
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing import Deadlock, play


async def blocked() -> int:
    await asyncio.to_thread(time.sleep, 0.05)  # real: a thread knows no other time
    return 5


@pytest.fixture
def blocking():
    app = hf.App("memory://")

    @app.workflow("a.block.v1")
    async def blocking(ctx: hf.Context) -> int:
        return await ctx.step("block", blocked, timeout=0.001)

    return blocking


@pytest.mark.spec("TEST-1")
def test_no_time_passes_while_a_step_waits_for_a_thread(rehearsal, blocking):
    """Not even a step with a limit of one millisecond times out."""
    stage = rehearsal(blocking)
    assert stage.start(blocking).status == "succeeded"
    assert stage.now == datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(params=["inline", "threads", "redis"])
def make_store(request, tmp_path):
    """Function of the clock that makes a store."""
    if request.param == "redis":
        url = request.getfixturevalue("redis_url")
        from holdfast.stores.redis import RedisStore

        return lambda clock: RedisStore(url, clock)
    inline, path = request.param == "inline", str(tmp_path / "stage.db")
    return lambda clock: SqliteStore(path, clock=clock, inline=inline)


def test_a_store_with_threads_or_a_server_of_its_own_can_be_given(rehearsal, shop, make_store):
    stage = rehearsal(shop.app, store=make_store)
    run = stage.start(shop.order, 5)
    assert run.status == "waiting"
    stage.crash()
    stage.advance(days=30)
    assert run.steps()["sleep"].status == "succeeded"
    stage.emit("address", "Bern")
    assert run.result() == "shipped to Bern"
    assert datetime(2026, 1, 31, tzinfo=UTC) <= stage.now < datetime(2026, 1, 31, 0, 1, tzinfo=UTC)


class SlowStore(MemoryStore):
    """A store as behind a network: it pauses, its answers come later, and its hints do not come in time."""

    def listen(self, *_):
        return lambda: None

    async def start(self, runs):
        await asyncio.sleep(0.01)
        return await super().start(runs)

    async def commit(self, batch):
        verdicts = await super().commit(batch)
        await asyncio.sleep(0.001)
        return verdicts


def test_a_store_that_pauses_takes_no_virtual_time_and_needs_no_hints(rehearsal, shop):
    stage = rehearsal(shop.app, store=lambda clock: SlowStore(clock=clock))
    assert stage.start(shop.order, 5).status == "waiting"
    assert stage.now == datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.slow
def test_an_answer_to_a_process_that_stands_still_is_no_late_write(explore, shop):
    """The commit was made in time. The process learns of it only when another process has the run."""
    assert explore(
        shop.counter, 5, observe=lambda: shop.seen, reset=shop.seen.clear,
        store=lambda clock: SlowStore(clock=clock),
    ).ok  # fmt: skip


def test_a_worker_that_crashes_while_its_thread_works_does_not_stop_the_clock(rehearsal):
    app, tries = hf.App("memory://"), []

    async def die():
        tries.append(1)
        if len(tries) == 1:
            asyncio.get_running_loop().call_soon(stage.crash)
        return await blocked()

    @app.workflow("a.die.v1")
    async def dying(ctx: hf.Context) -> int:
        return await ctx.step("die", die)

    stage = rehearsal(app)
    assert stage.start(dying).result() == 5
    assert len(tries) == 2


def test_a_thread_that_never_answers_is_a_deadlock_and_says_so(monkeypatch):
    monkeypatch.setattr("holdfast.testing.virtual.PATIENCE_SECONDS", 0.05)
    never = threading.Event()

    async def scene():
        await asyncio.to_thread(never.wait)

    try:
        with pytest.raises(Deadlock, match=r"a thread has not answered for 0\.05 s of real time"):
            play(scene)
    finally:
        never.set()
