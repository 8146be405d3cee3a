"""Helpers of engine tests: worker processes that can be killed, and waiting for a state in virtual time."""

from __future__ import annotations

import asyncio
import signal
import time
from contextlib import asynccontextmanager

from holdfast.engine.worker import stopping
from holdfast.engine.worker.worker import Worker
from holdfast.lifecycle import FINAL
from holdfast.testing import VirtualWorld


class Process:
    """A worker in a process of its own. It can be killed, or stopped and resumed as a zombie."""

    def __init__(self, app, seed, store=None, **options):
        self.world = VirtualWorld(seed)
        self.worker = Worker(store or app.store, self.world, app.workflows, **options)

    async def begin(self):
        # Enter the worker from inside its world, so that everything it creates belongs to that world.
        await self.world.spawn(self.worker.__aenter__(), "begin")
        return self

    def kill(self):
        """Stop as `kill -9` does: no line of the process runs any more."""
        self.world.freeze()

    stop = kill

    def go_on(self):
        """Continue as after SIGCONT: the process believes that no time has passed."""
        self.world.thaw()


async def process(app, seed, store=None, **options):
    return await Process(app, seed, store, **options).begin()


@asynccontextmanager
async def working(app, **options):
    """Run a worker in the test's own process."""
    async with app.worker(**options) as worker:
        yield worker


async def send_signal(number):
    """Send this process a signal, and wait until all listeners have seen it.

    A thread passes the signal on, and virtual time does not wait for threads.
    """
    listeners = list(stopping._listeners[asyncio.get_running_loop()].requests)
    signal.raise_signal(number)
    while not all(one.first.is_set() for one in listeners):
        time.sleep(0.001)  # noqa: ASYNC251 - real time
        await asyncio.sleep(0)


async def until(app, run, *statuses, within=3600.0):
    """Return the run as soon as it has one of these statuses (by default: a final status)."""
    wanted = set(statuses) or FINAL
    async with asyncio.timeout(within):
        while (found := await app.get(run.id)).status not in wanted:  # noqa: ASYNC110
            await asyncio.sleep(0.01)  # virtual time
    return found


async def outcome(app, run, within=3600.0):
    """Return the end of a run: its status, and its result or the kind of its error."""
    found = await app.final(run.id, within)
    return str(found.status), found.error.kind if found.error else found.result


async def trail(app, run):
    """Return the types of the run's trail entries, in order."""
    return [entry.type for entry in await app.trail(run.id)]


async def keys(app, run):
    """Return the keys of the recorded steps, in order."""
    return [step.key for step in await app.steps(run.id)]
