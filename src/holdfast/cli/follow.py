"""Watching runs as they move: by notifications of the store, and by polling where there are none."""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from typing import TypeVar
from uuid import UUID

import click

from holdfast.cli.clients import Client
from holdfast.errors import Unavailable
from holdfast.lifecycle import Status
from holdfast.records import Run, TrailEntry
from holdfast.shown.text import clean, short
from holdfast.shown.times import ago, day, span
from holdfast.shown.waits import waits

from .program import pastable
from .terminal import cut
from .trail_lines import TrailLines

STATUS_SECONDS = 1.0  # after this time a status line shows that the command is still waiting
WORKER_CHECK_SECONDS = 5.0
PAGE = 1000
HIDDEN_TYPES = ("started", "heartbeat")  # entries that say nothing new to a person who watches
T = TypeVar("T")


async def entries(client: Client, run: UUID | None, after: int = 0) -> AsyncIterator[TrailEntry]:
    """The trail up to now, page by page."""
    while page := await client.trail(run, after=after, limit=PAGE):
        for entry in page:
            yield entry
        after = page[-1].seq


async def wait_for_end(client: Client, run: UUID, timeout: float | None, *, show_trail: bool) -> Run:
    """Wait until a run has ended; print its trail on stderr if asked. Raises as `App.final` does."""
    watchers = (
        [
            asyncio.create_task(_print_trail(client, run)),
            asyncio.create_task(_warn_without_worker(client, run)),
        ]
        if show_trail
        else []
    )
    try:
        return await with_status_line(client.final(run, timeout), lambda: _position(client, run))
    except (asyncio.CancelledError, Unavailable):
        say(f"stopped waiting; the run continues, and `holdfast result {short(run)}` waits for it")
        raise
    finally:
        await _let_finish(watchers)


async def _warn_without_worker(client: Client, run: UUID) -> None:
    """Warn if no live worker can execute the run: the person would wait for nothing."""
    await asyncio.sleep(STATUS_SECONDS)
    # Check repeatedly: a worker that was killed counts as live for a while.
    while (explanation := await client.explain(run)).reason != "no_worker":  # noqa: ASYNC110 - nothing notifies
        await asyncio.sleep(WORKER_CHECK_SECONDS)
    say(click.style(clean(explanation.text), fg="yellow"))


async def _print_trail(client: Client, run: UUID) -> None:
    lines = TrailLines(today=day(datetime.now(UTC)))
    async for entry in client.follow(run):
        if entry.type not in HIDDEN_TYPES:
            for line in lines.lines(entry):
                say(line)


async def _let_finish(watchers: list[asyncio.Task[None]]) -> None:
    """Let the trail print its last lines before the result; stop the other watchers."""
    for watcher in watchers if sys.exc_info()[0] is not None else watchers[1:]:
        watcher.cancel()
    if watchers:
        await asyncio.wait(watchers, timeout=STATUS_SECONDS)
        watchers[0].cancel()


async def with_status_line(work: Awaitable[T], position: Callable[[], Awaitable[str]]) -> T:
    """Await `work`; on a terminal show after a second how long it takes, and where the run is."""
    task = asyncio.ensure_future(work)
    begun = time.monotonic()
    try:
        while not task.done():
            await asyncio.wait([task], timeout=STATUS_SECONDS)
            if not task.done() and sys.stderr.isatty():
                _status_line(f"waiting … {span(time.monotonic() - begun)}, {await position()}")
        return await task
    finally:
        task.cancel()
        if sys.stderr.isatty():
            _status_line("")


async def _position(client: Client, run: UUID) -> str:
    """The place where the run is, or the present run of its chain, in one line."""
    known = await client.present(run)
    now = await client.now()
    done = f"last finished step {clean(known.cursor)}, " if known.cursor else ""
    match known.status:
        case Status.WAITING:
            return f"{done}waits for {waits(known, now)}"
        case Status.PENDING if known.run_at > now:
            return f"{done}due {ago(known.run_at, now)}"
        case Status.PENDING:
            return clean((await client.explain(run)).text)
        case Status.LEASED:
            return f"{done}running"
        case _:
            return f"{done}{known.status}"


def say(text: str) -> None:
    """Print a line on stderr, above the status line; commands in it can be copied and pasted."""
    if sys.stderr.isatty():
        _status_line("")
    click.echo(pastable(text), err=True)


def _status_line(text: str) -> None:
    """Write over the one line that shows the status."""
    sys.stderr.write("\r\x1b[K" + cut(text, shutil.get_terminal_size().columns - 1))
    sys.stderr.flush()
