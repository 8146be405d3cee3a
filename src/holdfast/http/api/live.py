"""The trail of a run or of all runs of a tenant: in pages, or live as an event stream."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Annotated
from uuid import UUID

from msgspec import Meta
from starlette.responses import Response

from holdfast.arguments import BIG_MAX
from holdfast.engine.live.news import Closed, Ended, Gone
from holdfast.http.call import PAGE, Call
from holdfast.http.operation import Headers, operation
from holdfast.http.problems import Code, Refusal
from holdfast.http.streams import EventStream, end, written
from holdfast.lifecycle import FINAL
from holdfast.records import Scope, TrailEntry
from holdfast.shown.data import trail_data
from holdfast.shown.shapes import Shape, TrailEntryData

from .fields import Limit, Name, OneTenant, RunPath

TAG = "Events"
Seq = Annotated[int, Meta(ge=0, le=BIG_MAX, description="The last seq that the caller has seen.")]
Zoned = Annotated[datetime, Meta(tz=True)]


class TrailQuery(OneTenant, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """after: entries behind this one. type: only entries of these types. since, until: of this time."""

    after: Seq | None = None
    limit: Limit = PAGE
    type: Annotated[tuple[Name, ...], Meta(max_length=40)] = ()
    since: Zoned | None = None
    until: Zoned | None = None


class LastEvent(Headers, frozen=True, kw_only=True):
    """The last event that a browser has seen; it sends this when it reconnects."""

    last_event_id: Seq | None = None


class TrailPage(Shape, frozen=True, kw_only=True, omit_defaults=True):
    """Entries of the trail, oldest first. next: the `after` of the next page; null: there are no more now."""

    items: tuple[TrailEntryData, ...]
    next: int | None


@operation("GET", "/runs/{run}/events", tag=TAG, scope=Scope.RUNS_READ, streams=True)
async def trail(call: Call, path: RunPath, query: TrailQuery, headers: LastEvent) -> TrailPage:
    """Read what happened to a run, oldest first; or follow it live.

    With `Accept: text/event-stream` the entries are events: `id` is the seq, `data` the entry. The stream
    begins after `Last-Event-ID` (or `after`), goes on while the run is open, and ends with an event `end`
    that has the status. A client that reconnects after the end gets 204.
    """
    client = call.client(query.tenant)
    after = _after(query, headers)
    if not _wants_stream(call):
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


def _page(call: Call, found: Sequence[TrailEntry]) -> TrailPage:
    items = tuple(call.shown(trail_data(one)) for one in found)
    return TrailPage(items=items, next=items[-1].seq if items else None)
