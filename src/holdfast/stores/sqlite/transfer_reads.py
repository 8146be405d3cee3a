"""export: whole runs and events, out of the file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import itemgetter
from uuid import UUID

from holdfast.bounds import page
from holdfast.contract import EVENT_KEEP_SECONDS
from holdfast.lifecycle import SETTLED, Status
from holdfast.machine.durations import micros
from holdfast.records import MessageStatus
from holdfast.records.transfer import (
    CarriedEvent,
    CarriedMessage,
    CarriedNote,
    CarriedRow,
    CarriedStep,
    Exported,
    Place,
)
from holdfast.records.transfer_sizes import event_bytes
from holdfast.stores.carrying import Numbered, Rest, RunRows, carried_step, exported

from .connection.database import Database, Row, text
from .rows import shown_key
from .sql import statements
from .view import machine_rows
from .view.machine_rows import uuid_of

SQL = {
    name: sql.replace("$step_columns", ", ".join(machine_rows.STEP_COLUMNS))
    for name, sql in statements("transfer").items()
}
_ROW, _ROWS, _SIZES = (
    SQL[name].replace("$runs", SQL[of])
    for name, of in (("row", "one_run"), ("row", "many_runs"), ("sizes", "many_runs"))
)
TOGETHER = 250  # runs whose rows are read by the same statements

# The fields of CarriedRow in the order of the columns that are read and written, after the tenant.
FIELDS = (
    "type", "run_at", "created_at", "updated_at", "kind", "status", "resume_to", "pause_asked_by", "params",
    "digest", "key", "priority", "attempt", "max_attempts", "crashes", "max_crashes", "survived", "tried_of",
    "fence", "step_mark", "waiting_on", "wait_topic", "deadline_at", "owes", "cost", "budget", "account",
    "error", "last_error", "progress", "result", "started_at", "finished_at", "deleted_at", "timeout_seconds",
    "timeout_at", "ttl_seconds", "expires_at", "watermark", "parent", "parent_step", "limit_key", "labels",
    "trace", "api_key",
)  # fmt: skip
_STATUSES = {status.value: status for status in Status}
_CHAIN = len(FIELDS) + 1


class Rows:
    """The rows of one run, inside one transaction. They are read when they are asked for."""

    def __init__(self, db: Database, id: UUID, row: Row) -> None:
        self._db, self.id, self._name, self._row = db, id, str(id), row
        self.tenant, self.chain = row[0], _id(row[_CHAIN])
        self.revision = f"{row[-3]} {row[-2]}"
        self._took: Taken = {}
        for step, event in db.all(SQL["took"], {"run": self._name}):
            self._took.setdefault(step, []).append(event)

    def section(self, number: int, after: int) -> Iterable[Numbered]:
        if number == 0:
            found = self._db.each(SQL["settled"], (self._name, after))
            return ((row[0], _step(row, self._took)) for row in found)
        notes = self._db.each(SQL["notes"], (self._name, after))
        return ((row[0], CarriedNote(type=row[1], at=row[2], data=row[3])) for row in notes)

    def rest(self) -> Rest:
        unsettled = self._db.all(SQL["unsettled"], (self._name,))
        messages = [_message(row) for row in self._db.all(SQL["messages"], (self._name,))]
        steps = [_step(row, self._took) for row in unsettled]
        return _carried_row(self._row), tuple(steps), tuple(messages)


class ReadRows:
    """The rows of one run that were read together with those of others."""

    def __init__(self, row: Row) -> None:
        self._row, self.id = row, uuid_of(row[-1])
        self.tenant, self.chain = row[0], _id(row[_CHAIN])
        self.revision = f"{row[-3]} {row[-2]}"
        self.took: Taken = {}
        self.steps: list[Row] = []
        self.notes: list[Row] = []
        self.messages: list[Row] = []

    def section(self, number: int, after: int) -> Iterable[Numbered]:
        if number == 0:
            return [
                (row[1], _step(row[1:], self.took))
                for row in self.steps
                if row[4] in _SETTLED and row[1] > after
            ]
        return [
            (row[1], CarriedNote(type=row[2], at=row[3], data=row[4])) for row in self.notes if row[1] > after
        ]

    def rest(self) -> Rest:
        steps = [_step(row[1:], self.took) for row in self.steps if row[4] not in _SETTLED]
        return _carried_row(self._row), tuple(steps), tuple([_message(row[2:]) for row in self.messages])


Taken = dict[str, list[int]]  # the events that each step has taken
_SETTLED = frozenset(status.value for status in SETTLED)


def _step(row: Row, took: Taken) -> CarriedStep:
    return carried_step(machine_rows.step_row(row), tuple(took.get(row[1], ())) if took else ())


def _carried_row(row: Row) -> CarriedRow:
    fields = dict(zip(FIELDS, row[1:_CHAIN], strict=True))
    origin, is_present, shared, present = row[_CHAIN + 1 : _CHAIN + 5]
    fields["account"], fields["parent"] = _id(fields["account"]), _id(fields["parent"])
    fields["status"] = _STATUSES[fields["status"]]
    fields["key"] = shown_key(row[0], fields["key"])
    if fields["resume_to"] is not None:
        fields["resume_to"] = _STATUSES[fields["resume_to"]]
    fields["trace"] = fields["trace"] or ""
    if shared is not None:
        budget, spent = map(int, shared.split())
        fields["shared"] = budget, spent
    return CarriedRow(**fields, origin=_id(origin), is_present=bool(is_present), goes_on_as=_id(present))


def _id(name: str | None) -> UUID | None:
    return None if name is None else uuid_of(name)


def _message(row: Row) -> CarriedMessage:
    fields = dict(zip(CarriedMessage.__struct_fields__, row, strict=True))
    return CarriedMessage(**{**fields, "status": MessageStatus(fields["status"])})


def export_runs(db: Database, runs: Sequence[UUID], place: Place | None, budget: int) -> list[Exported]:
    known: dict[UUID, ReadRows] = {}
    places = {run: at for at, run in enumerate(runs)}

    def found(run: UUID) -> RunRows | None:
        if place is None and run not in known:
            at = places[run]
            known.clear()
            known.update(_read_together(db, runs[at : at + TOGETHER], budget))
        if run in known:
            return known[run]
        row = db.one(_ROW, (str(run),))
        return None if row is None else Rows(db, run, row)

    return exported(found, runs, place, budget)


def _read_together(db: Database, runs: Sequence[UUID], budget: int) -> dict[UUID, ReadRows]:
    """Read the first of these runs, as many as have `budget` bytes together."""
    names: list[str] = []
    for name, size in db.all(_SIZES, (text(list(map(str, runs))),)):
        budget -= size
        if budget < 0:
            break
        names.append(name)
    asked = (text(names),)
    found = {row[-1]: ReadRows(row) for row in db.all(_ROWS, asked)} if names else {}
    if not found:
        return {}
    for run, step, event in sorted(db.all(SQL["took_of_many"], asked), key=itemgetter(2)):
        if run in found:
            found[run].took.setdefault(step, []).append(event)
    for name, rows in (
        ("steps", "steps_of_many"),
        ("notes", "notes_of_many"),
        ("messages", "messages_of_many"),
    ):
        for row in sorted(db.all(SQL[rows], asked), key=itemgetter(1)):
            if row[0] in found:
                getattr(found[row[0]], name).append(row)
    return {one.id: one for one in found.values()}


def export_events(
    db: Database, limit: int, after: int, chain: UUID | None, *, addressed: bool
) -> list[CarriedEvent]:
    asked = {"after": after, "limit": max(0, limit), "keep": micros(EVENT_KEEP_SECONDS)}
    if chain is not None:
        found = db.each(SQL["events_of"], {**asked, "chain": str(chain)})
    else:
        found = db.each(SQL["events"], {**asked, "addressed": addressed})
    return page(map(_event, found), event_bytes, limit)


def _event(row: Row) -> CarriedEvent:
    return CarriedEvent(
        seq=row[0], id=row[1], tenant=row[2], topic=row[3], at=row[4], keep_until=row[5], payload=row[6],
        chain=_id(row[7]), delivered=bool(row[8]), woken=row[9],
    )  # fmt: skip
