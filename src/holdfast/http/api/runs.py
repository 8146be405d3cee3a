"""Reads of runs: lists, one run, why it does not move, its result."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated
from uuid import UUID

from msgspec import UNSET, Meta, UnsetType

from holdfast.contract import CHILDREN_COUNTED
from holdfast.engine.app.client import StoreClient
from holdfast.errors import UnknownRun
from holdfast.http.access import unauthenticated
from holdfast.http.call import PAGE, Call
from holdfast.http.operation import operation
from holdfast.http.problems import Code, Refusal
from holdfast.http.streams import until_done
from holdfast.lifecycle import ALIASES, FINAL, Status, StepKind
from holdfast.records import ANY, Run, RunFilter, Scope
from holdfast.records.fingerprints import FILTERS_MAX
from holdfast.shown.data import (
    explanation_data,
    listed_run_data,
    listed_values_data,
    result_data,
    run_values_data,
)
from holdfast.shown.shapes import (
    ChildCountsData,
    ExplanationData,
    ListedRunData,
    ResultData,
    RunValuesData,
    Shape,
)

from .fields import Cursor, Limit, Name, OneTenant, RunPath

TAG = "Runs"
WAIT_MAX_SECONDS = 60.0
COUNT_MAX, COUNT_PAGE = 10_000, 1_000
CHILDREN = 1_000  # children of a run that a list counts
PARENTS_MAX = 90  # runs in one question about children
Zoned = Annotated[datetime, Meta(tz=True)]
Label = Annotated[
    str, Meta(min_length=1, max_length=600, description="`name=value`, or `name` for any value.")
]


Fingerprint = Annotated[str, Meta(min_length=1, max_length=1000)]


class RunFilters(OneTenant, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The filters of runs; all that are given must hold."""

    status: Annotated[tuple[Name, ...], Meta(max_length=20, description="May be repeated.")] = ()
    waiting_on: StepKind | None = None
    type: Annotated[Name, Meta(description="A type, or a prefix that ends in %.")] | None = None
    key: Name | None = None
    parent: UUID | None = None
    roots: bool = False
    label: Annotated[tuple[Label, ...], Meta(max_length=20)] = ()
    error: Annotated[
        tuple[Fingerprint, ...],
        Meta(max_length=FILTERS_MAX, description="A fingerprint, or a prefix with %. May be repeated."),
    ] = ()
    created_since: Zoned | None = None
    created_until: Zoned | None = None
    finished_since: Zoned | None = None
    finished_until: Zoned | None = None
    updated_since: Zoned | None = None
    updated_until: Zoned | None = None
    deleted: bool = False


class RunQuery(RunFilters, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A list of runs: its filters, its page, and what it shows."""

    limit: Limit = PAGE
    cursor: Cursor | None = None
    contains: (
        Annotated[
            str, Meta(min_length=1, max_length=200, description="Text in values; a slow scan in slices.")
        ]
        | None
    ) = None
    children: Annotated[bool, Meta(description="Count the children of each run.")] = False
    values: Annotated[bool, Meta(description="Also show params and result.")] = False
    after: Annotated[UUID, Meta(description="Instead of a cursor: runs behind this id.")] | None = None


class ListedRunPage(Shape, frozen=True, kw_only=True, omit_defaults=True):
    """One page of runs. next: the cursor of the next page; null: this was the last one.

    A page may have fewer items than `limit`, even none, and still have a next one. after: the id behind which
    the next page begins. looked_at: how many runs a search for a text has read.
    """

    items: tuple[ListedRunData, ...]
    next: str | None
    after: UUID | UnsetType = UNSET
    looked_at: int | UnsetType = UNSET


class ChildrenQuery(OneTenant, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """run: the parents, may be repeated. most: children of each that are counted."""

    run: Annotated[tuple[UUID, ...], Meta(min_length=1, max_length=PARENTS_MAX)]
    most: Annotated[int, Meta(ge=1, le=CHILDREN_COUNTED)] = CHILDREN_COUNTED


class RunChildrenData(ChildCountsData, frozen=True, kw_only=True, omit_defaults=True):
    """The children of one run."""

    run: UUID


class Children(Shape, frozen=True, kw_only=True, omit_defaults=True):
    """The children of some runs. Runs without children, and unknown ones, are left out."""

    items: tuple[RunChildrenData, ...]


class ResultQuery(OneTenant, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """wait: how many seconds to wait for the end of the run."""

    wait: Annotated[float, Meta(ge=0, le=WAIT_MAX_SECONDS)] = 0.0


class RunCount(Shape, frozen=True, kw_only=True, omit_defaults=True):
    """The number of runs that match. more: counting stopped there."""

    count: int
    more: bool


@operation("GET", "/runs", tag=TAG, scope=Scope.RUNS_READ)
async def list_(call: Call, query: RunQuery) -> ListedRunPage:
    """List runs, newest first; without their values, unless `values` asks for them."""
    client = call.client(query.tenant)
    where, after = run_filter(call, query, values=query.values), call.after(query.cursor, query)
    last = query.after if after is None else UUID(after[0])
    if after is not None and query.after is not None:
        raise Refusal(Code.BAD_VALUE, "query: give a cursor or after, not both")
    looked_at: int | UnsetType = UNSET
    if query.contains is not None:
        call.need(Scope.PAYLOADS_READ)
        found = await client.search(query.contains, where, query.limit, last)
        runs: Sequence[Run] = found.runs
        more, looked_at = found.after, found.looked_at
    else:
        runs = await client.list(where, query.limit, last)
        more = runs[-1].id if runs else None
    counts = {}
    if query.children and runs:
        counted = await client.children([run.id for run in runs], most=CHILDREN)
        counts = {one.run: one for one in counted}
    data = listed_values_data if query.values else listed_run_data
    items = tuple(call.shown(data(run, counts.get(run.id))) for run in runs)
    cursor = None if more is None else call.cursor(query, (str(more),))
    return ListedRunPage(items=items, next=cursor, after=UNSET if more is None else more, looked_at=looked_at)


@operation("GET", "/runs/count", tag=TAG, scope=Scope.RUNS_READ)
async def count(call: Call, query: RunFilters) -> RunCount:
    """Count the runs that match a filter, up to 10,000. Text in values cannot be counted."""
    client, after, found = call.client(query.tenant), None, 0
    where = run_filter(call, query)
    while page := await client.list(where, COUNT_PAGE, after):
        found, after = found + len(page), page[-1].id
        if found > COUNT_MAX:
            return RunCount(count=COUNT_MAX, more=True)
    return RunCount(count=found, more=False)


@operation("GET", "/runs/children", tag=TAG, scope=Scope.RUNS_READ)
async def children_of_many(call: Call, query: ChildrenQuery) -> Children:
    """Count the children of some runs by status."""
    found = await call.client(query.tenant).children(query.run, most=query.most)
    return Children(
        items=tuple(
            RunChildrenData(
                run=one.run, total=one.total, ended=one.ended, by_status=one.by_status, more=one.more
            )
            for one in found
        )
    )


@operation("GET", "/runs/{run}", tag=TAG, scope=Scope.RUNS_READ)
async def get(call: Call, path: RunPath, query: OneTenant) -> RunValuesData:
    """Read a run with its values, and the steps that are executed now."""
    return call.shown(run_values_data(await call.client(query.tenant).known(path.run)))


@operation("GET", "/runs/{run}/children", tag=TAG, scope=Scope.RUNS_READ)
async def children(call: Call, path: RunPath, query: OneTenant) -> ChildCountsData:
    """Count the children of a run by status, up to 10,000. `GET /runs?parent=` lists them."""
    client = call.client(query.tenant)
    await client.known(path.run)
    for one in await client.children([path.run]):
        return ChildCountsData(total=one.total, ended=one.ended, by_status=one.by_status, more=one.more)
    return ChildCountsData(total=0, ended=0, by_status={}, more=False)


@operation("GET", "/runs/{run}/explain", tag=TAG, scope=Scope.RUNS_READ)
async def explain(call: Call, path: RunPath, query: OneTenant) -> ExplanationData:
    """Say why a run does not move, in one word, in a sentence and as data."""
    client = call.client(query.tenant)
    explanation = await client.explain(path.run)
    run = await client.get(path.run) or await _deleted(client, path.run)
    if run.deleted_at is None:
        run = await client.present(path.run)
    shown = explanation_data(run, explanation)
    if call.actor.sees_values:
        return shown
    return ExplanationData(id=run.id, status=run.status, reason=shown.reason, text="", data={}, redacted=True)


@operation("GET", "/runs/{run}/result", tag=TAG, scope=Scope.PAYLOADS_READ, statuses=(200, 202))
async def result(call: Call, path: RunPath, query: ResultQuery) -> ResultData:
    """Read the result or the error of a run; wait up to 60 s for its end.

    Status 200: the run has ended. Status 202: it is still open; ask again. For a chain of runs that continue
    each other it is the last one.
    """
    client = call.client(query.tenant)
    found = await client.present(path.run)
    if query.wait and found.status not in FINAL:
        ended = await _until_ended(call, path.run, query.wait)
        found = await client.present(path.run) if ended is None else ended
    call.status = 200 if found.status in FINAL else 202
    return result_data(found)


async def _until_ended(call: Call, run: UUID, seconds: float) -> Run | None:
    """Wait for the end of a run; None: it is still open. The wait ends when the caller's key is revoked."""
    streams, actor = call.api.streams, call.actor
    with streams.one(actor):
        waiting = asyncio.ensure_future(call.api.live.ended(run, call.scope, seconds))
        release = streams.stopped(actor, waiting)
        try:
            await until_done(call, waiting)
        finally:
            release()
            waiting.cancel()
    if waiting.cancelled():
        raise unauthenticated()
    return waiting.result()


async def _deleted(client: StoreClient, run: UUID) -> Run:
    """Return a deleted run. Only lists have them; they are sorted by descending id."""
    where = RunFilter(tenant=client.tenant, deleted=True, values=False)
    found = await client.list(where, 1, UUID(int=min(run.int + 1, 2**128 - 1)))
    if not found or found[0].id != run:
        raise UnknownRun(run)
    return found[0]


def run_filter(call: Call, query: RunFilters, *, values: bool = False) -> RunFilter:
    """Return the filter of the library for a query."""
    if query.error:
        call.need(Scope.PAYLOADS_READ)  # a prefix of a message would tell it, letter by letter
    return RunFilter(
        statuses=tuple(_status(one) for one in query.status),
        waiting_on=_waiting_on(query),
        type=query.type,
        tenant=ANY if call.scope is ANY else call.tenant,
        key=query.key,
        parent=query.parent,
        roots=query.roots,
        labels=_labels(query.label),
        error=query.error[0] if len(query.error) == 1 else query.error or None,
        created_since=query.created_since,
        created_until=query.created_until,
        finished_since=query.finished_since,
        finished_until=query.finished_until,
        updated_since=query.updated_since,
        updated_until=query.updated_until,
        deleted=query.deleted,
        values=values,
    )


def _status(word: str) -> Status:
    plain = word.lower().replace("-", "_")
    if plain in ALIASES:
        return ALIASES[plain]
    try:
        return Status(plain)
    except ValueError:
        raise Refusal(Code.BAD_VALUE, f"query.status: use one of {', '.join(Status)}") from None


def _waiting_on(query: RunFilters) -> StepKind | None:
    if any(one.lower().replace("-", "_") == "waiting_approval" for one in query.status):
        return StepKind.APPROVAL
    return query.waiting_on


def _labels(texts: tuple[str, ...]) -> dict[str, str | None]:
    labels: dict[str, str | None] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not name or name in labels:
            raise Refusal(Code.BAD_VALUE, "query.label: write name=value, or name; each name once")
        labels[name] = value if sign else None
    return labels
