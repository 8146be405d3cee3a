"""Live trails: server-sent events of the API, with reconnection behind the last entry."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator
from contextlib import AsyncExitStack, aclosing
from typing import NamedTuple
from uuid import UUID

import msgspec

from holdfast.errors import HoldfastError, StoreError
from holdfast.http.problems import Code
from holdfast.records import TrailEntry
from holdfast.shown.records import trail_entry_of
from holdfast.shown.shapes import RunData, TrailEntryData

from .base import Pairs
from .transport import Lost, Transport, in_time

SILENT_SECONDS = 45.0  # the server sends a comment every 15 s: after this time the connection is dead
STEADY_SECONDS = 2.0  # a stream that was open for so long was a good one
EVENT_BYTES = 16 * 1024 * 1024
_LARGE = f"the server has sent an event of more than {EVENT_BYTES:,} bytes"
_AGAIN = frozenset(
    {Code.SHUTTING_DOWN, Code.SERVER_FULL, Code.STORE_UNAVAILABLE, Code.STREAMS_LIMIT, Code.RATE_LIMIT}
)


class End(msgspec.Struct, frozen=True):
    """The end of a run's trail. present: the present run of its chain; None: the run is gone."""

    status: str | None = None
    present: UUID | None = None


class Event(NamedTuple):
    """One server-sent event."""

    name: str
    data: bytes


async def followed(
    transport: Transport, run: UUID | None, after: int, query: Pairs
) -> AsyncGenerator[TrailEntry | End, None]:
    """Yield the trail of a run, and its end; or the trail of all runs, which has no end.

    A stream that breaks is opened again, while the server does not stay away for the time limit of a request.
    That time begins anew with each entry, and with the break of a stream that was open for some seconds. It
    does not run while a stream is open; but streams that all end at once do not prolong it.
    """
    world, limit = transport.world, transport.timeout_seconds
    last, tries, until = after, 0, world.monotonic() + limit
    while True:
        opened, pause = None, 0.0
        try:
            async with aclosing(_stream(transport, run, last, query, until)) as stream:
                async for one in stream:
                    opened = world.monotonic() if opened is None else opened
                    if isinstance(one, End):
                        yield one
                        return
                    if one is not None and one.seq > last:
                        last, tries, until = one.seq, 0, world.monotonic() + limit
                        opened = world.monotonic()
                        yield one
            error: HoldfastError = transport.unreachable("it has ended the stream")
        except Lost as lost:
            error = transport.unreachable(str(lost))
        except _Away as away:
            error, pause = away.error, away.pause
        if opened is not None:
            lived = world.monotonic() - opened
            tries, until = (tries, until + lived) if lived < STEADY_SECONDS else (0, opened + lived + limit)
        delay = max(transport.delay(tries), pause)
        if world.monotonic() + delay >= until:
            raise error
        tries += 1
        await asyncio.sleep(delay)


class _Away(Exception):
    """A refusal after which the stream is tried again."""

    def __init__(self, error: HoldfastError, pause: float) -> None:
        super().__init__(str(error))
        self.error, self.pause = error, pause


async def _stream(
    transport: Transport, run: UUID | None, after: int, query: Pairs, until: float
) -> AsyncGenerator[TrailEntry | End | None, None]:
    """Open the stream once, before `until`, and yield its entries; None for a sign of life."""
    path = None if run is None else {"run": run}
    request = transport.request("trail_of_all" if run is None else "trail", path=path, query=query)
    headers = {"accept": "text/event-stream", "cache-control": "no-store", "last-event-id": str(after)}
    async with AsyncExitStack() as stack:
        opening = transport.opened(request, SILENT_SECONDS, headers, long=True)
        async with in_time(until - transport.world.monotonic()):
            response = await stack.enter_async_context(opening)
            problem = None if response.status_code in {200, 204} else await transport.problem_of(response)
        if problem is not None:
            error = transport.refusal(problem, request.asked)
            raise _Away(error, problem.retry_after_seconds or 0.0) if problem.code in _AGAIN else error
        if response.status_code == 204:  # the run has ended, and there is nothing behind `after`
            yield await _ended(transport, run, query)
            return
        if not response.headers.get("content-type", "").startswith("text/event-stream"):
            raise StoreError(f"{transport.url} answers with no stream: check the URL and its path")
        yield None
        async for event in events(response.aiter_bytes()):
            yield _read(event)


async def _ended(transport: Transport, run: UUID | None, query: Pairs) -> End:
    request = transport.request("get", path={"run": run}, query=query)
    found = await transport.ask(request, RunData)
    return End(found.status, found.present)


def _read(event: Event) -> TrailEntry | End | None:
    try:
        if event.name == "end":
            return msgspec.json.decode(event.data, type=End)
        if event.name == "message":
            return trail_entry_of(msgspec.json.decode(event.data, type=TrailEntryData))
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise StoreError(f"the server has sent an event that cannot be read: {error}") from None
    return None  # a kind of event that this version does not know


async def events(parts: AsyncIterable[bytes]) -> AsyncIterator[Event]:
    """Yield the events of a stream. Lines end with a line feed: text in JSON may hold other line breaks."""
    name, data, size = "message", list[bytes](), 0
    async for line in _lines(parts):
        if not line:
            if data:
                yield Event(name, b"\n".join(data))
            name, data, size = "message", [], 0
            continue
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"event":
            name = value.decode(errors="replace")
        elif field == b"data":
            data.append(value)
            size += len(value) + 1
            if size > EVENT_BYTES:
                raise StoreError(_LARGE)


async def _lines(parts: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    buffer = bytearray()
    async for part in parts:
        buffer += part
        while (end := buffer.find(b"\n")) >= 0:
            line = bytes(buffer[:end]).removesuffix(b"\r")
            del buffer[: end + 1]
            yield line
        if len(buffer) > EVENT_BYTES:
            raise StoreError(_LARGE)
