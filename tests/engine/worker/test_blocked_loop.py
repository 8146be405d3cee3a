"""Leases of a loop that is really blocked: virtual time cannot show this.

These tests really sleep, for about two short leases, because they test a thread of the operating system.
"""

from __future__ import annotations

import asyncio
import re
import time

import pytest

from holdfast import App, Status
from holdfast.stores.memory import MemoryStore
from holdfast.stores.sqlite import SqliteStore
from tests.laws.effort import longer

LEASE = 0.5


@pytest.fixture(params=["sqlite", *longer("memory")])
def shared(request, tmp_path):
    """Two stores on the same data, as two processes see it."""
    if request.param == "memory":
        store = MemoryStore()
        return store, store
    path = str(tmp_path / "holdfast.db")
    return SqliteStore(path), SqliteStore(path)


@pytest.mark.slow
@pytest.mark.spec("LEASE-8")
def test_a_blocked_event_loop_keeps_its_lease_and_the_log_says_so(shared, caplog):
    mine, other = shared
    executed = []

    async def scene():
        app = App(mine)

        @app.workflow("shop.order.v1")
        async def order(ctx):
            executed.append(1)
            time.sleep(3 * LEASE)  # noqa: ASYNC251 - the offence that this test is about
            await ctx.step("a", lambda: 1)
            return "still mine"

        run = await app.start(order)
        async with app.worker(lease=LEASE):
            assert await run.result(10) == "still mine"
        trail = [entry.type for entry in await app.trail(run.id)]
        await app.close()
        return trail, run.id

    async def meanwhile():
        """Another process, on another thread, that would take the run if its lease expired."""
        await other.open()
        until = time.monotonic() + 4 * LEASE
        expired = 0
        while time.monotonic() < until:
            expired += (await other.tick()).expired
            await asyncio.sleep(0.05)
        await other.close()
        return expired

    async def both():
        return await asyncio.gather(asyncio.to_thread(asyncio.run, meanwhile()), scene())

    expired, (trail, run) = asyncio.run(both())
    assert (expired, executed) == (0, [1])
    (warning,) = [one for one in caplog.messages if "the event loop was blocked" in one]
    assert f"was blocked for 1.0 s or more by run {run} (shop.order.v1): put" in re.sub(
        r"1\.\d", "1.0", warning
    )
    assert trail == ["created", "leased", "started", "step_succeeded", "succeeded"]


@pytest.mark.slow
@pytest.mark.spec("LEASE-8", "FLOW-1")
def test_sync_steps_run_in_parallel_threads(tmp_path):
    async def scene():
        app = App(SqliteStore(str(tmp_path / "holdfast.db")))

        @app.workflow("shop.order.v1")
        async def order(ctx):
            begun = time.monotonic()
            await asyncio.gather(*[ctx.step("nap", time.sleep, 0.2, key=f"nap{n}") for n in range(5)])
            return time.monotonic() - begun

        async with app.worker():
            took = await (await app.start(order)).result(10)
        await app.close()
        return took

    assert asyncio.run(scene()) < 0.9


@pytest.mark.slow
@pytest.mark.spec("FLOW-4")
def test_a_real_sleep_ends_within_a_tenth_of_a_second(tmp_path):
    async def scene():
        app = App(SqliteStore(str(tmp_path / "holdfast.db")))

        @app.workflow("shop.order.v1")
        async def order(ctx):
            begun = ctx.now()
            await ctx.sleep(0.3)
            return (ctx.now() - begun).total_seconds()

        async with app.worker():
            run = await app.start(order)
            took = await run.result(10)
        assert (await app.get(run.id)).status is Status.SUCCEEDED
        await app.close()
        return took

    assert 0.3 <= asyncio.run(scene()) < 0.6
