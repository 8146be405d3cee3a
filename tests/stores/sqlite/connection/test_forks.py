"""Forks: the file is closed before a fork and opened again after it, by parent and child, or refused.

Real processes, each test in a script of its own: pytest itself is not forked.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.stores.sqlite.files import new_run, raw_connection, with_store

PATIENCE = 40.0


@pytest.fixture
def path(tmp_path):
    return tmp_path / "holdfast.db"


BEGIN = """
import asyncio, collections, os, sys, threading, time, warnings
sys.path.insert(0, os.getcwd())
warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of forks beside threads
import holdfast as hf
from holdfast.stores.sqlite import SqliteStore, forks
from tests.stores.sqlite.files import new_run, opened, until

url, path = f"sqlite:///{sys.argv[1]}", sys.argv[1]

def forked(work):
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            sys.stdout.flush()
            os._exit(code)
    return pid

def ended(pids):
    return {os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids}
"""


def script(text, path):
    command = [sys.executable, "-c", BEGIN + text, str(path)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def told(text, path):
    """Run a script. Return its output; it must print no error."""
    with script(text, path) as process:
        try:
            said, complaint = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    assert (process.returncode, complaint) == (0, "")
    return said.splitlines()


def count(path):
    with raw_connection(path) as connection:
        assert connection.execute("pragma integrity_check").fetchall() == [("ok",)]
        return connection.execute("select count(*) from workflow_run").fetchone()[0]


PREFORK = """
app = hf.App(url)

@app.workflow("shop.order.v1")
def order(ctx, n: int):
    return n

def visits(who):
    for n in range(20):
        assert app.sync.start(order, n, key=f"{who}:{n}").created

visits("before")  # preloaded, and used: its sync app and its file are open
children = [forked(lambda: visits(os.getpid())) for _ in range(4)]
visits("parent")
print(ended(children))
visits("after")
"""


@pytest.mark.slow
@pytest.mark.spec("FLOW-15", "STORE-2")
def test_parent_and_children_all_go_on_after_a_fork(path):
    """A preforking server: the app is loaded and used, then its workers are forked."""
    assert told(PREFORK, path) == ["{0}"]
    assert count(path) == 7 * 20


WORKERS = """
app = hf.App(url, threads=4)

@app.workflow("shop.order.v1")
def order(ctx, n: int):
    return ctx.step("charge", lambda: n + 1)

def child():
    with app.sync.worker(grace=0):
        assert [app.sync.start(order, n).result(20) for n in range(10)] == list(range(1, 11))

with app.sync.worker(grace=0):
    children = []
    for n in range(4):
        assert app.sync.start(order, n).result(20) == n + 1  # threads of both kinds are there, and idle
        children.append(forked(child))
    print(ended(children))
    assert app.sync.start(order, 1).result(20) == 2
"""


@pytest.mark.slow
@pytest.mark.spec("FLOW-15")
def test_children_of_a_worker_can_be_workers_with_threads_of_their_own(path):
    assert told(WORKERS, path) == ["{0}"]


AT_WORK = """
app, calls = hf.App(url), collections.Counter()

@app.workflow("shop.order.v1")
async def order(ctx, n: int):
    for name in "abc":
        await ctx.step(name, touch, n, name)
    return n

async def touch(n, name):
    calls[n, name] += 1
    await asyncio.sleep(0.001)

def child():
    for _ in range(3):
        app.sync.start("other.thing.v1")

async def main():
    pids = []
    async with app.worker(slots=100, lease=5):
        handles = await app.start_many([(order, n) for n in range(600)])
        for n in range(50):
            if n % 2:
                pids.append(await asyncio.to_thread(forked, child))
            else:
                pids.append(forked(child))
            await asyncio.sleep(0.005)
        assert [await one.result(30) for one in handles] == list(range(600))
    print(ended(pids), set(calls.values()), len(calls))
    trail = await app.trail(types=("lease_expired",))
    print(len(trail))
    await app.close()

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.spec("STORE-2", "LEASE-8")
def test_a_worker_with_commits_in_flight_goes_on_through_fifty_forks_whose_children_write(path):
    """From the loop's own thread and from others: no lease is lost, no step runs twice, none is missing."""
    assert told(AT_WORK, path) == ["{0} {1} 1800", "0"]
    assert count(path) == 600 + 150


IN_A_STEP = """
import multiprocessing

app = hf.App(url)

def child(n):
    return n + app.sync.list().__len__()

@app.workflow("shop.order.v1")
def order(ctx, n: int):
    def spread():
        with multiprocessing.get_context("fork").Pool(2) as pool:
            return sum(pool.map(child, [n, n]))
    return ctx.step("spread", spread)

runs = [app.sync.start(order, 10) for _ in range(4)]
with app.sync, app.sync.worker():
    print([run.result(30) for run in runs])
"""


@pytest.mark.slow
@pytest.mark.spec("FLOW-15")
def test_a_plain_step_may_fork_while_its_worker_works(path):
    assert told(IN_A_STEP, path) == ["[28, 28, 28, 28]"]


AT_ONCE = """
app = hf.App("memory://" if path == "memory" else url)
app.sync.start("a.b.v1")
outcomes = []
sys.setswitchinterval(1e-6)  # threads meet everywhere

def child():
    assert len(app.sync.list()) == 1

def fork_often():
    for _ in range(25):
        outcomes.append(ended([forked(child)]))

threads = [threading.Thread(target=fork_often) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(outcomes), set.union(*outcomes), len(app.sync.list()))
"""


@pytest.mark.slow
@pytest.mark.spec("STORE-2")
@pytest.mark.parametrize("store", ["sqlite", "memory"])
def test_threads_that_fork_at_once_do_not_take_each_others_locks(path, store):
    assert told(AT_ONCE, path if store == "sqlite" else "memory") == ["100 {0} 1"]


CHECKED = """
app = hf.App(url)
app.sync.start("a.b.v1")
stop = threading.Event()

def check():
    while not stop.is_set():
        assert "no damage was found in the file" in [one.what for one in app.sync.doctor().findings]

def child():
    names = [os.readlink(one.path) for one in os.scandir("/proc/self/fd") if os.path.exists(one.path)]
    assert not [name for name in names if name.startswith(path)]
    app.sync.start("a.b.v1")

checking = threading.Thread(target=check)
checking.start()
codes = set()
for _ in range(25):
    codes |= ended([forked(child)])
    time.sleep(0.01)
stop.set()
checking.join()
print(codes)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="shows what is open on Linux alone")
def test_a_file_that_is_looked_through_for_damage_is_closed_over_a_fork(path):
    assert told(CHECKED, path) == ["{0}"]


DEEPER = """
app = hf.App(url)
app.sync.start("a.b.v1")

def grandchild():
    app.sync.start("a.b.v1")

def child():
    pids = [forked(grandchild) for _ in range(2)]  # before it has opened anything itself
    app.sync.start("a.b.v1")
    pids.append(forked(grandchild))
    assert ended(pids) == {0}
    app.sync.start("a.b.v1")

print(ended([forked(child), forked(child)]))
"""


@pytest.mark.slow
def test_children_may_fork_in_turn(path):
    assert told(DEEPER, path) == ["{0}"]
    assert count(path) == 1 + 2 * (2 + 3)


INSIDE = """
forks.PATIENCE_SECONDS = 0.2
app = hf.App(url)

def child():
    for store in (app.store, SqliteStore(path)):
        try:
            asyncio.run(store.open())
        except hf.Unavailable as error:
            print("forked" in str(error))

async def main():
    await app.store.open()
    inside, go_on = threading.Event(), threading.Event()
    job = asyncio.ensure_future(app.store._write(lambda *_: (inside.set(), go_on.wait(20))[1]))
    await until(inside.is_set)
    print(ended([forked(child)]))
    go_on.set()
    print(await job)
    print((await app.store.start([new_run()]))[0].created)

asyncio.run(main())
"""


@pytest.mark.slow
def test_a_fork_amidst_a_commit_is_refused_in_the_child_and_the_parent_goes_on(path):
    """A store that cannot be closed in time stays open in the parent: the child must not touch the file."""
    assert told(INSIDE, path) == ["True", "True", "{0}", "True", "True"]


HAMMERED = """
app = hf.App({url})
stop = threading.Event()

def hammer():
    while not stop.is_set():
        app.sync.start("a.b.v1")
        app.sync.list(limit=5)

def child():
    assert len(app.sync.list(limit=5)) == 5
    app.sync.start("a.b.v1")

for _ in range(5):
    app.sync.start("a.b.v1")
threads = [threading.Thread(target=hammer) for _ in range(4)]
for thread in threads:
    thread.start()
codes = set()
for _ in range(25):
    codes |= ended([forked(child)])
stop.set()
for thread in threads:
    thread.join()
print(codes)
"""


@pytest.mark.slow
@pytest.mark.spec("FLOW-15")
@pytest.mark.parametrize("url", ["url", "'memory://'"])
def test_a_fork_never_leaves_the_child_with_a_lock_that_nobody_holds(path, url):
    """Threads of the parent use the sync app and the store all the time; memory is copied with them."""
    assert told(HAMMERED.replace("{url}", url), path) == ["{0}"]


KILLED_AMIDST = """
forks.PATIENCE_SECONDS = 0.2

async def main():
    async with opened(path) as store:
        inside = threading.Event()
        asyncio.ensure_future(store._write(lambda *_: (inside.set(), time.sleep(60))))
        await until(inside.is_set)
        print(forked(lambda: time.sleep(60)), flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.spec("STORE-2")
def test_a_child_does_not_keep_the_turn_of_its_dead_parent(path):
    """A worker killed in the midst of a commit blocks nobody, though a child of its lives on."""
    with script(KILLED_AMIDST, path) as process:
        child = int(process.stdout.readline())
        process.kill()
        try:
            assert with_store(path, lambda store: store.start([new_run()]))[0].created
        finally:
            os.kill(child, signal.SIGKILL)
