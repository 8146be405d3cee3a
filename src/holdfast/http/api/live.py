"""The trail of a run or of all runs of a tenant: in pages, or live as an event stream."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Annotated
from uuid import UUID

from msgspec import Meta
from starlette.responses import Response

from holdfast.arguments import BIG_MAX
from holdfast.bounds import BATCH_BYTES
from holdfast.engine.app.client import StoreClient
from holdfast.engine.live.news import Closed, Ended, Gone
from holdfast.http.call import PAGE, PAGE_MAX, Call
from holdfast.http.operation import Headers, operation
from holdfast.http.problems import Code, Refusal
from holdfast.http.streams import EventStream, end, written
from holdfast.lifecycle import FINAL
from holdfast.records import Scope, TrailEntry
from holdfast.records.sizes import entry_bytes
from holdfast.shown.data import trail_data
from holdfast.shown.shapes import Shape, TrailEntryData

from .fields import Limit, Name, OneTenant, RunPath

TAG = "Events"
WINDOWS = (1, 10, 60, 600, 3600, 86400)  # seconds: the end of a long trail is looked for in the last ones
Seq = Annotated[int, Meta(ge=0, le=BIG_MAX, description="The last seq that the caller has seen.")]
Zoned = Annotated[datetime, Meta(tz=True)]


class TrailQuery(OneTenant, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """after: entries behind this one. type: only entries of these types. since, until: of this time."""

    after: Seq | None = None
    limit: Limit = PAGE
    type: Annotated[tuple[Name, ...], Meta(max_length=40)] = ()
    since: Zoned | None = None
    until: Zoned | None = None


class RunTrailQuery(TrailQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """newest: only the last entries, still oldest first."""

    newest: Annotated[
        bool,
        Meta(
            description="The last entries, oldest first: at most `limit`, fewer when they are large; "
            "not with `after`."
        ),
    ] = False


class LastEvent(Headers, frozen=True, kw_only=True):
    """The last event that a browser has seen; it sends this when it reconnects."""

    last_event_id: Seq | None = None


class TrailPage(Shape, frozen=True, kw_only=True, omit_defaults=True):
    """Entries of the trail, oldest first. next: the `after` of the next page; null: there are no more now."""

    items: tuple[TrailEntryData, ...]
    next: int | None


@operation("GET", "/runs/{run}/events", tag=TAG, scope=Scope.RUNS_READ, streams=True)
async def trail(call: Call, path: RunPath, query: RunTrailQuery, headers: LastEvent) -> TrailPage:
    """Read what happened to a run, oldest first; or follow it live.

    With `Accept: text/event-stream` the entries are events: `id` is the seq, `data` the entry. The stream
    begins after `Last-Event-ID` (or `after`), goes on while the run is open, and ends with an event `end`
    that has the status. A client that reconnects after the end gets 204.
    """
    client = call.client(query.tenant)
    after = _after(query, headers)
    if not _wants_stream(call):
        if query.newest:
            return await _newest(call, client, path.run, query)
        found = await client.trail(
            path.run, after, query.limit, types=query.type, since=query.since, until=query.until
        )
        if not found:
            await client.known(path.run)
        return _page(call, found)
    _check_stream(call, query)
    run = await client.known(path.run)
    if run.status in FINAL and after and not await client.trail(path.run, after, 1):
        return Response(status_code=204)  # type: ignore[return-value]
    return EventStream(call, _followed(call, run.id, after, query.type))  # type: ignore[return-value]


@operation("GET", "/events", tag=TAG, scope=Scope.RUNS_READ, streams=True)
async def trail_of_all(call: Call, query: TrailQuery, headers: LastEvent) -> TrailPage:
    """Read what happened to all runs of the tenant, oldest first; or follow it live.

    With `Accept: text/event-stream` it is a stream, as for one run, that never ends. It begins after
    `Last-Event-ID` (or `after`), else with what happens from now on.
    """
    client = call.client(query.tenant)
    if not _wants_stream(call):
        found = await client.trail(
            None,
            _after(query, headers),
            query.limit,
            types=query.type,
            tenant=call.scope,
            since=query.since,
            until=query.until,
        )
        return _page(call, found)
    _check_stream(call, query)
    given = headers.last_event_id if headers.last_event_id is not None else query.after
    return EventStream(call, _all_followed(call, given, query.type))  # type: ignore[return-value]


async def _newest(call: Call, client: StoreClient, run: UUID, query: RunTrailQuery) -> TrailPage:
    """Return the last entries. A trail is read from its beginning: of a long one only its last second is
    read, then its last ten seconds, and so on until there are enough entries.
    """
    if query.after is not None or query.since is not None:
        raise Refusal(Code.BAD_VALUE, "query: newest takes no after and no since")
    ends = query.until or (await client.known(run)).updated_at

    async def last(since: datetime | None, found: Sequence[TrailEntry] = ()) -> _Last:
        kept, page = _Last(query.limit), found
        kept.extend(found)
        while page := await client.trail(
            run, page[-1].seq if page else 0, PAGE_MAX, types=query.type, since=since, until=query.until
        ):
            kept.extend(page)
        return kept

    first = await client.trail(run, 0, PAGE_MAX, types=query.type, until=query.until)
    for seconds in WINDOWS if len(first) == PAGE_MAX else ():
        found = await last(ends - timedelta(seconds=seconds))
        if found.is_full:
            return _page(call, found.entries)
    return _page(call, (await last(None, first)).entries if first else ())


class _Last:
    """The last entries of a trail: at most `most`, and as many as fit into one answer."""

    def __init__(self, most: int) -> None:
        self.entries: deque[TrailEntry] = deque()
        self._most, self._bytes, self._has_dropped = most, 0, False

    @property
    def is_full(self) -> bool:
        return len(self.entries) == self._most or self._has_dropped

    def extend(self, page: Sequence[TrailEntry]) -> None:
        for one in page:
            self.entries.append(one)
            self._bytes += entry_bytes(one)
            while len(self.entries) > self._most or (self._bytes > BATCH_BYTES and len(self.entries) > 1):
                self._bytes -= entry_bytes(self.entries.popleft())
                self._has_dropped = True


async def _followed(call: Call, run: UUID, after: int, types: tuple[str, ...]) -> AsyncIterator[bytes]:
    async with call.api.live.trail(run, call.scope, after) as trail:
        async for one in trail:
            match one:
                case Ended():
                    yield end(one.status, str(one.present))
                case Gone():
                    yield end(None)
                case Closed():
                    return
                case _:
                    if not types or one.type in types:
                        yield written(call, one)


async def _all_followed(call: Call, after: int | None, types: tuple[str, ...]) -> AsyncIterator[bytes]:
    async with call.api.live.tenant_trail(call.scope, after, types) as trail:
        async for one in trail:
            if not isinstance(one, TrailEntry):
                return
            yield written(call, one)


def _after(query: TrailQuery, headers: LastEvent) -> int:
    return headers.last_event_id if headers.last_event_id is not None else query.after or 0


def _wants_stream(call: Call) -> bool:
    wanted = "text/event-stream" in call.request.headers.get("accept", "").lower()
    return wanted and call.request.method != "HEAD"  # a stream without a body would never end


def _check_stream(call: Call, query: TrailQuery) -> None:
    if call.api.stopping:
        raise Refusal(Code.SHUTTING_DOWN, retry_after_seconds=1)
    if query.since is not None or query.until is not None:
        raise Refusal(Code.BAD_VALUE, "query.since, query.until: a stream takes none; use `after`")


def _page(call: Call, found: Iterable[TrailEntry]) -> TrailPage:
    items = tuple(call.shown(trail_data(one)) for one in found)
    return TrailPage(items=items, next=items[-1].seq if items else None)
