"""Plain functions that cannot be stopped: told, left, fenced off, and counted until they return.

These tests wait for real threads, with events; what takes time is a lease of half a second.
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
from holdfast.engine.presence import show
from holdfast.stores.memory import MemoryStore
from holdfast.stores.sqlite import SqliteStore
from tests.engine.kit import keys, outcome, trail

LEASE = 0.5


@pytest.fixture(params=["memory", "sqlite"])
def app(request, tmp_path):
    store = MemoryStore() if request.param == "memory" else SqliteStore(str(tmp_path / "holdfast.db"))
    return App(store, threads=20)


class Gate:
    """Where a plain function stands until it is let go; it tells what it saw then."""

    def __init__(self):
        self.reached, self.open, self.seen = threading.Event(), threading.Event(), []

    def stand(self):
        self.reached.set()
        assert self.open.wait(20)

    def ask(self, call):
        """What asking the context came to."""
        try:
            self.seen.append(call())
        except BaseException as error:  # noqa: BLE001 - CancelledError is what it is about
            self.seen.append(type(error))


@pytest.fixture
def gate():
    gate = Gate()
    yield gate
    gate.open.set()


def real(scene):
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
def test_two_hundred_plain_workflows_with_plain_steps_finish_on_twenty_threads(app):
    """Workflows that wait for their steps never hold the threads that those need."""

    async def scene():
        @app.workflow("shop.order.v1")
        def order(ctx, n: int):
            first = ctx.step("first", lambda: time.sleep(0.001) or n)
            ctx.sleep(0.05)
            return first + ctx.step("second", lambda: 1)

        async with working(app, slots=200, lease=30):
            handles = await app.start_many([(order, n) for n in range(200)])
            assert [await one.result(15) for one in handles] == [n + 1 for n in range(200)]

    real(scene)


@pytest.mark.slow
@pytest.mark.spec("FLOW-15", "LEASE-8")
def test_a_plain_workflow_that_blocks_for_three_leases_keeps_its_lease_and_the_loop_free(app):
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

    real(scene)


@pytest.mark.slow
@pytest.mark.spec("FLOW-14", "FLOW-20")
def test_a_cancelled_plain_workflow_is_left_and_keeps_its_slot_until_it_returns(app, gate):
    """It can ask; what it asks for next is refused; the other run waits for the slot."""

    async def scene():
        @app.workflow("shop.order.v1")
        def order(ctx):
            ctx.step("first", lambda: 1)
            gate.stand()
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

    real(scene)


@pytest.mark.slow
@pytest.mark.spec("FLOW-20", "RETRY-6")
def test_a_step_past_its_timeout_is_left_and_the_run_goes_on_with_one_slot_less(app, gate):
    async def scene():
        @app.workflow("shop.order.v1")
        async def order(ctx):
            def slow():
                gate.stand()
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
            assert "1 plain function" in " ".join(one.what for one in (await app.doctor()).findings)
            gate.open.set()
            await until(lambda: worker.free == 5)
            assert (await app.get(run.id)).cost == 0
        assert gate.seen == [True, *[asyncio.CancelledError] * 4]

    real(scene)


@pytest.mark.slow
@pytest.mark.spec("FLOW-20", "LEASE-4")
def test_a_plain_workflow_that_lost_its_lease_is_left_and_another_goes_on(app, gate):
    async def scene():
        @app.workflow("shop.order.v1")
        def order(ctx):
            if not gate.reached.is_set():
                gate.stand()
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

    real(scene)


@pytest.mark.slow
@pytest.mark.spec("FLOW-20", "LEASE-10")
@pytest.mark.parametrize("kind", ["workflow", "step"])
def test_at_the_end_of_grace_a_plain_function_is_given_time_to_return_and_its_run_is_given_back(
    app, gate, kind
):
    async def scene():
        def stand(ctx):
            gate.reached.set()
            while not ctx.cancelled:
                time.sleep(0.005)
            time.sleep(0.05)
            gate.seen.append("cleaned up")

        @app.workflow("shop.order.v1")
        def order(ctx):
            return stand(ctx) if kind == "workflow" else ctx.step("a", stand, ctx)

        async with working(app, grace=0.2) as worker:
            run = await app.start(order)
            await until(gate.reached.is_set)
        assert gate.seen == ["cleaned up"]
        assert worker.stragglers == 0
        found = await app.get(run.id)
        assert (found.status, found.attempt) == (Status.PENDING, 0)
        await app.close()

    real(scene)


@pytest.mark.spec("FLOW-20")
def test_a_plain_workflow_that_waits_for_a_thread_when_it_is_cancelled_never_begins(gate):
    begun = []

    async def scene():
        app = App(MemoryStore(), threads=1)

        @app.workflow("shop.order.v1")
        def order(ctx, n: int):
            begun.append(n)
            gate.stand()

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

    real(scene)


@pytest.mark.spec("FLOW-20")
def test_a_worker_whose_threads_are_all_stuck_leaves_new_runs_to_others_until_one_returns(gate):
    """A slot alone is no use to plain code."""

    async def scene():
        app = App(MemoryStore(), threads=1)

        @app.workflow("shop.order.v1", retry=Backoff.none())
        def order(ctx, limit: float | None):
            return ctx.step("a", gate.stand, timeout=limit)

        async with working(app, slots=10) as worker:
            assert await outcome(app, await app.start(order, 0.01)) == ("failed", "timeout")
            assert (worker.stragglers, worker.free) == (1, 0)
            run = await app.start(order, None)
            await asyncio.sleep(0.05)  # it may look for work as often as it likes
            assert (await app.get(run.id)).status is Status.PENDING
            gate.open.set()
            await run.result(10)
            assert worker.free == 10

    real(scene)


def test_hooks_that_hang_hold_none_of_the_threads_that_steps_need(gate):
    async def scene():
        app = App(MemoryStore(), threads=1)
        app.on("run.started")(lambda _: gate.stand())

        @app.workflow("shop.order.v1")
        def order(ctx):
            gate.reached.wait(10)
            return ctx.step("a", lambda: 1)

        async with working(app):
            assert [await (await app.start(order)).result(10) for _ in range(3)] == [1, 1, 1]
            gate.open.set()

    real(scene)


@pytest.mark.spec("FLOW-15")
@pytest.mark.parametrize("raised", [KeyboardInterrupt, GeneratorExit, StopIteration])
def test_what_a_plain_function_raises_in_its_thread_never_ends_the_loop_of_its_worker(tmp_path, raised):
    """A body, a step, a transaction and a hook: each is told as failed, and the others go on."""
    told = []

    async def scene():
        app = App(SqliteStore(str(tmp_path / "holdfast.db")))

        def boom(*_):
            told.append(1)
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
            await until(lambda: len(told) == 6)

    real(scene)


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
def test_a_second_signal_ends_the_process_at_once_although_a_thread_is_stuck(tmp_path, stuck):
    script = STUCK.format(stuck=stuck)
    command = [sys.executable, "-c", script, f"sqlite:///{tmp_path}/holdfast.db"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ) as process:
        try:
            assert process.stdout.readline() == "stuck\n"
            process.send_signal(signal.SIGTERM)
            time.sleep(0.3)  # the first signal is at work: the grace period has begun
            assert process.poll() is None
            began = time.monotonic()
            process.send_signal(signal.SIGTERM)
            assert process.communicate(timeout=10)[0] == "stopped\n"
            assert process.returncode == 0
            assert time.monotonic() - began < 4
        finally:
            process.kill()
