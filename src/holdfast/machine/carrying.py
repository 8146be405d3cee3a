"""import: a run that comes from another store, with all its rows."""

from __future__ import annotations

from typing import Protocol
from uuid import UUID

from msgspec.structs import replace

from holdfast.lifecycle import FINAL, OPEN, StepStatus
from holdfast.records.transfer import CarriedRow, CarriedRun, ImportAnswer, Imported

from .rows import Owes
from .settling import LISTENS
from .view import Account, Data, R, View


class ImportView(View[R], Protocol[R]):
    """The view of an import: methods that other moves do not need."""

    def last_note(self, run: R, *types: str) -> tuple[str, Data] | None:
        """Return type and data of the newest trail row of these types."""

    def is_being_purged(self, id: UUID) -> bool:
        """Return True when a purge has begun to remove a run of this id, and some of its rows are left."""

    def fence_above(self, fence: int) -> int:
        """Return a fence above this one, as high as any that the store has given so far. Later numbers of
        trail rows are higher."""

    def adopt(self, part: CarriedRun, row: CarriedRow, newest: int) -> R:
        """Add a run with these fields, and all rows of its last part. `newest`: for watermarks that are
        None."""

    def keep_part(self, part: CarriedRun) -> None:
        """Keep a part of a run that is not there yet. A first part replaces what is left of the run."""

    def join_chain(self, run: R, first: R, *, is_present: bool) -> None:
        """Make the run one of a chain, perhaps its present one."""


def admit(view: ImportView[R], part: CarriedRun, by: str) -> Imported:
    """import_runs: write one part, unless its run is there or must be refused. Trail: imported [by digest,
    status when it is open].
    """
    known = view.run(part.id)
    if known is not None:
        return _met(part, None if part.row is None else _imported_as(view, known))
    if view.is_being_purged(part.id):
        return refused(part, BEING_PURGED)
    row = part.row
    first = None if part.chain is None else view.run(part.chain)
    why = _why_not(view, part, first)
    if why is not None:
        return refused(part, why)
    if row is None:
        view.keep_part(part)
        return Imported(part.id, ImportAnswer.PART)
    taken = None if row.key is None else view.by_key(part.tenant, row.key)
    if taken is not None:
        return refused(part, key_taken(row.key or "", str(taken[0])))
    owes = row.owes | _debts(view, part, row)
    if part.is_first:
        view.keep_part(CarriedRun(id=part.id, tenant=part.tenant, chain=part.chain))
    row = replace(row, fence=view.fence_above(row.fence), owes=owes)
    run = view.adopt(part, row, view.newest_event())
    if first is not None:
        view.join_chain(run, first, is_present=row.is_present)
    if row.shared is not None and row.account is not None:
        view.keep_account(row.account, Account(*row.shared))
    status = {"status": row.status} if row.status in OPEN else {}
    view.note(run, "imported", by=by, digest=part.digest, **status)
    return Imported(part.id, ImportAnswer.IMPORTED)


def _why_not(view: View[R], part: CarriedRun, first: R | None) -> str | None:
    """Return why a run cannot belong to the runs that it names. None: it can."""
    if part.chain is not None and first is None:
        return no_first(str(part.chain))
    if first is not None and first.status not in FINAL:
        return first_is_open(str(part.chain))
    stranger = _stranger(view, part, first)
    return None if stranger is None else of_other_tenant(str(stranger))


def _stranger(view: View[R], part: CarriedRun, first: R | None) -> UUID | None:
    """Return a run of another tenant that the run belongs to, or waits for, as it says. A file may have been
    edited: its runs must not reach those of another tenant."""
    if first is not None and first.tenant != part.tenant:
        return first.id
    related = () if part.row is None else (part.row.parent, part.row.account)
    children = [step.child for step in part.steps if step.status not in _SETTLED]
    for other in dict.fromkeys((*related, *children)):
        run = None if other is None or other == part.id else view.run(other)
        if run is not None and run.tenant != part.tenant:
            return run.id
    return None


_SETTLED = frozenset({StepStatus.SUCCEEDED, StepStatus.FAILED})


def _imported_as(view: ImportView[R], run: R) -> str | None:
    """Return the digest with which the run was imported last. None: it was not imported."""
    found = view.last_note(run, "imported")
    return None if found is None else found[1].get("digest")


def _met(part: CarriedRun, digest: str | None) -> Imported:
    """Return the answer to a part whose run is there."""
    if part.row is None:
        return Imported(part.id, ImportAnswer.PART)
    if digest == part.digest:
        return Imported(part.id, ImportAnswer.THERE)
    return refused(part, OTHER_CONTENT)


def _debts(view: View[R], part: CarriedRun, row: CarriedRow) -> int:
    """Return what the run owes: to look for what came meanwhile, or to tell its parent of its end. Its
    children that have ended tell it again, too."""
    if row.status in FINAL:
        return 0 if row.parent_step is None or row.pause_asked_by is not None else Owes.END
    waits = [step for step in part.steps if step.status is StepStatus.WAITING]
    children = [view.run(wait.child) for wait in waits if wait.child is not None]
    for child in children:
        if child is not None and child.status in FINAL:
            child.owes |= Owes.END
    listens = any(wait.kind in LISTENS and wait.topic is not None for wait in waits)
    # A look would take a child that has not come yet for gone.
    return Owes.LOOK if listens and None not in children else 0


OTHER_CONTENT = "a run with this id is there, with other content"
BEING_PURGED = "a purge removes a run with this id at this moment: import it again when that is done"


def refused(part: CarriedRun, reason: str) -> Imported:
    """Return the answer to a part that is not written."""
    return Imported(part.id, ImportAnswer.REFUSED, reason)


def key_taken(key: str, run: str) -> str:
    return f"its key {key!r} belongs to run {run}"


def first_is_open(chain: str) -> str:
    return f"its chain's first run {chain} has not ended: it has not gone on as another run"


def of_other_tenant(run: str) -> str:
    return f"it names run {run} as one that it belongs to, or waits for: that one is another tenant's"


def no_first(chain: str) -> str:
    return f"its chain's first run {chain} is not there: import that one first"
