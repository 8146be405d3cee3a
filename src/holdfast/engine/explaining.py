"""What is looked up before a run can be explained: no more than its status calls for."""

from __future__ import annotations

from uuid import UUID

import msgspec

from holdfast.bounds import SHOWN_BYTES
from holdfast.contract import Store
from holdfast.errors import UnknownRun
from holdfast.escaping import escaped
from holdfast.lifecycle import FINAL, Status, StepKind
from holdfast.records import ANY, Instant, Run, RunFilter, Step, Tenant, moment

from .explain import SHOWN, Explanation, Known, explain
from .postal import with_messages

TEXT_MAX = 10_000  # characters of a sentence, whatever the names in it are


async def explained(store: Store, run: UUID, tenant: Tenant) -> Explanation:
    """Why the run is not moving, or the present one of its chain; also of one that is deleted. UnknownRun."""
    found = await _found(store, run, tenant)
    while found.present != found.id:
        found = await _found(store, found.present, tenant)
    told = explain(found, await _around(store, found))
    told = await with_messages(store, found.id, told) if found.status in FINAL else told
    return msgspec.structs.replace(told, text=escaped(told.text, TEXT_MAX))


async def _found(store: Store, run: UUID, tenant: Tenant) -> Run:
    found = await store.get(run, tenant) or await _deleted(store, run, tenant)
    if found is None:
        raise UnknownRun(run)
    return found


async def _around(store: Store, run: Run) -> Known:
    now = await store.now()
    match run.status:
        case Status.PENDING:
            # Who is there to take it may cost a scan.
            holds = await store.held_back(run.id, run.tenant)
            workers = (await store.stats()).workers
            return Known(now=now, workers=workers, holds=holds, failed=await _failed(store, run))
        case Status.PAUSED:
            by, after = "", 0
            while pauses := await store.trail(run.id, run.tenant, types=("paused",), after=after):
                by, after = str(pauses[-1].data.get("by") or ""), pauses[-1].seq
            return Known(now=now, paused_by=by, children=await _children(store, run))
        case _:
            workers = (await store.stats()).workers if _overdue(run, now) else ()
            return Known(now=now, workers=workers, children=await _children(store, run))


def _overdue(run: Run, now: Instant) -> bool:
    """Whether a keeper ought to have seen to it."""
    lease = run.lease_until is not None and run.lease_until < moment(now)
    return lease or any(one.due_at is not None and one.due_at <= now for one in run.waiting_on)


async def _failed(store: Store, run: Run) -> Step | None:
    """The step that is to be tried again."""
    error = run.error
    if error is None or error.step is None:
        return None
    steps = await store.steps(run.id, run.tenant, largest=SHOWN_BYTES)
    return next((one for one in steps if one.key == error.step), None)


async def _children(store: Store, run: Run) -> dict[UUID, Run]:
    """Those that it waits for and that will be told of."""
    waits = [one.child for one in run.waiting_on[:SHOWN] if one.kind is StepKind.CHILD]
    found = [
        await store.get(child, run.tenant) or await _deleted(store, child, run.tenant)
        for child in waits
        if child is not None
    ]
    return {child.id: child for child in found if child is not None}


async def _deleted(store: Store, run: UUID, tenant: Tenant) -> Run | None:
    """Find a deleted run. Lists alone show it: those go down by id, so it is the first one from here.

    The list is of all tenants: that of a tenant with few runs would be read a long way down.
    """
    if run.int + 1 >= 1 << 128:
        return None
    where = RunFilter(tenant=ANY, deleted=True, values=False)
    page = await store.list(where, 1, after=UUID(int=run.int + 1))
    return next((one for one in page if one.id == run and tenant in {ANY, one.tenant}), None)
