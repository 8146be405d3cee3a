"""Event streams (SSE): a response that goes on until the run ends, the key is revoked or the server stops."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

import msgspec
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from holdfast.errors import StoreError
from holdfast.records import TrailEntry
from holdfast.shown.data import trail_data

from .access import Actor
from .call import Call
from .parsing import LARGE_BYTES

if TYPE_CHECKING:
    from .server import Api

log = logging.getLogger("holdfast.http")

COMMENT_SECONDS = 15.0  # a comment keeps proxies from closing a quiet stream
SEND_SECONDS = 60.0  # a client that takes nothing for so long is dropped
FIRST_SECONDS = 0.1  # an error that comes within this time is a problem, not the end of a stream
EVENTS_KEPT = 4  # large ones
LAST_SECONDS = 1.0  # to take the end of a stream
ABORT = "holdfast.abort"  # the extension of ASGI, of our own server, that drops the connection at once
HEADERS = {
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "x-accel-buffering": "no",  # nginx would collect events otherwise
}
_Key = tuple[UUID, int, bool]  # run and seq of an entry, and whether its values are seen
_COMMENT = b": still here\n\n"


def written(call: Call, entry: TrailEntry) -> bytes:
    """Return one entry of the trail as an event. JSON has no line breaks, so one `data:` line is enough."""
    large, sees_values = call.api.large_events, call.actor.sees_values
    if (event := large.find(entry, sees_values)) is not None:
        return event
    data = msgspec.json.encode(call.shown(trail_data(entry)))
    event = b"id: %d\ndata: %s\n\n" % (entry.seq, data)
    if len(event) > LARGE_BYTES:
        large.keep(entry, sees_values, event)
    return event


class LargeEvents:
    """The last large events: a thousand clients that follow one run get the same bytes."""

    def __init__(self) -> None:
        self._kept: OrderedDict[_Key, tuple[TrailEntry, bytes]] = OrderedDict()

    def find(self, entry: TrailEntry, sees_values: bool) -> bytes | None:  # noqa: FBT001 - one of two forms
        """Return the event of an entry, as a client sees it that sees values, or does not."""
        kept = self._kept.get((entry.run, entry.seq, sees_values))
        return kept[1] if kept is not None and kept[0] == entry else None

    def keep(self, entry: TrailEntry, sees_values: bool, event: bytes) -> None:  # noqa: FBT001
        """Keep an event."""
        self._kept[entry.run, entry.seq, sees_values] = entry, event
        if len(self._kept) > EVENTS_KEPT:
            self._kept.popitem(last=False)


def end(status: str | None, present: str | None = None) -> bytes:
    """Return the last event of a stream. status: of the ended run; None: the run is gone."""
    return b"event: end\ndata: %s\n\n" % msgspec.json.encode({"status": status, "present": present})


class Streamed(Protocol):
    """The request whose answer is a stream: a call of an operation, or of a page."""

    api: Api
    actor: Actor
    id: str


class EventStream(Response):
    """An answer that sends the parts of `events` as they come. It counts as open until it ends."""

    def __init__(self, call: Streamed, events: AsyncIterator[bytes]) -> None:
        super().__init__(media_type="text/event-stream", headers=HEADERS)
        del self.headers["content-length"]
        self._call, self._events = call, events
        self._first: asyncio.Future[bytes] | None = None
        call.api.streams.take(call.actor)

    async def begin(self) -> None:
        """Begin to follow, before anything is sent: an error that comes at once becomes a problem."""
        self._first = asyncio.ensure_future(anext(self._events, b""))
        try:
            done, _ = await asyncio.wait([self._first], timeout=FIRST_SECONDS)
            if done:
                self._first.result()
        except BaseException:
            self._first.cancel()
            self._call.api.streams.give_back(self._call.actor)
            raise

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events until they end, the client goes, or the stream is stopped."""
        api, actor = self._call.api, self._call.actor
        work = asyncio.ensure_future(self._send(scope, send))
        gone = asyncio.ensure_future(disconnected(receive))
        stopped = api.streams.stopped(actor, work)
        try:
            await asyncio.wait([work, gone], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped()
            try:
                for task in (work, gone):
                    task.cancel()
                await asyncio.gather(work, gone, return_exceptions=True)
                self._note_error(work)
                await _last(scope, receive, send)
            finally:
                api.streams.give_back(actor)

    async def _send(self, scope: Scope, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async with aclosing(_with_comments(self._events, self._first)) as parts:
            await self._part(b"retry: 1000\n\n", scope, send)
            async for part in parts:
                await self._part(part, scope, send)

    async def _part(self, part: bytes, scope: Scope, send: Send) -> None:
        message: Message = {"type": "http.response.body", "body": part, "more_body": True}

        async def in_time(some: Message) -> None:
            async with asyncio.timeout(SEND_SECONDS):
                await send(some)

        await self._call.api.unsent.part(message, self._call.actor.tenant, scope, in_time)

    def _note_error(self, work: asyncio.Future[None]) -> None:
        error = None if work.cancelled() else work.exception()
        if isinstance(error, TimeoutError):
            log.info("request %s: the client took nothing of its stream for a long time", self._call.id)
        elif isinstance(error, StoreError):
            log.warning("request %s: the store did not answer: %s", self._call.id, error)
        elif error is not None:
            log.error("request %s: its stream failed", self._call.id, exc_info=error)


async def _last(scope: Scope, receive: Receive, send: Send) -> None:
    """End the response; a client that does not take the end loses its connection."""
    with suppress(Exception):  # the client may be gone, or take nothing
        async with asyncio.timeout(LAST_SECONDS):
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        return
    if (abort := scope.get("extensions", {}).get(ABORT)) is None:
        return  # the server closes a connection whose response has no end
    abort["call"]()
    with suppress(TimeoutError):
        async with asyncio.timeout(LAST_SECONDS):
            await disconnected(receive)


async def _with_comments(
    events: AsyncIterator[bytes], first: asyncio.Future[bytes] | None = None
) -> AsyncGenerator[bytes, None]:
    """Yield the events, and a comment whenever none has come for some time. first: the next event."""
    following = first or asyncio.ensure_future(anext(events, b""))
    try:
        while True:
            done, _ = await asyncio.wait([following], timeout=COMMENT_SECONDS)
            if not done:
                yield _COMMENT
                continue
            if not (part := following.result()):
                return
            yield part
            following = asyncio.ensure_future(anext(events, b""))
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        if (close := getattr(events, "aclose", None)) is not None:
            await close()


async def disconnected(receive: Receive) -> None:
    """Wait until the client has closed the connection, or the server has."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def until_done(call: Call, work: asyncio.Future[Any]) -> None:
    """Wait for the end of a long poll's work. ClientDisconnect: the client has left, nobody waits for it."""
    gone = asyncio.ensure_future(disconnected(call.request.receive))
    try:
        await asyncio.wait([work, gone], return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            raise ClientDisconnect
    finally:
        gone.cancel()
