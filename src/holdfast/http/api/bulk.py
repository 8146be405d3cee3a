"""Bulk operations: one verb on every run that a filter matches, as a durable run of its own."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

import msgspec
from msgspec import Meta

from holdfast.engine.bulk.asked import BULK_LABEL, BULK_TYPE, OPERATOR_TENANT, RATE, RATE_MAX, BulkVerb
from holdfast.engine.bulk.workflow import COUNT_MAX
from holdfast.http.call import Call, Page
from holdfast.http.operation import Body, operation
from holdfast.lifecycle import Status, StepKind
from holdfast.records import ANY, BEGINNING, RunFilter, Scope
from holdfast.records.fingerprints import FILTERS_MAX
from holdfast.shown.data import listed_run_data, run_data
from holdfast.shown.shapes import ListedRunData, RunData, Shape, StartedData

from .fields import Name, OneTenant, Paged, StepKey
from .runs import Fingerprint

TAG = "Bulk"
Zoned = Annotated[datetime, Meta(tz=True)]


class Where(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The filter: all that is given must hold. A type or an error that ends in % is a prefix."""

    statuses: Annotated[tuple[Status, ...], Meta(max_length=20)] = ()
    waiting_on: StepKind | None = None
    type: Name | None = None
    key: Name | None = None
    parent: UUID | None = None
    roots: bool = False
    labels: dict[str, str | None] = msgspec.field(default_factory=dict)
    error: Fingerprint | Annotated[tuple[Fingerprint, ...], Meta(max_length=FILTERS_MAX)] | None = None
    created_since: Zoned | None = None
    created_until: Zoned | None = None
    finished_since: Zoned | None = None
    finished_until: Zoned | None = None
    updated_since: Zoned | None = None
    updated_until: Zoned | None = None


class Bulk(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """verb: what is done. where: to which runs. rate: runs a second. step, children: as in the verb."""

    verb: BulkVerb
    where: Where
    rate: Annotated[int, Meta(ge=1, le=RATE_MAX)] = RATE
    key: Name | None = None
    step: StepKey | None = None
    children: bool = True


class Preview(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """verb: count only the runs that it would take. most: count no more, or some more, than that."""

    where: Where
    verb: BulkVerb | None = None
    most: Annotated[int, Meta(ge=1, le=COUNT_MAX)] = COUNT_MAX


class PreviewData(Shape, frozen=True, kw_only=True, omit_defaults=True):
    """How many runs a bulk operation would take, and the newest few of them. more: there may be more."""

    count: int
    more: bool
    sample: tuple[ListedRunData, ...]


@operation("POST", "/bulk", tag=TAG, scope=Scope.RUNS_WRITE, statuses=(201, 200))
async def bulk(call: Call, query: OneTenant, body: Bulk) -> StartedData:
    """Start a bulk operation: cancel, pause, resume, retry, rewind or delete all runs that match.

    It is a run of its own: `GET /runs/{id}` shows its progress, `pause` and `resume` stop it and let it go
    on, and its result is the report. With `key` the request can be repeated.
    """
    operations = call.client(query.tenant).bulk
    options: dict[str, Any] = {"rate": body.rate, "by": call.by, "key": body.key}
    if body.verb in {BulkVerb.CANCEL, BulkVerb.REWIND}:
        options["children"] = body.children
    if body.verb is BulkVerb.REWIND:
        options["step"] = BEGINNING if body.step is None else body.step
    call.is_repeatable = body.key is not None
    handle = await getattr(operations, body.verb)(_where(call, body.where), **options)
    call.status = 201 if handle.created else 200
    call.target = str(handle.id)
    return StartedData(id=handle.id, type=BULK_TYPE, created=handle.created)


@operation("POST", "/bulk/preview", tag=TAG, scope=Scope.RUNS_READ, audited=False)
async def preview(call: Call, query: OneTenant, body: Preview) -> PreviewData:
    """Count the runs that a bulk operation would take, up to `most`. Nothing is changed."""
    where = _where(call, body.where)
    found = await call.client(query.tenant).bulk.preview(where, body.verb, most=body.most)
    sample = tuple(call.shown(listed_run_data(one, None)) for one in found.sample)
    return PreviewData(count=found.count, more=found.more, sample=sample)


@operation("GET", "/bulk", tag=TAG, scope=Scope.RUNS_READ)
async def list_bulk(call: Call, query: Paged) -> Page[RunData]:
    """List the bulk operations of the tenant, newest first."""
    client = call.client(query.tenant)
    after = call.after(query.cursor)
    tenant = OPERATOR_TENANT if call.scope is ANY else call.scope
    where = RunFilter(type=BULK_TYPE, labels={BULK_LABEL: None}, tenant=tenant, values=False)
    found = await client.store.list(where, query.limit, None if after is None else UUID(after[0]))
    return call.page([call.shown(run_data(one)) for one in found], (str(found[-1].id),) if found else None)


def _where(call: Call, where: Where) -> RunFilter:
    if where.error:
        call.need(Scope.PAYLOADS_READ)
    fields = {name: getattr(where, name) for name in Where.__struct_fields__} | {"error": where.error or None}
    return RunFilter(**fields, tenant=call.scope, values=False)
