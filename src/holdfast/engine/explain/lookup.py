"""Looking up the facts that `explain` needs: no more than the run's status requires."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec

from holdfast.bounds import SHOWN_BYTES
from holdfast.contract import Store
from holdfast.engine.outbox.health import with_messages
from holdfast.errors import UnknownRun
from holdfast.escaping import escaped
from holdfast.lifecycle import FINAL, Status, StepKind
from holdfast.records import ANY, Instant, Presence, Run, RunFilter, Step, Tenant, moment

from .explain import explain
from .explanation import SHOWN, Explanation, Known, with_children

TEXT_MAX = 10_000  # characters of a sentence, whatever the names in it are


async def explained(store: Store, run: UUID, tenant: Tenant) -> Explanation:
    """Say why a run, or the present run of its chain, is not moving; deleted runs too. UnknownRun."""
    found = await _found(store, run, tenant)
    while found.present != found.id:
        found = await _found(store, found.present, tenant)
    known = await _facts(store, found, tenant)
    known = msgspec.structs.replace(known, child=await _child_trouble(store, found, known, tenant))
    explanation = explain(found, known)
    if found.status in FINAL:
        explanation = await with_messages(store, found.id, explanation)
    elif found.deleted_at is None:
        explanation = with_children(explanation, await store.children([found.id], found.tenant))
    return msgspec.structs.replace(explanation, text=escaped(explanation.text, TEXT_MAX))


async def _found(store: Store, run: UUID, tenant: Tenant) -> Run:
    found = await store.get(run, tenant) or await _deleted(store, run, tenant)
    if found is None:
        raise UnknownRun(run)
    return found


async def _facts(store: Store, run: Run, tenant: Tenant) -> Known:
    now = await store.now()
    match run.status:
        case Status.PENDING:
            # Reading the live workers may cost a scan.
            holds = await store.held_back(run.id, run.tenant)
            workers = _shown_workers((await store.stats()).workers, run, tenant)
            return Known(now=now, workers=workers, holds=holds, failed=await _failed(store, run))
        case Status.PAUSED:
            why, after = dict[str, Any](), 0
            while pauses := await store.trail(run.id, run.tenant, types=("paused",), after=after):
                why, after = pauses[-1].data, pauses[-1].seq
            return Known(now=now, paused=why, children=await _children(store, run))
        case Status.FAILED if run.error is not None and run.error.kind == "child_failed":
            return Known(now=now, failed=await _failed(store, run))
        case _:
            live = (await store.stats()).workers if _overdue(run, now) else ()
            workers = _shown_workers(live, run, tenant)
            return Known(now=now, workers=workers, children=await _children(store, run))


def _shown_workers(workers: Sequence[Presence], run: Run, tenant: Tenant) -> Sequence[Presence]:
    """Workers as a tenant may see them: those for other tenants only have no name, and no other types."""
    if tenant is ANY:
        return workers
    return [
        one
        if one.tenants is None or tenant in one.tenants
        else msgspec.structs.replace(
            one, worker="a worker", types=tuple(name for name in one.types if name == run.type), lacking={}
        )
        for one in workers
    ]


def _overdue(run: Run, now: Instant) -> bool:
    """Whether a keeper should have acted on the run already."""
    lease = run.lease_until is not None and run.lease_until < moment(now)
    return lease or any(one.due_at is not None and one.due_at <= now for one in run.waiting_on)


async def _failed(store: Store, run: Run) -> Step | None:
    """The step that will be retried, or that made the run fail."""
    error = run.error
    if error is None or error.step is None:
        return None
    steps = await store.steps(run.id, run.tenant, largest=SHOWN_BYTES)
    return next((one for one in steps if one.key == error.step), None)


async def _children(store: Store, run: Run) -> dict[UUID, Run]:
    """The child runs that it waits for, as many as the text names."""
    every = [n for n, one in enumerate(run.waiting_on) if one.kind is StepKind.CHILD]
    waits = [run.waiting_on[n].child for n in every if n < SHOWN or n == every[0]]
    found = [
        await store.get(child, run.tenant) or await _deleted(store, child, run.tenant)
        for child in waits
        if child is not None
    ]
    return {child.id: child for child in found if child is not None}


async def _child_trouble(
    store: Store, run: Run, known: Known, tenant: Tenant
) -> tuple[UUID, Explanation] | None:
    """The first open child run that it waits for, and why that child does not move; None if it moves. The
    child's own children are not looked up: the explanation of the child names them.
    """
    child = next((one for one in known.children.values() if _is_open(one)), None)
    if child is not None and child.present != child.id:
        child = await store.get(child.present, run.tenant)
    if child is None or not _is_open(child):
        return None
    why = explain(child, await _facts(store, child, tenant))
    return None if why.reason == "running" else (child.id, why)


def _is_open(run: Run) -> bool:
    return (run.status not in FINAL and run.deleted_at is None) or run.present != run.id


async def _deleted(store: Store, run: UUID, tenant: Tenant) -> Run | None:
    """Find a deleted run. Only lists include deleted runs; they are sorted by descending id.

    The list is of all tenants: for a tenant with few runs the store would read many rows.
    """
    if run.int + 1 >= 1 << 128:
        return None
    where = RunFilter(tenant=ANY, deleted=True, values=False)
    page = await store.list(where, 1, after=UUID(int=run.int + 1))
    return next((one for one in page if one.id == run and tenant in {ANY, one.tenant}), None)
