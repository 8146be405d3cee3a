"""Operations that count: runs by type and status, happenings per minute, due runs for an autoscaler."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from holdfast.arguments import check_patterns
from holdfast.contract import RATES_MAX
from holdfast.engine.definitions import matches
from holdfast.http.call import Call
from holdfast.http.operation import operation
from holdfast.records import Scope
from holdfast.shown.counts import (
    BacklogData,
    CountsData,
    RatesData,
    ScaleData,
    backlog_data,
    counts_data,
    rate_data,
    scale_data,
)
from holdfast.shown.shapes import Shape

from .fields import Name, OneTenant

TAG = "Metrics"
COUNTERS = (Scope.METRICS, Scope.RUNS_READ, Scope.OPERATOR)
Minute = Annotated[datetime, Meta(tz=True)]


class RatesQuery(OneTenant, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """since, until: the first and the last minute; without them the last hour."""

    since: Minute | None = None
    until: Minute | None = None
    limit: Annotated[int, Meta(ge=1, le=RATES_MAX)] = RATES_MAX


class ScaleQuery(OneTenant, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """type: only runs of this type, or of types that begin so: `shop.%`; all types without it."""

    type: Annotated[tuple[Name, ...], Meta(max_length=100, description="May be repeated.")] = ()


class BacklogItems(Shape, frozen=True, kw_only=True, omit_defaults=True):
    """The messages that are not delivered, by sink."""

    items: tuple[BacklogData, ...]


@operation("GET", "/counts", tag=TAG, scope=COUNTERS)
async def counts(call: Call, query: OneTenant) -> CountsData:
    """Count the runs by type and status, and all that has happened so far. It costs the same however many
    runs there are.
    """
    return counts_data(await call.client(query.tenant).counts())


@operation("GET", "/rates", tag=TAG, scope=COUNTERS)
async def rates(call: Call, query: RatesQuery) -> RatesData:
    """Count by minute and type how often runs were started, ended, retried, or lost by their worker.

    The last two days are kept. If `more` is true, ask again with `since` at the last minute that you got; if
    all numbers are of one minute, with a larger `limit`.
    """
    found = await call.client(query.tenant).rates(query.since, query.until, query.limit)
    return RatesData(items=tuple(rate_data(one) for one in found), more=len(found) >= query.limit)


@operation("GET", "/scale", tag=TAG, scope=COUNTERS)
async def scale(call: Call, query: ScaleQuery) -> ScaleData:
    """Count the due runs and those that are executed now: the signal for an autoscaler.

    `load` divided by the slots of a worker is the number of workers that all of it needs at once. All sums
    are there, also when nothing is due.
    """
    patterns = check_patterns(query.type)
    found = await call.client(query.tenant).scale()
    if patterns:
        items = tuple(one for one in found.items if matches(one.type, patterns))
        found = msgspec.structs.replace(found, items=items)
    return scale_data(found)


@operation("GET", "/outbox/backlog", tag=TAG, scope=Scope.OPERATOR)
async def backlog(call: Call) -> BacklogItems:
    """Count the pending and dead messages of the outbox, by sink, of all tenants."""
    client = call.api.client
    found, now = await client.backlog(), await call.api.store.now()
    return BacklogItems(items=backlog_data(found, now))
