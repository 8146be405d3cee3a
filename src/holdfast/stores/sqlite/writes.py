"""start, commit and renew: the writes of callers and of the holders of leases.

The common items of a commit are written many at once by `fast_writes`. All others go through the machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from holdfast.errors import HoldfastError
from holdfast.lifecycle import Status
from holdfast.machine import claiming, starting
from holdfast.machine.commit import answer
from holdfast.machine.durations import micros
from holdfast.records import (
    Answer,
    Instant,
    Item,
    Lease,
    LeaseState,
    NewRun,
    Renewal,
    Running,
    Started,
    Verdict,
)

from . import fast_writes
from .connection.database import Database, Row, text
from .sql import statements
from .view.view import SqliteView

_SQL = statements("writes")


def start(db: Database, now: Instant, runs: Sequence[NewRun]) -> list[Started | HoldfastError]:
    """Record new runs. Return one answer for each, in order."""
    view = SqliteView(db, now)
    if runs:
        view.prefetch_starts(runs)
    answers = starting.start(view, runs)
    view.save()
    return answers


def commit(db: Database, now: Instant, batch: Sequence[Item]) -> list[Verdict]:
    """Write the items of leaseholders. Return one verdict for each, in order."""
    runs = [str(item.run) for item in batch]
    answers = fast_writes.apply(db, now, batch, runs)
    left = [(run, item) for run, item in zip(runs, batch, strict=True) if run not in answers]
    if left:
        view = SqliteView(db, now)
        view.prefetch({run: item.run for run, item in left})
        view.prefetch_steps([(run, step.key) for run, item in left for step in item.steps])
        answers |= {run: answer(view, view.run_of(run, item.run), item) for run, item in left}
        view.save()
    return [answers[run] for run in runs]


def renew(db: Database, now: Instant, worker: str, leases: Sequence[Lease], lease_seconds: float) -> Renewal:
    """Extend leases, each checked by its fence like an item of a commit. Tell the worker about its runs."""
    strays = strays_of(db, worker, leases)
    view, until = SqliteView(db, now), now + micros(lease_seconds)
    view.prefetch({str(lease.run): lease.run for lease in leases})
    held = tuple([claiming.renew(view, view.run(lease.run), lease, worker, until) for lease in leases])
    view.save()
    return Renewal(held=held, strays=strays)


def lease_states(db: Database, now: Instant, leases: Sequence[tuple[UUID, int]]) -> list[LeaseState]:
    """Return the state of each lease, in order."""
    found = {row[0]: row[1:] for row in db.all(_SQL["leases"], (text([str(run) for run, _ in leases]),))}
    return [_lease_state(found.get(str(run)), fence, now) for run, fence in leases]


def _lease_state(row: Row | None, fence: int, now: Instant) -> LeaseState:
    status, held_by, until, asked_by = row or (None, 0, None, None)
    if status != Status.LEASED or held_by != fence or until < now:
        return LeaseState(answer=Answer.CANCELLED if status == Status.CANCELLED else Answer.LOST)
    return LeaseState(answer=Answer.APPLIED, pause_asked=asked_by is not None)


def show_running(db: Database, now: Instant, rows: Sequence[Running]) -> list[bool]:
    """Keep the running steps of runs, each checked by its fence. Return whether each was written."""
    view = SqliteView(db, now)
    view.prefetch({str(row.run): row.run for row in rows})
    written = [claiming.show_running(view, view.run(row.run), row) for row in rows]
    view.save()
    return written


def strays_of(db: Database, worker: str, leases: Sequence[Lease]) -> tuple[tuple[UUID, int], ...]:
    """Return runs leased to this worker that it did not name: the reply to its claim was lost."""
    named = {(str(lease.run), lease.fence) for lease in leases}
    return tuple((UUID(row[0]), row[1]) for row in db.all(_SQL["strays"], (worker,)) if row not in named)
