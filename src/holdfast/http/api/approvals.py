"""Approvals: the inbox of open gates, and decisions."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from msgspec import Meta
from msgspec.structs import asdict

from holdfast.http.call import Call, Page
from holdfast.http.operation import Body, operation
from holdfast.http.problems import Code, Refusal
from holdfast.records import Scope
from holdfast.shown.data import approval_data, decided_data, run_values_data
from holdfast.shown.shapes import ApprovalData, DecidedData, RunValuesData

from .fields import OneTenant, Paged, RunPath, StepKey

TAG = "Approvals"


class ApprovalQuery(Paged, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """after_run, after_step: instead of a cursor, the gates behind this one."""

    after_run: UUID | None = None
    after_step: StepKey | None = None


class Decide(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """step: the gate; it may be left out while the run has had only one. digest: of what the person saw."""

    step: StepKey | None = None
    comment: Annotated[str, Meta(max_length=10_000)] = ""
    digest: Annotated[str, Meta(max_length=255)] | None = None


class DecidedRunData(DecidedData, frozen=True, kw_only=True, omit_defaults=True):
    """A decision, and the run after it."""

    decided_run: RunValuesData


@operation("GET", "/approvals", tag=TAG, scope=(Scope.APPROVALS_DECIDE, Scope.RUNS_READ))
async def approvals(call: Call, query: ApprovalQuery) -> Page[ApprovalData]:
    """List open gates, oldest run first.

    Question and data are shown to keys with `approvals.decide` or `payloads.read`.
    """
    client = call.client(query.tenant)
    last = call.after(query.cursor)
    after = None if last is None else (UUID(last[0]), last[1])
    if query.after_run is not None or query.after_step is not None:
        if query.after_run is None or query.after_step is None or after is not None:
            raise Refusal(Code.BAD_VALUE, "query: give after_run and after_step together, or a cursor")
        after = (query.after_run, query.after_step)
    found = await client.approvals(call.scope, query.limit, after)
    sees = call.actor.sees_values or call.actor.has(Scope.APPROVALS_DECIDE)
    items = [approval_data(one) if sees else call.shown(approval_data(one)) for one in found]
    return call.page(items, (str(found[-1].run), found[-1].step) if found else None)


@operation("POST", "/runs/{run}/approve", tag=TAG, scope=Scope.APPROVALS_DECIDE)
async def approve(call: Call, path: RunPath, query: OneTenant, body: Decide) -> DecidedRunData:
    """Approve an open gate of a run. The same decision again changes nothing."""
    return await _decide(call, path, query, body, approved=True)


@operation("POST", "/runs/{run}/reject", tag=TAG, scope=Scope.APPROVALS_DECIDE)
async def reject(call: Call, path: RunPath, query: OneTenant, body: Decide) -> DecidedRunData:
    """Reject an open gate of a run: a plan fails, code reads the decision."""
    return await _decide(call, path, query, body, approved=False)


async def _decide(
    call: Call, path: RunPath, query: OneTenant, body: Decide, *, approved: bool
) -> DecidedRunData:
    client = call.client(query.tenant)
    verb = client.approve if approved else client.reject
    decided = await verb(path.run, body.step, by=call.by, comment=body.comment, digest=body.digest)
    run = call.shown(run_values_data(decided.run))
    return DecidedRunData(**asdict(decided_data(decided)), decided_run=run)
