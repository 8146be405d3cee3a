"""Chains: runs that went on as another, which are one run to the outside.

The id of a chain is that of its first run, whose row names the present one; every later row names the first.
So the present run is two rows away from any of them, however long the chain is.
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
    """The first run of the chain. Its row stays for as long as any other of the chain does."""
    first = run if run.chain is None else view.run(run.chain)
    if first is None:
        raise UnknownRun(run.id)
    return first


def present_of(view: View[R], run: R) -> R:
    """The run that the chain has come to: itself, if it is in none."""
    first = first_of(view, run)
    present = first if first.present is None else view.run(first.present)
    if present is None:
        raise UnknownRun(run.id)
    return present


def goes_on_as(new: NewRun, by: RunRow | None) -> bool:
    """Whether the run that starts this one goes on as it."""
    return by is not None and new.follows == by.id and new.type == by.type


def handed_on(new: NewRun, begins: Beginning, before: RunRow) -> tuple[NewRun, Beginning]:
    """What the next run of a chain begins with: it sees the events since the chain's start, has spent what
    the chain has, and has its priority; a pause that was asked for holds for it. Its holder has read the
    priority earlier, and somebody may have given another one since.
    """
    paused = before.pause_asked_by is not None
    if new.priority != before.priority:
        new = msgspec.structs.replace(new, priority=before.priority)
    return new, begins._replace(
        mark=before.mark,
        chain=before.chain_id,
        cost=before.cost,
        status=Status.PAUSED if paused else Status.PENDING,
        resume_to=Status.PENDING if paused else None,
    )


def link(view: View[R], before: R, next: R) -> None:
    """The chain has come to the next run. Trail: paused [by], if that was asked of the one before."""
    view.go_on_as(before, first_of(view, before), next.id)
    if before.pause_asked_by is not None:
        view.note(next, "paused", by=before.pause_asked_by)


def follow_first(view: View[R], first: R, limit: int) -> int:
    """Delete or restore a page of the other runs of a chain, as the first one is. Return how many rows."""
    deleted = first.deleted_at is not None
    page = view.links(first, limit, deleted=not deleted)
    for run in page:
        run.deleted_at = first.deleted_at
        view.note(run, "deleted" if deleted else "restored", by=f"chain {first.id}")
    if len(page) < limit:
        first.owes &= ~Owes.CHAIN
    return max(1, len(page))


def named(id: UUID) -> str:
    """What someone is told who means an earlier run."""
    return f"its chain has gone on: the present run is {id}"
