"""Checks of runs and events that are imported: they may come from a file that somebody has edited.

A run must obey the laws that every store keeps, or one store would take what another refuses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec
from msgspec.json import Decoder

from holdfast.arguments import (
    check_attempts,
    check_instant,
    check_name,
    check_priority,
    check_topic,
    check_whole,
)
from holdfast.clipped import clipped
from holdfast.contract import EXPORT_MAX, IMPORT_MAX
from holdfast.errors import UsageError
from holdfast.exact import check_fields, check_json
from holdfast.lifecycle import FINAL, Status, StepStatus
from holdfast.machine.rows import Owes
from holdfast.records.transfer import (
    MOVED,
    MOVING,
    CarriedEvent,
    CarriedNote,
    CarriedRow,
    CarriedRun,
    Copies,
    ImportedNote,
    LeavingNote,
    LeftNote,
    Place,
)

from .arguments import check_at, check_big, check_labels, check_optional, check_span
from .items import check_row_key

# Fences and departures grow in every store. Redis counts exactly up to twice this number.
FENCE_MAX = 2**52


def check_runs(what: str, runs: Sequence[Any]) -> None:
    """Check the ids of runs that are exported."""
    _at_most(what, runs, EXPORT_MAX)
    for run in runs:
        if not isinstance(run, UUID):
            raise UsageError(f"{clipped(run)} is not the id of a run: give a UUID")


def check_departures(what: str, departures: Sequence[Any]) -> None:
    """Check runs with the numbers of their departures."""
    check_runs(what, [run for run, _ in departures])
    for _, number in departures:
        check_whole(what, number, 0, FENCE_MAX)
    if len(dict(departures)) < len(departures):
        raise UsageError(f"{what}: give each run once")


def check_copies(what: str, copies: Copies) -> None:
    """Check runs with the fences of their copies at the target."""
    check_runs(what, list(copies))
    for fence in copies.values():
        check_whole(what, fence, 0, 2 * FENCE_MAX)


def check_place(what: str, place: Place) -> None:
    """Check the place at which a large run is read on."""
    section, after = place
    if section not in {0, 1}:
        raise UsageError(f"{what}: a run has no section {clipped(section)}")
    check_big(what, max(after, 0))


def check_events(what: str, events: Sequence[CarriedEvent]) -> None:
    """Check imported events."""
    _at_most(what, events, IMPORT_MAX)
    for event in events:
        check_fields(event)
        check_name("event id", event.id)
        check_topic(event.topic)
        check_name("tenant", event.tenant)
        check_instant("at of an event", event.at)
        check_instant("keep_until of an event", event.keep_until)


def check_parts(what: str, parts: Sequence[CarriedRun]) -> None:
    """Check imported runs."""
    _at_most(what, parts, IMPORT_MAX)
    types: set[str] = set()  # types of trail rows that were checked: there are few of them
    for part in parts:
        check_fields(part)
        check_name("tenant", part.tenant)
        if part.row is not None:
            _check_row(part, part.row)
        elif part.messages or any(step.status is StepStatus.WAITING for step in part.steps):
            raise UsageError(f"run {part.id}: its messages and its open steps come with its last part")
        for step in part.steps:
            check_fields(step)
            check_row_key(step.key)
            check_at("due_at of a step", step.due_at)
            check_whole("fence of a step", step.fence, 0, FENCE_MAX)
        for note in part.notes:
            _check_note(note, types)
        for message in part.messages:
            check_fields(message)
            check_name("message id", message.id)
            check_name("sink", message.sink)
            check_whole("fence of a message", message.fence, 0, FENCE_MAX)


# Rows of the trail that moves read.
_NOTES: dict[str, Decoder[Any]] = {
    "leaving": Decoder(LeavingNote), "left": Decoder(LeftNote), "imported": Decoder(ImportedNote)
}  # fmt: skip


def _check_note(note: CarriedNote, types: set[str]) -> None:
    # The same as check_fields, which takes three times as long: runs have many notes.
    if type(note.type) is type(note.data) is str and type(note.at) is int and type(note.told) is bool:
        check_json("data", note.data)
    else:
        check_fields(note)
    check_at("time of a trail row", note.at)
    if note.type not in types:
        check_name("type of a trail row", note.type)
        types.add(note.type)
    if note.type in _NOTES:
        try:
            record = _NOTES[note.type].decode(note.data)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise UsageError(f"data of the trail row {note.type!r}: {error}") from None
        if isinstance(record, LeavingNote):
            _check_leaving(record)


def _check_leaving(record: LeavingNote) -> None:
    """Check what a run was before it left: it is that again when it comes back or arrives."""
    check_whole("departure in the trail row 'leaving'", record.departure, 0, FENCE_MAX)
    row = record.was.row
    if row is None:
        return
    check_whole("owes in the trail row 'leaving'", row.owes, 0, Owes.ALL)
    if row.error is not None:
        check_json("error in the trail row 'leaving'", row.error)
    is_open = row.status in {Status.PENDING, Status.WAITING, Status.PAUSED}
    goes_on = {Status.PENDING, Status.WAITING} if row.status is Status.PAUSED else {None}
    if not is_open or row.resume_to not in goes_on:
        raise UsageError(
            f"the trail row 'leaving' says that the run was {row.status}, to go on as {row.resume_to}: no "
            "open run can be that"
        )


def _check_row(part: CarriedRun, row: CarriedRow) -> None:
    check_fields(row)
    check_name("type", row.type)
    check_priority(row.priority)
    check_attempts("max_attempts", row.max_attempts)
    check_optional("key", row.key)
    check_optional("limit_key", row.limit_key)
    check_labels(row.labels)
    for name in ("run_at", "created_at", "finished_at", "deleted_at", "timeout_at", "expires_at"):
        check_at(name, getattr(row, name))
    check_span("timeout", row.timeout_seconds)
    check_span("ttl", row.ttl_seconds)
    check_whole("fence", row.fence, 0, FENCE_MAX)
    check_whole("owes", row.owes, 0, Owes.ALL)
    statuses = {step.status for step in part.steps}
    waits = StepStatus.WAITING in statuses
    laws = {
        "it is not leased": row.status is not Status.LEASED,
        "it has an end exactly when it is final": (row.status in FINAL) == (row.finished_at is not None),
        "it says how it goes on exactly while it is paused": (row.status is Status.PAUSED)
        == (row.resume_to is not None),
        "it goes on as pending or waiting": row.resume_to in {None, Status.PENDING, Status.WAITING},
        "it waits for something while it is waiting": row.status is not Status.WAITING or waits,
        "a pause is asked of a paused run, or a move of an ended one": row.pause_asked_by is None
        or row.status is Status.PAUSED
        or (row.status in FINAL and row.pause_asked_by in {MOVING, MOVED}),
        "its timeout is known when it has an instant": row.timeout_at is None
        or row.timeout_seconds is not None,
        "it shares its own account": row.shared is None or row.account == part.id,
        "its steps have one number each": len({step.seq for step in part.steps}) == len(part.steps),
        "its steps have one key each": len({step.key for step in part.steps}) == len(part.steps),
    }
    broken = [law for law, holds in laws.items() if not holds]
    if broken:
        raise UsageError(f"run {part.id} as {row.status} cannot be imported; it breaks: {'; '.join(broken)}")


def _at_most(what: str, some: Sequence[Any], most: int) -> None:
    if len(some) > most:
        raise UsageError(f"{what}: at most {most:,} in one call, not {len(some):,}")
