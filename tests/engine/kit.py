"""Small words for engine tests: processes that can be killed, and waiting for a state in virtual time."""

from __future__ import annotations

import asyncio
import signal
import time
from contextlib import asynccontextmanager

from holdfast.engine import stopping
from holdfast.engine.worker import Worker
from holdfast.lifecycle import FINAL
from holdfast.testing import VirtualWorld


class Process:
    """A worker in a process of its own: it can be killed, or stopped and let go on as a zombie."""

    def __init__(self, app, seed, store=None, **options):
        self.world = VirtualWorld(seed)
        self.worker = Worker(store or app.store, self.world, app.workflows, **options)

    async def begin(self):
        # Entered from inside its world, so that everything it makes belongs to it.
        await self.world.spawn(self.worker.__aenter__(), "begin")
        return self

    def kill(self):
        """As kill -9: not a line of its code runs any more."""
        self.world.freeze()

    stop = kill

    def go_on(self):
        """As SIGCONT: it believes that no time has passed."""
        self.world.thaw()


async def process(app, seed, store=None, **options):
    return await Process(app, seed, store, **options).begin()


@asynccontextmanager
async def working(app, **options):
    """A worker in the test's own process."""
    async with app.worker(**options) as worker:
        yield worker


async def signalled(number):
    """Send ourselves a signal, until it is heard. A thread hands it on, and virtual time waits for none."""
    told = list(stopping._listeners[asyncio.get_running_loop()].told)
    signal.raise_signal(number)
    while not all(one.first.is_set() for one in told):
        time.sleep(0.001)  # noqa: ASYNC251 - real time
        await asyncio.sleep(0)


async def until(app, run, *statuses, within=3600.0):
    """The run as soon as it is in one of these statuses (none given: final)."""
    wanted = set(statuses) or FINAL
    async with asyncio.timeout(within):
        while (found := await app.get(run.id)).status not in wanted:  # noqa: ASYNC110
            await asyncio.sleep(0.01)  # virtual: it costs nothing
    return found


async def outcome(app, run, within=3600.0):
    """How a run ended, as (status, result or kind of error)."""
    found = await app.final(run.id, within)
    return str(found.status), found.error.kind if found.error else found.result


async def trail(app, run):
    """The types of what happened, in order."""
    return [entry.type for entry in await app.trail(run.id)]


async def keys(app, run):
    """The keys of the recorded steps, in order."""
    return [step.key for step in await app.steps(run.id)]
