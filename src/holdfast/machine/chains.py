"""Chains: runs that went on as another run. Callers see a chain as one run.

The id of a chain is the id of its first run. The row of the first run names the present run; every later row
names the first. So the present run is two rows away from any run of the chain, however long the chain is.
"""

from __future__ import annotations

from uuid import UUID

import msgspec

from holdfast.errors import UnknownRun
from holdfast.lifecycle import Status
from holdfast.records import NewRun

from .rows import Owes, RunRow
from .view import Beginning, R, View


def first_of(view: View[R], run: R) -> R:
    """Return the first run of the chain. Its row is kept as long as any other row of the chain."""
    first = run if run.chain is None else view.run(run.chain)
    if first is None:
        raise UnknownRun(run.id)
    return first


def present_of(view: View[R], run: R) -> R:
    """Return the present run of the chain: the run itself, if it is in no chain."""
    first = first_of(view, run)
    present = first if first.present is None else view.run(first.present)
    if present is None:
        raise UnknownRun(run.id)
    return present


def goes_on_as(new: NewRun, by: RunRow | None) -> bool:
    """Return True when the run `by` goes on as the new run."""
    return by is not None and new.follows == by.id and new.type == by.type


def handed_on(new: NewRun, begins: Beginning, before: RunRow) -> tuple[NewRun, Beginning]:
    """Return the next run of a chain with the values that it takes over: watermark, cost, budget, priority
    and pause.

    It sees the events since the start of the chain. Priority and budget are read from the row, because they
    may have changed since the holder read them. A requested pause also applies to the next run.
    """
    paused = before.pause_asked_by is not None
    if new.priority != before.priority:
        new = msgspec.structs.replace(new, priority=before.priority)
    return new, begins._replace(
        watermark=before.watermark,
        chain=before.chain_id,
        cost=before.cost,
        budget=before.budget,
        status=Status.PAUSED if paused else Status.PENDING,
        resume_to=Status.PENDING if paused else None,
        pause_asked_by=before.pause_asked_by,
        account=before.account,
    )


def link(view: View[R], before: R, next: R) -> None:
    """Make `next` the present run of the chain. Trail: paused [by], if a pause of the run before was
    requested."""
    view.go_on_as(before, first_of(view, before), next.id)
    if before.pause_asked_by is not None:
        view.note(next, "paused", by=before.pause_asked_by)


def follow_first(view: View[R], first: R, limit: int) -> int:
    """Delete or restore some other runs of a chain, like its first run. Return how many rows."""
    deleted = first.deleted_at is not None
    page = view.links(first, limit, deleted=not deleted)
    for run in page:
        run.deleted_at = first.deleted_at
        view.note(run, "deleted" if deleted else "restored", by=f"chain {first.id}")
    if len(page) < limit:
        first.owes &= ~Owes.CHAIN
    return max(1, len(page))


def named(id: UUID) -> str:
    """Return the message for a caller that names an earlier run."""
    return f"its chain has gone on: the present run is {id}"
