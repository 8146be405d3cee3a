"""Sync functions that cannot be stopped: notified, abandoned, fenced off, and counted until they return.

These tests wait for real threads, with events. A lease of half a second is the longest delay.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import asynccontextmanager

import pytest

from holdfast import App, Backoff, Status
from holdfast.engine.worker.presence import show
from holdfast.stores.memory import MemoryStore
from holdfast.stores.sqlite import SqliteStore
from tests.engine.kit import keys, outcome, trail
from tests.laws.effort import longer

LEASE = 0.5


@pytest.fixture(params=["sqlite", *longer("memory")])
def app(request, tmp_path):
    store = MemoryStore() if request.param == "memory" else SqliteStore(str(tmp_path / "holdfast.db"))
    return App(store, threads=20)


class Gate:
    """A place where a sync function blocks until the test releases it. It records answers of the context."""

    def __init__(self):
        self.reached, self.open, self.seen = threading.Event(), threading.Event(), []

    def block(self):
        self.reached.set()
        assert self.open.wait(20)

    def ask(self, call):
        """Call the context, and record the result or the class of the error."""
        try:
            self.seen.append(call())
        except BaseException as error:  # noqa: BLE001 - CancelledError is what it is about
            self.seen.append(type(error))


@pytest.fixture
def gate():
    gate = Gate()
    yield gate
    gate.open.set()


def run_in_real_time(scene):
    async def limited():
        async with asyncio.timeout(20):
            await scene()

    asyncio.run(limited())


async def until(true):
    async with asyncio.timeout(10):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


@asynccontextmanager
async def working(app, **options):
    async with app.worker(**{"lease": LEASE, "grace": 0, **options}) as worker:
        yield worker
    await app.close()


@pytest.mark.slow
@pytest.mark.spec("FLOW-15")
def test_two_hundred_sync_workflows_with_sync_steps_finish_on_twenty_threads(app):
    """Workflows that wait for their steps never hold the threads that the steps need."""

    async def scene():
        @app.workflow("shop.order.v1")
        def order(ctx, n: int):
            first = ctx.step("first", lambda: time.sleep(0.001) or n)
            ctx.sleep(0.05)
            return first + ctx.step("second", lambda: 1)

        async with working(app, slots=200, lease=30):
            handles = await app.start_many([(order, n) for n in range(200)])
            assert [await one.result(15) for one in handles] == [n + 1 for n in range(200)]

    run_in_real_time(scene)


@pytest.mark.slow
@pytest.mark.spec("FLOW-15", "LEASE-8")
def test_a_sync_workflow_that_blocks_for_three_leases_keeps_its_lease(app):
    async def scene():
        @app.workflow("shop.order.v1")
        def order(ctx):
            time.sleep(3 * LEASE)
            return ctx.step("a", lambda: "still mine")

        async with working(app):
            run, ticks = await app.start(order), 0
            waiting = asyncio.ensure_future(run.result(10))
            while not waiting.done():
                await asyncio.sleep(0.01)
                ticks += 1
            assert await waiting == "still mine"
            assert ticks > 30
            assert await trail(app, run) == ["created", "leased", "started", "step_succeeded", "succeeded"]

    run_in_real_time(scene)


@pytest.mark.slow
@pytest.mark.spec("FLOW-14", "FLOW-20")
def test_a_cancelled_sync_workflow_is_abandoned_and_keeps_its_slot_until_it_returns(app, gate):
    """The function can ask whether it is cancelled.

    Its next call is refused, and the other run waits for the slot.
    """

    async def scene():
        @app.workflow("shop.order.v1")
        def order(ctx):
            ctx.step("first", lambda: 1)
            gate.block()
            gate.ask(lambda: ctx.cancelled)
            gate.ask(lambda: ctx.step("late", lambda: 1))
            gate.ask(lambda: ctx.log("late"))
            gate.ask(ctx.random)
            return "dropped"

        @app.workflow("shop.other.v1")
        def other(ctx):
            return "had a slot"

        async with working(app, slots=1) as worker:
            run = await app.start(order)
            await until(gate.reached.is_set)
            await app.cancel(run.id)
            waiting = await app.start(other)
            await until(lambda: worker.stragglers == 1)
            await asyncio.sleep(0.1)
            assert (worker.busy, worker.free) == (0, 0)
            assert (await app.get(waiting.id)).status is Status.PENDING
            gate.open.set()
            assert await waiting.result(10) == "had a slot"
            assert worker.stragglers == 0
            assert await outcome(app, run) == ("cancelled", None)
            assert await keys(app, run) == ["first"]
        cancelled = asyncio.CancelledError
        assert gate.seen == [True, cancelled, cancelled, cancelled]

    run_in_real_time(scene)


@pytest.mark.slow
@pytest.mark.spec("FLOW-20", "RETRY-6")
def test_a_step_past_its_timeout_is_abandoned_and_holds_one_slot(app, gate):
    async def scene():
        @app.workflow("shop.order.v1")
        async def order(ctx):
            def slow():
                gate.block()
                gate.ask(lambda: ctx.cancelled)
                gate.ask(lambda: ctx.emit("late"))
                gate.ask(lambda: ctx.cost(5))
                gate.ask(lambda: ctx.progress(1))
                gate.ask(lambda: ctx.log("late"))
                return "dropped"

            try:
                await ctx.step("slow", slow, timeout=0.1, retry=Backoff.none())
            except Exception as error:  # noqa: BLE001
                return error.kind

        async with working(app, slots=5) as worker:
            run = await app.start(order)
            assert await run.result(10) == "timeout"
            assert (worker.stragglers, worker.free) == (1, 4)
            await show(worker)
            assert [one.stragglers for one in (await app.store.stats()).workers] == [1]
            assert "1 sync function" in " ".join(one.what for one in (await app.doctor()).findings)
            gate.open.set()
            await until(lambda: worker.free == 5)
            assert (await app.get(run.id)).cost == 0
        assert gate.seen == [True, *[asyncio.CancelledError] * 4]

    run_in_real_time(scene)


@pytest.mark.slow
@pytest.mark.spec("FLOW-20", "LEASE-4")
def test_a_sync_workflow_that_lost_its_lease_is_abandoned_and_another_worker_continues(app, gate):
    async def scene():
        @app.workflow("shop.order.v1")
        def order(ctx):
            if not gate.reached.is_set():
                gate.block()
                gate.ask(lambda: ctx.step("late", lambda: 1))
            return ctx.step("a", lambda: "the other")

        async with working(app) as worker:
            run = await app.start(order)
            await until(gate.reached.is_set)
            worker.leases.held[run.id].stop("lost")
            await until(lambda: worker.stragglers == 1)
            assert await run.result(10) == "the other"
            gate.open.set()
            await until(lambda: worker.stragglers == 0)
            assert await keys(app, run) == ["a"]
        assert gate.seen == [asyncio.CancelledError]

    run_in_real_time(scene)


@pytest.mark.slow
@pytest.mark.spec("FLOW-20", "LEASE-10")
@pytest.mark.parametrize("kind", ["workflow", "step"])
def test_after_the_grace_period_a_sync_function_gets_time_to_return_and_its_run_is_released(app, gate, kind):
    async def scene():
        def block(ctx):
            gate.reached.set()
            while not ctx.cancelled:
                time.sleep(0.005)
            time.sleep(0.05)
            gate.seen.append("cleaned up")

        @app.workflow("shop.order.v1")
        def order(ctx):
            return block(ctx) if kind == "workflow" else ctx.step("a", block, ctx)

        async with working(app, grace=0.2) as worker:
            run = await app.start(order)
            await until(gate.reached.is_set)
        assert gate.seen == ["cleaned up"]
        assert worker.stragglers == 0
        found = await app.get(run.id)
        assert (found.status, found.attempt) == (Status.PENDING, 0)
        await app.close()

    run_in_real_time(scene)


@pytest.mark.spec("FLOW-20")
def test_a_sync_workflow_cancelled_while_it_waits_for_a_thread_never_begins(gate):
    begun = []

    async def scene():
        app = App(MemoryStore(), threads=1)

        @app.workflow("shop.order.v1")
        def order(ctx, n: int):
            begun.append(n)
            gate.block()

        async with working(app) as worker:
            first = await app.start(order, 1)
            await until(gate.reached.is_set)
            second = await app.start(order, 2)
            await until(lambda: worker.busy == 2)
            await app.cancel(second.id)
            await until(lambda: worker.busy == 1)
            assert worker.stragglers == 0
            gate.open.set()
            await first.result(10)
        assert begun == [1]

    run_in_real_time(scene)


@pytest.mark.spec("FLOW-20")
def test_a_worker_without_free_threads_claims_no_runs_until_one_returns(gate):
    """A slot alone does not help sync code."""

    async def scene():
        app = App(MemoryStore(), threads=1)

        @app.workflow("shop.order.v1", retry=Backoff.none())
        def order(ctx, limit: float | None):
            return ctx.step("a", gate.block, timeout=limit)

        async with working(app, slots=10) as worker:
            assert await outcome(app, await app.start(order, 0.01)) == ("failed", "timeout")
            assert (worker.stragglers, worker.free) == (1, 0)
            run = await app.start(order, None)
            await asyncio.sleep(0.05)  # the worker may look for work as often as it likes
            assert (await app.get(run.id)).status is Status.PENDING
            gate.open.set()
            await run.result(10)
            assert worker.free == 10

    run_in_real_time(scene)


def test_hanging_hooks_hold_none_of_the_threads_that_steps_need(gate):
    async def scene():
        app = App(MemoryStore(), threads=1)
        app.on("run.started")(lambda _: gate.block())

        @app.workflow("shop.order.v1")
        def order(ctx):
            gate.reached.wait(10)
            return ctx.step("a", lambda: 1)

        async with working(app):
            assert [await (await app.start(order)).result(10) for _ in range(3)] == [1, 1, 1]
            gate.open.set()

    run_in_real_time(scene)


@pytest.mark.spec("FLOW-15")
@pytest.mark.parametrize("raised", [KeyboardInterrupt, GeneratorExit, StopIteration])
def test_an_error_raised_in_a_thread_never_ends_the_loop_of_the_worker(tmp_path, raised):
    """A body, a step, a transaction and a hook: each fails, and the others continue."""
    calls = []

    async def scene():
        app = App(SqliteStore(str(tmp_path / "holdfast.db")))

        def boom(*_):
            calls.append(1)
            raise raised

        app.on("run.started")(boom)

        @app.workflow("shop.order.v1", retry=Backoff.none())
        def order(ctx, where: str):
            if where == "body":
                boom()
            return ctx.step("a", boom) if where == "step" else ctx.transaction(boom)

        async with working(app):
            runs = [await app.start(order, where) for where in ("body", "step", "transaction")]
            for run in runs:
                found = await app.final(run.id, 10)
                assert (found.error.kind, found.attempt) == ("exhausted", 1)
                assert raised.__name__ in found.error.message
            await until(lambda: len(calls) == 6)

    run_in_real_time(scene)


STUCK = """
import sys, time
import holdfast as hf

app = hf.App(sys.argv[1])

@app.workflow("shop.order.v1")
def order(ctx):
    print("stuck", flush=True)
    {stuck}

app.sync.start(order)
app.run(lease=5, grace=60)
print("stopped", flush=True)
"""


@pytest.mark.slow
@pytest.mark.spec("FLOW-20", "LEASE-10")
@pytest.mark.parametrize("stuck", ["time.sleep(60)", "ctx.step('a', time.sleep, 60)"])
def test_a_second_signal_ends_the_process_at_once_even_with_a_stuck_thread(tmp_path, stuck):
    script = STUCK.format(stuck=stuck)
    command = [sys.executable, "-c", script, f"sqlite:///{tmp_path}/holdfast.db"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ) as process:
        try:
            assert process.stdout.readline() == "stuck\n"
            process.send_signal(signal.SIGTERM)
            time.sleep(0.3)  # the first signal has been handled: the grace period has begun
            assert process.poll() is None
            began = time.monotonic()
            process.send_signal(signal.SIGTERM)
            assert process.communicate(timeout=10)[0] == "stopped\n"
            assert process.returncode == 0
            assert time.monotonic() - began < 4
        finally:
            process.kill()
