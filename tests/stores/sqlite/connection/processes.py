"""Other processes that use the file during a test."""

from __future__ import annotations

import asyncio
import multiprocessing
from contextlib import contextmanager

from tests.stores.sqlite.files import ask, new_run, opened

PATIENCE = 30.0
_spawn = multiprocessing.get_context("spawn")


def open_and_start(path, ready, answers):
    """Open a new file and start a run, in all processes at once."""

    async def main():
        ready.wait(PATIENCE)
        async with opened(path) as store:
            (started,) = await store.start([new_run()])
            answers.put(started.created)

    asyncio.run(main())


def claim_all(path, ready, answers):
    """Claim a few runs at a time until none is left."""

    async def main():
        async with opened(path) as store:
            ready.wait(PATIENCE)
            taken = []
            while claims := await store.claim(ask(limit=3)):
                taken += [str(claim.id) for claim in claims]
            answers.put(taken)

    asyncio.run(main())


def write_hotly(path, ready, stop):
    """Commit again and again without a pause."""

    async def main():
        async with opened(path) as store:
            ready.set()
            while not stop.is_set():
                await asyncio.gather(*(store.start([new_run() for _ in range(50)]) for _ in range(4)))

    asyncio.run(main())


def start_when_told(path, ready, go):
    async def main():
        async with opened(path) as store:
            ready.set()
            assert go.wait(PATIENCE)
            await store.start([new_run()])

    asyncio.run(main())


def crowd(target, path, count):
    """Run `target` in `count` processes, all released at once. Return their answers."""
    ready, answers = _spawn.Barrier(count), _spawn.Queue()
    processes = [_spawn.Process(target=target, args=(path, ready, answers)) for _ in range(count)]
    for process in processes:
        process.start()
    told = [answers.get(timeout=PATIENCE) for _ in processes]
    for process in processes:
        process.join(PATIENCE)
    assert [process.exitcode for process in processes] == [0] * count
    return told


@contextmanager
def beside(target, path):
    """Run a process beside the test. Yield the event that it waits for, or that stops it."""
    ready, told = _spawn.Event(), _spawn.Event()
    process = _spawn.Process(target=target, args=(path, ready, told))
    process.start()
    try:
        assert ready.wait(PATIENCE)
        yield told
    finally:
        told.set()
        process.join(PATIENCE)
    assert process.exitcode == 0
