"""Threads in a rehearsal: their answers are waited for in real time, and no virtual time passes meanwhile."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import UTC, datetime

import pytest

import holdfast as hf
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


@pytest.mark.parametrize("inline", [True, False])
def test_a_store_with_threads_of_its_own_can_be_given(rehearsal, shop, tmp_path, inline):
    path = str(tmp_path / "stage.db")
    stage = rehearsal(shop.app, store=lambda clock: SqliteStore(path, clock=clock, inline=inline))
    run = stage.start(shop.order, 5)
    assert run.status == "waiting"
    stage.crash()
    stage.advance(days=30)
    assert run.steps()["sleep"].status == "succeeded"
    stage.emit("address", "Bern")
    assert run.result() == "shipped to Bern"
    assert datetime(2026, 1, 31, tzinfo=UTC) <= stage.now < datetime(2026, 1, 31, 0, 1, tzinfo=UTC)


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
