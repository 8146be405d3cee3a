"""Stopping a worker: no new claims, a grace period for running code, and the rest is released."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading

import pytest

from holdfast import App, Status, UsageError
from holdfast.stores.memory import MemoryStore
from holdfast.testing import VirtualWorld
from holdfast.testing.faulty import Faulty, delay_reply
from tests.engine.kit import keys, send_signal, trail


@pytest.mark.spec("LEASE-10")
async def test_a_graceful_stop_lets_steps_finish_within_the_grace_period(app):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.step("nap", asyncio.sleep, 50)
        return "done"

    run = await app.start(order)
    async with app.worker(grace=60, lease=30):
        await asyncio.sleep(1)
        late = await app.start(order)
    assert (await app.get(run.id)).status is Status.SUCCEEDED
    assert (await app.get(late.id)).attempt in (0, 1)


@pytest.mark.spec("LEASE-10")
async def test_a_stopping_worker_claims_nothing_more(app):
    store = app.store = Faulty(app.store)

    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.step("nap", asyncio.sleep, 50)

    await app.start(order)
    worker = app.worker(grace=60)
    await worker.__aenter__()
    await asyncio.sleep(1)
    stopping = asyncio.create_task(worker.stop())
    await asyncio.sleep(0.5)
    claims = store.calls["claim"]
    late = await app.start(order)
    await stopping
    assert store.calls["claim"] == claims
    assert (await app.get(late.id)).status is Status.PENDING
    assert (await app.store.stats()).workers == ()


@pytest.mark.spec("LEASE-10", "RETRY-1")
async def test_a_run_past_the_grace_period_is_cancelled_and_released_with_its_attempt(app):
    cancelled = []

    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.step("first", lambda: 1)
        try:
            await ctx.step("long", asyncio.sleep, 10**6)
        except asyncio.CancelledError:
            cancelled.append(ctx.cancelled)
            raise

    run = await app.start(order)
    async with app.worker(grace=5):
        await asyncio.sleep(1)
    found = await app.get(run.id)
    assert (found.status, found.attempt, found.leased_by, cancelled) == (Status.PENDING, 0, None, [True])
    assert found.run_at <= found.updated_at
    assert await keys(app, run) == ["first"]
    assert (await trail(app, run))[-1] == "released"


@pytest.mark.spec("LEASE-10")
async def test_a_second_signal_does_not_wait_for_the_grace_period(app, world):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.step("long", asyncio.sleep, 10**6)

    run = await app.start(order)
    worker = app.worker(grace=1000)
    await worker.__aenter__()
    await asyncio.sleep(1)
    stopping = asyncio.create_task(worker.stop())
    await asyncio.sleep(1)
    worker.hurry()
    await stopping
    assert world.monotonic() < 10
    assert (await app.get(run.id)).status is Status.PENDING


@pytest.mark.spec("LEASE-10")
async def test_code_that_ignores_the_end_of_the_grace_period_is_abandoned(app):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        try:
            await asyncio.sleep(10**6)
        except asyncio.CancelledError:
            await asyncio.sleep(10**6)

    run = await app.start(order)
    async with asyncio.timeout(60), app.worker(grace=1):
        await asyncio.sleep(1)
    found = await app.get(run.id)
    assert (found.status, found.attempt) == (Status.PENDING, 0)


@pytest.mark.spec("LEASE-10", "LEASE-17")
async def test_a_claim_in_flight_when_the_worker_stops_leaves_no_run_behind(app):
    store = app.store = Faulty(app.store)

    @app.workflow("shop.order.v1")
    async def order(ctx):
        return "done"

    run = await app.start(order)
    store.plan("claim", 1, delay_reply(2))
    async with app.worker(grace=5):
        await asyncio.sleep(1)
    found = await app.get(run.id)
    assert found.status is not Status.LEASED
    assert found.crashes == 0


@pytest.mark.spec("LEASE-10")
async def test_a_run_claimed_at_the_moment_of_the_second_signal_is_released(app):
    """The run is stopped before it began. Even then its stop is answered, and nothing waits for it."""

    @app.workflow("shop.order.v1")
    async def order(ctx):
        raise AssertionError("it must not begin")

    run = await app.start(order)
    worker = app.worker()
    begin = worker._begin

    def begin_and_hurry(claim, claimed_at):
        begin(claim, claimed_at)
        worker.hurry()
        worker._draining = True

    worker._begin = begin_and_hurry
    async with worker:
        await asyncio.sleep(1)
        assert worker.busy == 0
    found = await app.get(run.id)
    assert (found.status, found.attempt) == (Status.PENDING, 0)


@pytest.mark.spec("LEASE-10")
@pytest.mark.parametrize("verb", ["publish", "present"])
@pytest.mark.parametrize("delay_seconds", [0.2, 10**6])
async def test_a_worker_cancelled_during_its_start_leaves_nothing_behind(app, verb, delay_seconds):
    """A TaskGroup does so when another of its tasks has failed."""
    store = app.store = Faulty(app.store)
    store.plan(verb, 1, delay_reply(delay_seconds))

    @app.workflow("shop.order.v1")
    async def order(ctx):
        raise AssertionError("nobody works")

    await app.start(order)
    working = asyncio.create_task(app.work())
    await asyncio.sleep(0.1)
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    await asyncio.sleep(60)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert (store.calls["claim"], store.calls["absent"]) == (0, 1)


@pytest.mark.spec("LEASE-10")
@pytest.mark.parametrize("one_ends_first", [False, True])
async def test_all_workers_of_one_loop_receive_its_signals(store, world, one_ends_first):
    """The first worker to end takes nothing from the others."""
    apps = [App(store, world=world, name=name) for name in ("one", "other")]
    first, other = (asyncio.create_task(app.work()) for app in apps)
    await asyncio.sleep(1)
    if one_ends_first:
        first.cancel()
        await asyncio.wait([first])
        assert not other.done()
    assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL  # otherwise the signal would kill the test
    await send_signal(signal.SIGTERM)
    await asyncio.wait_for(other, 30)
    await asyncio.wait([first], timeout=30)
    assert first.done()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


class Hung(VirtualWorld):
    """A world in which a running heartbeat does not return, because the store's writer is blocked."""

    def pulse(self, beat, interval_seconds, name):
        pulse = super().pulse(beat, interval_seconds, name)
        pulse.stop = lambda: asyncio.sleep(10**6)
        return pulse


@pytest.mark.spec("LEASE-10")
async def test_a_renewal_that_does_not_return_does_not_delay_a_stopping_worker():
    """The store is not closed then, because closing would wait for it."""
    world = Hung()
    app = App(MemoryStore(clock=world.now), world=world)
    app.store = faulty = Faulty(app.store)
    working = asyncio.create_task(app.work(lease=6))
    await asyncio.sleep(1)
    await send_signal(signal.SIGTERM)
    await asyncio.wait_for(working, 30)
    assert faulty.calls["close"] == 0


def test_app_run_inside_a_loop_or_outside_the_main_thread_is_refused_with_advice():
    async def inside():
        App("memory://").run()

    with pytest.raises(UsageError, match=r"write `await app.work"):
        asyncio.run(inside())

    messages = []

    def elsewhere():
        with pytest.raises(UsageError) as refused:
            asyncio.run(App("memory://").work())
        messages.append(str(refused.value))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert "in other threads write `async with app.worker():`" in messages[0]


async def test_a_released_run_records_nothing_after_an_item_that_was_not_committed(app):
    """Both steps have read the time, which was to be recorded with the first step."""

    class Broken(Faulty):
        async def commit(self, batch):
            if any(step.key == "first" for item in batch for step in item.steps):
                await asyncio.sleep(5)
                raise RuntimeError("no")
            return await self.inner.commit(batch)

    @app.workflow("shop.order.v1")
    async def order(ctx):
        now = ctx.now().isoformat()
        second = ctx.step("second", asyncio.sleep, 1, now)
        return [now, *await asyncio.gather(ctx.step("first", lambda: now), second)]

    store = app.store
    app.store = Broken(store)
    run = await app.start(order)
    async with app.worker(grace=0):
        await asyncio.sleep(2)
    app.store = store
    assert await keys(app, run) == []
    async with app.worker():
        now, *found = await run.result(600)
    assert found == [now] * 2


PARENT = """
import os, signal, sys, time
{loop}
import holdfast as hf

app = hf.App("memory://")

def exit_code_after(number):
    pid = os.fork()
    if pid == 0:
        try:
            time.sleep(20)
        finally:
            os._exit(7)  # by an exception, as Ctrl-C ends a script
    os.kill(pid, number)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

@app.workflow("shop.order.v1")
def order(ctx):
    ctx.step("ended", lambda: print({{exit_code_after(signal.SIGTERM) for _ in range(30)}}, flush=True))
    ctx.step("interrupted", lambda: print(exit_code_after(signal.SIGINT) in (-2, 7), flush=True))
    ctx.step("goes on", lambda: print("goes on", flush=True))
    os.kill(os.getpid(), signal.SIGTERM)

app.sync.start(order)
app.run(grace=5)
print("stopped", flush=True)
"""


@pytest.mark.slow
@pytest.mark.spec("LEASE-10")
@pytest.mark.parametrize("loop", ["sys.modules['uvloop'] = None", "import uvloop"], ids=["asyncio", "uvloop"])
def test_a_signal_to_a_forked_child_ends_the_child_and_not_its_worker(loop):
    """Leaving a multiprocessing.Pool does so, at once, when the child has hardly begun."""
    command = [sys.executable, "-W", "ignore", "-c", PARENT.format(loop=loop)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert ended.stdout.splitlines() == ["{-15}", "True", "goes on", "stopped"], ended.stderr
