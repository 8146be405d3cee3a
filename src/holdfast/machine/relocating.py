"""A run that moves to another store: leave, left, went_on, come_back, arrive, drop_arrived.

A run that leaves is ended at the source, as cancelled, and keeps a record of what it was in its trail. It is
carried in this form, so it is in the same form at both ends, and no store claims, wakes or times it out.
Then it goes on at one of them: `come_back` at the source, or `arrive` at the target. `left` at the source
decides: after it nothing comes back there. `pause_asked_by` of such a run says how far it is: MOVING until
the source has recorded that it left, then MOVED. `expires_at` is NEVER until the source has recorded that it
goes on at the target, by `went_on`: a mover that was killed before finds it again.

Each departure has a number, the fence of the run after `leave`, which the trail row `leaving` holds. A run
that came back and leaves again has a higher number. So a mover that was slow, or an old file, cannot release
a copy of an earlier departure. Of one departure several copies may come to the target, one after the other,
when the first has gone on, has ended and was purged. They differ by their fences. `left` records which one
goes on; `arrive` refuses the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from holdfast.errors import Conflict, IllegalMove
from holdfast.lifecycle import FINAL, Move, Status, StepStatus
from holdfast.records import SECOND, Error, Json
from holdfast.records.transfer import MOVED, MOVING, Relocated, RelocationAnswer
from holdfast.records.unreadable import read_error

from . import claiming, ending
from .rows import Owes, RunRow
from .view import Data, R, View

LONG_AGO = 1  # a value of deleted_at: the next purge removes the run
NEVER = 253_370_764_800 * SECOND  # the year 9999 as expires_at: no purge removes a run that is on its way

# The fields of the row that a run has again when it goes on.
_FIELDS = (
    "status", "resume_to", "pause_asked_by", "run_at", "attempt", "owes", "waiting_on", "wait_topic",
    "deadline_at", "error", "last_error",
)  # fmt: skip


class RelocationView(View[R], Protocol[R]):
    """The view of these verbs: methods that other moves do not need."""

    def last_note(self, run: R, *types: str) -> tuple[str, Data] | None:
        """Return type and data of the newest trail row of these types."""

    def hold_messages(self, run: R, error: str) -> Sequence[str]:
        """Make the pending messages of the run dead, with this error. Return their ids, in their order."""

    def free_messages(self, run: R, ids: Sequence[str]) -> None:
        """Make these messages pending again, in this order, if they are dead and messages of the run. A file
        may have been edited: it must not reach those of another run."""


def is_away(run: RunRow) -> bool:
    """Return True when the run has left this store, or waits for its release here."""
    return run.status in FINAL and run.pause_asked_by in {MOVING, MOVED}


def refuse_away(run: RunRow, move: Move | str) -> None:
    """Refuse a move of a run that moves to another store. It would go on at both, or its owner would think
    that it is cancelled."""
    if is_away(run):
        place = _place(run.last_error)
        raise IllegalMove(run.id, move, run.status, f"{place}: do that where it goes on" if place else AWAY)


def send_there(last_error: str | None) -> str:
    """Return the hint for one who sends something to an ended run that has this `last_error`. Empty: the run
    does not move, or had ended before."""
    place = _place(last_error)
    return f"{place}: send it there" if place else ""


def _place(last_error: str | None) -> str:
    """Return where a run moves that has this `last_error`. Empty: it does not, or had ended before."""
    prefix = f"{_MOVED}: "
    if last_error is None or not last_error.startswith(f"{prefix}{MOVES_TO}"):
        return ""
    return last_error.removeprefix(prefix)


_MOVED = "moved"  # the kind of the error of an open run that leaves
MOVES_TO = "it moves to "  # the message of that error, before the target
AWAY = "it moves, or has moved, to another store"


def leave(view: RelocationView[R], id: UUID, to: str, by: str) -> Relocated:
    """leave: an open run is given back if it is leased, and ends as cancelled, error kind `moved`, without
    telling its parent and its children. An ended one stays as it is. Its pending messages are dead. No purge
    removes it. fence + 1. Trail: leaving [by to was departure, status when it was open]. Again: unchanged;
    but a run that is leaving for another target is refused. `busy`: it owes something to its children or its
    chain, which `deliver` carries out.
    """
    run = view.run(id)
    if run is None:
        return _unknown(id)
    if is_away(run):
        return _again(view, run, to)
    if run.owes & Owes.CHAIN or (run.status in FINAL and run.owes & ~Owes.END):
        return Relocated(id, RelocationAnswer.BUSY, OWES)
    claiming.interrupt(view, run)
    was: Data = {"expires_at": run.expires_at}
    if run.status not in FINAL:
        _give_back(run, view.now)
        steps = [step for step in view.outline(run) if step.status in _NOT_ENDED]
        was["row"] = {name: getattr(run, name) for name in _FIELDS}
        was["steps"] = {step.key: step.status for step in steps}
        run.blame(_MOVED, f"{MOVES_TO}{to}")
        ending.end(view, run, Status.CANCELLED)
        for step in steps:
            step.status, step.finished_at = StepStatus.CANCELLED, view.now
        run.owes = 0
    was["messages"] = view.hold_messages(run, HELD)
    run.fence += 1
    run.pause_asked_by, run.expires_at = MOVING, NEVER
    status = {"status": run.status} if "row" in was else {}
    view.note(run, "leaving", by=by, to=to, was=was, departure=run.fence, **status)
    return Relocated(id, RelocationAnswer.LEAVING, departure=run.fence, to=to)


HELD = '{"kind":"moved","message":"its run moves to another store"}'


def refuse_moved_message(id: str, error: Json | None) -> None:
    """Refuse to resend a message that is dead because its run moves to another store, which sends it."""
    if error is not None and has_moved(read_error(error)):
        raise Conflict(f"message {id} moves to another store with its run: that store sends it")


def has_moved(error: Error | None) -> bool:
    """Return True for the error of a message that is dead because its run moves."""
    return error is not None and (error.kind, error.message) == (_HELD.kind, _HELD.message)


_HELD = read_error(HELD)
_NOT_ENDED = frozenset(StepStatus) - {StepStatus.SUCCEEDED, StepStatus.FAILED, StepStatus.CANCELLED}


def _give_back(run: RunRow, now: int) -> None:
    """Give a leased run back, as its holder would do it."""
    if run.status is not Status.LEASED:
        return
    asked_by = run.pause_asked_by
    run.let_go()
    run.status, run.run_at, run.pause_asked_by = Status.PENDING, now, None
    run.attempt = max(0, run.attempt - 1)
    if asked_by is not None:
        run.pause(Status.PENDING, asked_by)


def _again(view: RelocationView[R], run: R, to: str) -> Relocated:
    """Return the answer to `leave` of a run that is away already."""
    record, has_arrived = _record(view, run)
    if run.pause_asked_by == MOVED:
        return Relocated(
            run.id, _how_far(run), departure=record.departure, to=record.to, copy=_recorded_copy(view, run)
        )
    if has_arrived:
        return Relocated(run.id, RelocationAnswer.REFUSED, WAITS)
    if record.to != to:
        return Relocated(run.id, RelocationAnswer.REFUSED, leaves_for(record.to))
    return Relocated(run.id, RelocationAnswer.LEAVING, departure=record.departure, to=to)


class Record(NamedTuple):
    """The record of a departure, in the trail row `leaving`."""

    departure: int
    to: str
    was: Mapping[str, Any]


def _record(view: RelocationView[R], run: R) -> tuple[Record, bool]:
    """Return the record of the last departure, and True when the run came from another store since."""
    last = view.last_note(run, "leaving", "imported")
    has_arrived = last is not None and last[0] == "imported"
    found = view.last_note(run, "leaving") if has_arrived else last
    data: Data = {} if found is None else found[1]
    return Record(data.get("departure", 0), data.get("to", ""), data.get("was", {})), has_arrived


def _how_far(run: RunRow) -> RelocationAnswer:
    """Return the answer for a run that has left."""
    return RelocationAnswer.LEFT if run.expires_at == NEVER else RelocationAnswer.WENT_ON


def _recorded_copy(view: RelocationView[R], run: R) -> int:
    """Return the copy that `left` has recorded for the last departure."""
    found = view.last_note(run, "left")
    return 0 if found is None else int(found[1].get("copy", 0))


WAITS = "it came from another store, and waits for its release"
WAITS_NOT = "it does not wait for its release"
OWES = "its children, or the others of its chain, follow it"
NOT_LEAVING = "it is not leaving"
HAS_LEFT = "it has left: it is at the other store"
LEAVES = "it leaves this store, and did not come to it"
OTHER_DEPARTURE = "it came back since, and has left again"
OTHER_COPY = "it is another copy than the one that goes on"
NOT_LEFT = "it has not left"
BEHIND = "a run before it is busy"


def leaves_for(to: str) -> str:
    return f"it is leaving for {to}: end that move, or undo it"


def left(view: RelocationView[R], id: UUID, departure: int, by: str, copy: int = 0) -> Relocated:
    """left: record at the source that the run is at the target, and which copy goes on there; 0: any. It
    cannot come back after that. No purge removes it. Trail: left [by copy?]. Again: unchanged; the answer
    names the copy that was recorded first, and is `went_on` when that is recorded too. Refused for another
    departure than the last.
    """
    run = view.run(id)
    if run is None:
        return _unknown(id)
    if not is_away(run):
        return Relocated(id, RelocationAnswer.REFUSED, NOT_LEAVING)
    record, has_arrived = _record(view, run)
    if run.pause_asked_by == MOVING and has_arrived:
        return Relocated(id, RelocationAnswer.REFUSED, NOT_LEAVING)
    if record.departure != departure:
        return Relocated(id, RelocationAnswer.REFUSED, OTHER_DEPARTURE)
    if run.pause_asked_by == MOVING:
        run.pause_asked_by = MOVED
        view.note(run, "left", by=by, **({"copy": copy} if copy else {}))
    else:
        copy = _recorded_copy(view, run)
    return Relocated(id, _how_far(run), departure=departure, copy=copy)


def went_on(view: RelocationView[R], id: UUID, departure: int, by: str) -> Relocated:
    """went_on: record at the source that a run which has left goes on at the target: a purge treats it like
    any ended run. Trail: went_on [by]. Again: unchanged. Refused for a run that has not left, and for another
    departure than the last.
    """
    run = view.run(id)
    if run is None:
        return _unknown(id)
    if not is_away(run) or run.pause_asked_by == MOVING:
        return Relocated(id, RelocationAnswer.REFUSED, NOT_LEFT)
    record, _ = _record(view, run)
    if record.departure != departure:
        return Relocated(id, RelocationAnswer.REFUSED, OTHER_DEPARTURE)
    if run.expires_at == NEVER:
        run.expires_at = record.was.get("expires_at")
        view.note(run, "went_on", by=by)
    return Relocated(id, RelocationAnswer.WENT_ON, departure=departure)


def come_back(view: RelocationView[R], id: UUID, departure: int, by: str) -> Relocated:
    """come_back: a run that is leaving goes on at the source, as it was. `departure` 0: whichever it is; the
    answer names it. Trail: returned [by, status when it is open]. A run that is not leaving is not changed;
    one that has left, or that left again, is refused.
    """
    run = view.run(id)
    if run is None:
        return _unknown(id)
    if not is_away(run):
        return Relocated(id, RelocationAnswer.HERE)
    if run.pause_asked_by == MOVED:
        return Relocated(id, RelocationAnswer.REFUSED, HAS_LEFT)
    record, has_arrived = _record(view, run)
    if has_arrived:
        return Relocated(id, RelocationAnswer.REFUSED, WAITS)
    if departure not in {0, record.departure}:
        return Relocated(id, RelocationAnswer.REFUSED, OTHER_DEPARTURE)
    _go_on(view, run, record.was, "returned", by)
    return Relocated(id, RelocationAnswer.HERE, departure=record.departure)


def arrive(view: RelocationView[R], id: UUID, departure: int, by: str, copy: int = 0) -> Relocated:
    """arrive: a run that was imported while it was leaving goes on here, as it was. Trail: arrived [by,
    status when it is open]. A run that does not wait for this is not changed. A copy of another departure is
    refused, and another copy than `copy`, its fence; 0: any.
    """
    run = view.run(id)
    if run is None:
        return _unknown(id)
    if run.pause_asked_by != MOVING or not is_away(run):
        answer = RelocationAnswer.REFUSED if is_away(run) else RelocationAnswer.HERE
        return Relocated(id, answer, AWAY if is_away(run) else "")
    record, has_arrived = _record(view, run)
    if not has_arrived:
        return Relocated(id, RelocationAnswer.REFUSED, LEAVES)
    if record.departure != departure:
        return Relocated(id, RelocationAnswer.REFUSED, OTHER_DEPARTURE)
    if copy not in {0, run.fence}:
        return Relocated(id, RelocationAnswer.REFUSED, OTHER_COPY)
    _go_on(view, run, record.was, "arrived", by)
    return Relocated(id, RelocationAnswer.HERE, departure=departure)


def _go_on(view: RelocationView[R], run: R, was: Mapping[str, Any], word: str, by: str) -> None:
    """Let a run be what it was before it left."""
    row = was.get("row")
    run.fence += 1
    run.pause_asked_by, run.expires_at = None, was.get("expires_at")
    if row is not None:
        run.finished_at = None
        for name in _FIELDS:
            setattr(run, name, row[name])
        run.status = Status(row["status"])
        run.resume_to = None if row["resume_to"] is None else Status(row["resume_to"])
        waits = False
        for key, status in was["steps"].items():
            step = view.step(run, key)
            if step is not None:
                step.status, step.finished_at = StepStatus(status), None
                waits |= step.status is StepStatus.WAITING
        run.owes |= Owes.LOOK if waits else 0
    view.free_messages(run, was.get("messages", ()))
    status = {"status": run.status} if row is not None else {}
    view.note(run, word, by=by, **status)


def drop_arrived(view: RelocationView[R], id: UUID, departure: int, by: str, copy: int = 0) -> Relocated:
    """drop_arrived: a run that waits for its release, and will not get it, is hidden, and the next purge
    removes it. It must be a copy of this departure, or of an earlier one, and the copy with the fence `copy`;
    0: any. Trail: deleted [by]. Any other run is refused.
    """
    run = view.run(id)
    if run is None:
        return _unknown(id)
    if run.pause_asked_by != MOVING or not is_away(run):
        return Relocated(id, RelocationAnswer.REFUSED, WAITS_NOT)
    record, has_arrived = _record(view, run)
    if not has_arrived:
        return Relocated(id, RelocationAnswer.REFUSED, WAITS_NOT)
    if record.departure > departure:
        return Relocated(id, RelocationAnswer.REFUSED, OTHER_DEPARTURE)
    if copy not in {0, run.fence}:
        return Relocated(id, RelocationAnswer.REFUSED, OTHER_COPY)
    run.deleted_at = LONG_AGO
    view.note(run, "deleted", by=by)
    return Relocated(id, RelocationAnswer.DROPPED, departure=record.departure)


def _unknown(id: UUID) -> Relocated:
    return Relocated(id, RelocationAnswer.UNKNOWN)
