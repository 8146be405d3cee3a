"""Forks: no session crosses one; parent and child both go on. Scripts do the forking, not pytest itself."""

from __future__ import annotations

import subprocess
import sys

import pytest

BEGIN = """
import asyncio, os, sys, threading, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of forks beside threads
from holdfast.stores.postgres import PostgresStore

def sockets():
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            found.add(os.readlink(f"/proc/self/fd/{name}"))
        except OSError:
            pass
    return {one for one in found if one.startswith("socket:")}

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

def ended(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

store = PostgresStore(sys.argv[1])
"""


def told(text, url):
    """The output of a script, which must not log anything."""
    command = [sys.executable, "-W", "error", "-c", BEGIN + text, url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=40, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


INSIDE = """
async def main():
    await store.open()
    hints = []
    store.listen(lambda: hints.append(1))
    pids = set(await asyncio.gather(*(store._call("nap", 0.02) for _ in range(20))))
    mine = await store._call("who"), await asyncio.to_thread(store._call_blocking, 5, "who")
    while not hints:
        await asyncio.sleep(0.01)
    before = sockets()

    def child():
        shared = sockets() & before
        ours = [one for one in shared if one in server]
        assert not ours, ours
        def work():
            assert asyncio.run(store._call("who")) not in mine
            assert store._call_blocking(5, "who") not in mine
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()

    # Those that lead to the server; a loop has sockets of its own besides.
    pool = store._pool()
    listening = [one._session for one in store._listeners._listeners.values()]
    server = {os.readlink(f"/proc/self/fd/{one._transport.get_extra_info('socket').fileno()}") for one in
              [*pool.sessions, store._renewer._session, *listening]}
    assert len(server) >= 4 and server <= before
    busy = asyncio.create_task(store._call("nap", 0.3))
    await asyncio.sleep(0.01)
    codes = []
    for _ in range(3):
        codes.append(await asyncio.to_thread(ended, forked(child)))
    print(codes, await busy)
    assert (await store._call("who"), await asyncio.to_thread(store._call_blocking, 5, "who")) == mine
    hints.clear()
    await store._call("told")
    while not hints:
        await asyncio.sleep(0.01)
    await store.close()

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks at its sockets by /proc")
def test_a_child_has_none_of_the_parents_sockets_and_both_go_on(database, admin):
    """A call is under way, a listener exists, a renewal was made: none of them is disturbed."""
    admin.execute(
        "set search_path = workflow; create function told() returns void language sql "
        "set search_path = workflow as 'select hint()'"
    )
    assert told(INSIDE, database.url) == ["[0, 0, 0] 0.3"]


PREFORK = """
asyncio.run(store.open())
asyncio.run(store._call("who"))
children = [forked(lambda: [asyncio.run(store._call("nap", 0.01)) for _ in range(10)]) for _ in range(4)]
print([ended(pid) for pid in children], asyncio.run(store._call("nap", 0.01)))
asyncio.run(store.close())
"""


@pytest.mark.slow
def test_a_store_that_is_opened_before_the_fork_is_open_after_it(database):
    """The way of a preforking server."""
    assert told(PREFORK, database.url) == ["[0, 0, 0, 0] 0.01"]
