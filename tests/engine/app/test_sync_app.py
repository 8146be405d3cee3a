"""`app.sync` (SyncApp): the same verbs in blocking form, for code without an event loop or with its own."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import inspect
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import holdfast
from holdfast import App, Handle, ResultTimeout, RunFilter, Status, UnknownRun, UsageError
from holdfast.engine.app.client import StoreClient
from holdfast.engine.app.sync import SyncApp, SyncHandle
from holdfast.engine.worker.hosting import WORKERS
from holdfast.errors import Unavailable
from holdfast.stores.memory import MemoryStore
from holdfast.stores.sqlite import SqliteStore
from holdfast.threads import background_loop
from tests.laws.effort import longer


@pytest.fixture(params=["sqlite", *longer("memory")])
def app(request, tmp_path):
    app = App(MemoryStore() if request.param == "memory" else SqliteStore(str(tmp_path / "holdfast.db")))

    @app.workflow("shop.order.v1")
    def order(ctx, amount: int = 1) -> int:
        return ctx.step("charge", lambda: amount + 1)

    @app.workflow("shop.wait.v1")
    def wait(ctx):
        return ctx.await_event("go").payload

    yield app
    app.sync.close()


def coroutines(cls):
    return {name for name, one in inspect.getmembers(cls, inspect.iscoroutinefunction) if name[0] != "_"}


@pytest.mark.spec("FLOW-15")
def test_sync_app_has_every_verb_of_client_app_and_handle():
    """`work` is the exception: its blocking form is `app.run`."""
    verbs = coroutines(StoreClient) | coroutines(App) - {"work"}
    assert verbs <= set(dir(SyncApp))
    assert coroutines(Handle) <= set(dir(SyncHandle))
    for name in verbs - {"close"}:
        there, here = getattr(App, name), getattr(SyncApp, name)
        assert (here.__doc__, inspect.signature(here)) == (there.__doc__, inspect.signature(there)), name


@pytest.mark.spec("FLOW-15")
def test_a_script_starts_runs_reads_them_and_waits_for_their_results(app):
    with app.sync as sync, sync.worker(grace=0):
        run = sync.start("shop.order.v1", 41, key="order:1")
        assert run.created
        assert run.result(timeout=10) == 42
        assert sync.result(run.id, timeout=10) == 42
        assert (run.get().status, sync.get(run.id).status) == (Status.SUCCEEDED, Status.SUCCEEDED)
        assert [step.key for step in sync.steps(run.id)] == ["charge"]
        assert sync.trail(run.id)[-1].type == "succeeded"
        assert len(sync.list(RunFilter(type="shop.%"))) == 1
        assert sync.explain(run.id).reason == "succeeded"
        many = sync.start_many(
            [("shop.order.v1", n) for n in range(5)] + [("shop.order.v1", 7, {"key": "order:1"})]
        )
        assert [one.result(10) for one in many[:5]] == [1, 2, 3, 4, 5]
        assert type(many[5]).__name__ == "KeyReused"


def test_sync_app_sends_events_and_pauses_and_cancels_runs(app):
    with app.sync.worker(grace=0):
        first, second = app.sync.start("shop.wait.v1"), app.sync.start("shop.wait.v1")
        with pytest.raises(ResultTimeout):
            first.result(timeout=0.05)
        assert app.sync.pause(first.id).status in {Status.PAUSED, Status.LEASED}
        app.sync.resume(first.id)
        assert second.cancel().status is Status.CANCELLED
        app.sync.emit("go", "gone")
        assert first.result(timeout=10) == "gone"
    with pytest.raises(UnknownRun):
        app.sync.known("0199c0de-7a31-7c3e-b1de-4b9a5d0c8f10")


@pytest.mark.spec("FLOW-15")
def test_many_threads_share_one_sync_app(app):
    """A threaded web server does so. All threads share one background loop."""

    def visit(n):
        return app.sync.start("shop.order.v1", n).result(timeout=15)

    with app.sync.worker(grace=0), ThreadPoolExecutor(20) as pool:
        assert list(pool.map(visit, range(100))) == [n + 1 for n in range(100)]
    assert sum(one.name == "holdfast-sync" for one in threading.enumerate()) <= 2


def test_sync_app_works_in_a_thread_with_a_running_loop(app):
    """A notebook does so: the calling thread has a loop, which blocks during the call."""

    async def cell():
        run = app.sync.start("shop.order.v1", 1)
        with app.sync.worker(grace=0):
            return run.result(timeout=10)

    assert asyncio.run(cell()) == 2


@pytest.mark.parametrize("inside", ["body", "sync step"])
def test_sync_code_of_a_run_can_use_sync_app(app, inside):
    @app.workflow("shop.parent.v1")
    def parent(ctx):
        def call():
            return app.sync.start("shop.order.v1", 5, key=f"child:{ctx.run_id}").result(timeout=10)

        return call() if inside == "body" else ctx.step("child", call)

    async def main():
        async with app.worker(grace=0):
            return await (await app.start(parent)).result(10)

    assert asyncio.run(main()) == 6
    with app.sync.worker(grace=0):
        assert app.sync.start(parent).result(10) == 6


@pytest.mark.parametrize("behind", [True, False], ids=["on the background loop", "on a loop of its own"])
def test_sync_app_on_the_loop_of_a_worker_is_refused_instead_of_blocking_forever(app, behind):
    @app.workflow("shop.async.v1")
    async def wrong(ctx):
        return app.sync.start("shop.order.v1").result()

    async def main():
        async with app.worker(grace=0):
            return await app.final((await app.start(wrong)).id, 10)

    if behind:
        with app.sync.worker(grace=0):
            found = app.sync.final(app.sync.start(wrong).id, 10)
    else:
        found = asyncio.run(main())
    assert found.error.kind == "usage"
    assert "await the app itself" in found.error.message


def test_sync_app_on_its_own_loop_is_refused(app):
    async def wrong():
        return app.sync.get("0199c0de-7a31-7c3e-b1de-4b9a5d0c8f10")

    with pytest.raises(UsageError, match="await the app itself"):
        app.sync.call(wrong)


def test_sync_app_stays_usable_after_an_interrupt(app):
    run = app.sync.start("shop.wait.v1")
    for _ in range(3):
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            run.result()
    assert run.get().status is Status.PENDING


def test_closing_sync_app_raises_unavailable_in_a_waiting_call(app):
    run = app.sync.start("shop.wait.v1")
    waiting = ThreadPoolExecutor(1).submit(run.result)
    time.sleep(0.1)  # wait until the call blocks
    app.sync.close()
    with pytest.raises(Unavailable):
        waiting.result(10)
    assert run.get().status is Status.PENDING


def test_closing_sync_app_raises_unavailable_even_in_a_call_that_does_not_end(app, monkeypatch):
    monkeypatch.setattr(background_loop, "CANCEL_SECONDS", 0.05)
    begun = threading.Event()

    async def slow():
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(60)

    waiting = ThreadPoolExecutor(1).submit(app.sync.call, slow)
    assert begun.wait(10)
    app.sync.close()
    with pytest.raises(Unavailable):
        waiting.result(10)


@pytest.mark.parametrize("raised", [SystemExit, KeyboardInterrupt])
def test_an_error_of_one_call_is_raised_to_its_caller_and_other_calls_continue(app, raised):
    async def wrong():
        raise raised

    with app.sync.worker(grace=0):
        run = app.sync.start("shop.wait.v1")
        waiting = ThreadPoolExecutor(1).submit(run.result)
        with pytest.raises(raised):
            app.sync.call(wrong)
        app.sync.emit("go", "gone")
        assert waiting.result(10) == "gone"


def test_a_sync_call_can_contain_another_sync_call(app):
    """No lock is held while the argument is built."""
    assert app.sync.call(lambda: asyncio.sleep(0, app.sync.start("shop.wait.v1"))).created


def live_renewal_threads():
    """Return the threads that renew leases and do not end."""
    threads = [one for one in threading.enumerate() if one.name == "holdfast-renew"]
    for one in threads:
        one.join(5)
    return [one for one in threads if one.is_alive()]


@pytest.mark.spec("LEASE-10")
@pytest.mark.parametrize("within", [True, False], ids=["in its block", "after it was forgotten"])
def test_closing_sync_app_stops_its_workers_and_releases_their_runs(app, within):
    begun = threading.Event()

    @app.workflow("shop.long.v1")
    async def long(ctx):
        await ctx.step("a", lambda: begun.set())
        await ctx.step("b", asyncio.sleep, 60)

    with contextlib.ExitStack() as stack:
        worker = app.sync.worker(grace=0)
        stack.enter_context(worker) if within else worker.__enter__()
        run = app.sync.start(long)
        assert begun.wait(10)
        app.sync.close()
    assert (run.get().status, run.get().attempt) == (Status.PENDING, 0)
    assert not live_renewal_threads()


def test_leases_are_not_renewed_for_a_closed_loop(app):
    """A worker left behind with its closed loop counts as crashed. Other workers take its runs."""

    async def main():
        await app.worker(lease=0.5).__aenter__()

    asyncio.run(main())
    assert not live_renewal_threads()


def test_a_worker_can_be_stopped_twice_and_by_two_callers_at_once(app):
    def count():
        return [one for loop, one in WORKERS.items() if not loop.is_closed()]

    async def main():
        async with app.worker(grace=0) as one:
            await asyncio.gather(one.stop(), one.stop())
            await one.stop()
            assert count() == [0]
        await app.close()

    asyncio.run(main())


def test_the_thread_of_an_unreferenced_sync_app_ends():
    app = App("memory://")
    app.sync.list()
    thread = app.sync._background._running.thread
    del app
    gc.collect()
    thread.join(5)
    assert not thread.is_alive()


# One complaint of asyncio's debug mode is raised by a busy machine, not by a fault: slow callbacks.
SCRIPT = """
import asyncio
import holdfast as hf

make_loop = asyncio.new_event_loop

def patient_loop():
    loop = make_loop()
    loop.slow_callback_duration = 30
    return loop

asyncio.new_event_loop = patient_loop

app = hf.App("{url}")

@app.workflow("shop.order.v1")
def order(ctx):
    return ctx.step("charge", lambda: 1)

{body}
print("end", flush=True)
"""
BODIES = {
    "left open": "app.sync.start(order)",
    "closed": "with app.sync: app.sync.start(order)",
    "a worker left": "left = app.sync.worker(); left.__enter__(); print(app.sync.start(order).result(10))",
    "used at exit": "import atexit; atexit.register(lambda: app.sync.start(order)); app.sync.start(order)",
    "forked in the block of a worker": "import os, sys\nwith app.sync.worker():\n"
    "    pid = os.fork()\n    if pid == 0: sys.exit()\n    assert os.waitpid(pid, 0)[1] == 0",
    "waited for in a thread": "import threading; run = app.sync.start(order); "
    "threading.Thread(target=run.result, daemon=True).start()",
}


@pytest.mark.slow
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("store", ["sqlite", *longer("memory")])
def test_a_script_ends_without_hanging_and_without_output(tmp_path, store, body):
    url = "memory://" if store == "memory" else f"sqlite:///{tmp_path}/holdfast.db"
    command = [sys.executable, "-X", "dev", "-c", SCRIPT.format(url=url, body=body)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.stdout.endswith("end\n")
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize(
    ("old", "new"), [("Door", "SyncApp"), ("PlainContext", "SyncContext"), ("PlainHandle", "SyncHandle")]
)
def test_an_old_public_name_still_works_with_a_warning(old, new):
    with pytest.warns(DeprecationWarning, match=f"holdfast.{old} is now called holdfast.{new}"):
        assert getattr(holdfast, old) is getattr(holdfast, new)
