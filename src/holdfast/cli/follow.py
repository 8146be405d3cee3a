"""Watch runs as they move: by the store's hints, by polling where none come."""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar
from uuid import UUID

import click

from holdfast.engine.client import Client
from holdfast.engine.keeper import Bell
from holdfast.errors import Unavailable
from holdfast.lifecycle import FINAL, Status
from holdfast.records import Run, TrailEntry, moment

from .find import short
from .program import pastable
from .text import ago, clean, cut, span
from .words import line, waits

QUIET_SECONDS = 1.0  # what takes longer shows that it is alive
ASK_SECONDS = 5.0  # how often it is asked whether there is a worker at all
PAGE = 1000
UNTOLD = ("started", "heartbeat")  # of no news to someone who watches
T = TypeVar("T")


async def entries(client: Client, run: UUID | None, after: int = 0) -> AsyncIterator[TrailEntry]:
    """The trail up to now, page by page."""
    while page := await client.trail(run, after=after, limit=PAGE):
        for entry in page:
            yield entry
        after = page[-1].seq


async def follow(client: Client, run: UUID | None, after: int = 0) -> AsyncIterator[TrailEntry]:
    """The trail as it grows; of one run until it has ended, and on with its chain; of all for ever."""
    bell = Bell()
    unlisten = client.store.listen(bell.ring)
    try:
        while True:
            # The status first: what led to a final one is then in the trail that is read after it.
            seen = None if run is None else await client.known(run)
            async for entry in entries(client, run, after):
                after = entry.seq
                bell.found()
                yield entry
            if seen is not None and seen.present != seen.id:
                run, after = seen.present, 0
            elif seen is not None and seen.status in FINAL:
                return
            else:
                await bell.wait(None)
    finally:
        unlisten()


async def to_its_end(client: Client, run: UUID, timeout: float | None, *, told: bool) -> Run:
    """Wait until a run has ended, telling on stderr how it goes; raises as `Client.final` does."""
    watchers = (
        [asyncio.create_task(_tell(client, run)), asyncio.create_task(_warn(client, run))] if told else []
    )
    try:
        return await alive(client.final(run, timeout), lambda: _where(client, run))
    except (asyncio.CancelledError, Unavailable):
        say(f"no longer waiting; the run goes on, and `holdfast result {short(run)}` waits for it")
        raise
    finally:
        await _let_finish(watchers)


async def _warn(client: Client, run: UUID) -> None:
    """A run that nobody can execute would be waited for in silence."""
    await asyncio.sleep(QUIET_SECONDS)
    # Again and again: a worker that was killed is taken for alive for a while.
    while (told := await client.explain(run)).reason != "no_worker":  # noqa: ASYNC110 - no news tells of it
        await asyncio.sleep(ASK_SECONDS)
    say(click.style(clean(told.text), fg="yellow"))


async def _tell(client: Client, run: UUID) -> None:
    async for entry in follow(client, run):
        if entry.type not in UNTOLD:
            say(line(entry))


async def _let_finish(watchers: list[asyncio.Task[None]]) -> None:
    """The last lines of the first belong before the result; the others are let go."""
    for watcher in watchers if sys.exc_info()[0] is not None else watchers[1:]:
        watcher.cancel()
    if watchers:
        await asyncio.wait(watchers, timeout=QUIET_SECONDS)
        watchers[0].cancel()


async def alive(work: Awaitable[T], where: Callable[[], Awaitable[str]]) -> T:
    """Await; on a terminal show after a second that something is going on, and how long it has."""
    task = asyncio.ensure_future(work)
    begun = time.monotonic()
    try:
        while not task.done():
            await asyncio.wait([task], timeout=QUIET_SECONDS)
            if not task.done() and sys.stderr.isatty():
                _status(f"waiting … {span(time.monotonic() - begun)}, {await where()}")
        return await task
    finally:
        task.cancel()
        if sys.stderr.isatty():
            _status("")


async def _where(client: Client, run: UUID) -> str:
    """Where a run is, or the present one of its chain, in as few words as fit on a line."""
    known = await client.present(run)
    now = moment(await client.store.now())
    done = f"last recorded step {clean(known.cursor)}, " if known.cursor else ""
    match known.status:
        case Status.WAITING:
            return f"{done}for {waits(known, now)}"
        case Status.PENDING if known.run_at > now:
            return f"{done}due {ago(known.run_at, now)}"
        case Status.PENDING:
            return clean((await client.explain(run)).text)
        case Status.LEASED:
            return f"{done}running"
        case _:
            return f"{done}{known.status}"


def say(text: str) -> None:
    """A line on stderr, above the status line; commands in it can be typed as they stand."""
    if sys.stderr.isatty():
        _status("")
    click.echo(pastable(text), err=True)


def _status(text: str) -> None:
    """One line that is written over again and again."""
    sys.stderr.write("\r\x1b[K" + cut(text, shutil.get_terminal_size().columns - 1))
    sys.stderr.flush()
