"""What is looked up before a run can be explained: no more than its status calls for."""

from __future__ import annotations

from uuid import UUID

from holdfast.errors import UnknownRun
from holdfast.lifecycle import FINAL, Status, StepKind
from holdfast.records import Run, RunFilter
from holdfast.store import Store

from .explain import SHOWN, Explanation, Known, explain
from .postal import with_messages


async def explained(store: Store, run: UUID) -> Explanation:
    """Why the run is not moving; also of one that is deleted. UnknownRun."""
    found = await store.get(run) or await _deleted(store, run)
    if found is None:
        raise UnknownRun(run)
    told = explain(found, await _around(store, found))
    return await with_messages(store, found.id, told) if found.status in FINAL else told


async def _around(store: Store, run: Run) -> Known:
    now = await store.now()
    match run.status:
        case Status.PENDING:
            # Who is there to take it may cost a scan.
            holds = await store.held_back(run.id)
            workers = (await store.stats()).workers
            return Known(now=now, workers=workers, holds=holds, tries_max=await _tries_max(store, run))
        case Status.PAUSED:
            pauses = await store.trail(run.id, types=("paused",))
            by = str(pauses[-1].data.get("by") or "") if pauses else ""
            return Known(now=now, paused_by=by, children=await _children(store, run))
        case _:
            return Known(now=now, children=await _children(store, run))


async def _tries_max(store: Store, run: Run) -> int | None:
    """How often the step of a plan may be tried that has failed."""
    if run.kind != "plan" or run.error is None:
        return None
    return next((one.max_attempts for one in await store.steps(run.id) if one.key == run.error.step), None)


async def _children(store: Store, run: Run) -> dict[UUID, Run]:
    """Those that it waits for and that will be told of."""
    waits = [one.child for one in run.waiting_on[:SHOWN] if one.kind is StepKind.CHILD]
    found = [await store.get(child) for child in waits if child is not None]
    return {child.id: child for child in found if child is not None}


async def _deleted(store: Store, run: UUID) -> Run | None:
    """Lists alone show a deleted run: those go down by id, so it is the first one from here."""
    if run.int + 1 >= 1 << 128:
        return None
    page = await store.list(RunFilter(tenant=None, deleted=True), 1, after=UUID(int=run.int + 1))
    return next((one for one in page if one.id == run), None)
