"""The one way in which a wait is given its outcome; what that means for its run is not said here.

A wait is settled once, whoever notices first: the park that looks, the keeper that finds it due, the
event that comes, the child that ends, the person who decides. All of them ask a `Way`.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple
from uuid import UUID

from holdfast.bounds import BATCH_BYTES
from holdfast.lifecycle import WAIT_MOVES, Status, StepKind, StepStatus, WaitMove
from holdfast.machine.gates import said, why_rejected
from holdfast.records import Error, Instant, Json, Step

from .database import Database, Row, text
from .sql import statements
from .trail import Tale, raw

_SQL = statements("settling")

LAPSES = next(rule.settles for rule in WAIT_MOVES if rule.move is WaitMove.LAPSE)
LISTENS = frozenset({StepKind.EVENT, StepKind.TASK})


class Whose(NamedTuple):
    """The run that is on its way, as it was when the verb came to it."""

    status: str
    kind: str
    fence: int
    deleted_at: Instant | None = None


class Value(NamedTuple):
    """JSON that is written: a text, or what stands before and behind an event's payload."""

    before: Json | None
    event: int | None = None
    behind: str = ""


class Way(Tale):
    """One run on its way, within one verb. `copied`: how many bytes of values it has settled waits with."""

    def __init__(self, db: Database, now: Instant, run: str, whose: Whose | None = None) -> None:
        super().__init__(db, now, run)
        self.copied = 0
        if whose is not None:
            self.whose = whose

    @cached_property
    def whose(self) -> Whose:
        # Looked up only when something has come: most looks find nothing.
        row = self.db.one(_SQL["run"], (self.run,))
        assert row is not None
        return Whose(*row)

    @property
    def is_plan(self) -> bool:
        return self.whose.kind == "plan"

    @property
    def is_reached(self) -> bool:
        """Whether news for the run get it going: paused or deleted, it only finds them there later."""
        return self.whose.status != Status.PAUSED and self.whose.deleted_at is None

    def look(self, wait: Step) -> dict[str, Any] | None:
        """Give the step its outcome if there is one: its row in the trail, or None."""
        if wait.kind in LISTENS and wait.topic is not None:
            event = self._available(wait.key)
            if event is not None:
                return self._come(wait, event)
        if wait.kind is StepKind.CHILD:
            return self._child_ended(wait)
        if wait.kind in LAPSES and wait.due_at is not None and wait.due_at <= self.now:
            return self._lapse(wait)
        return None

    def _available(self, key: str) -> Row | None:
        keys = (self.run, key)
        found = (self.db.one(_SQL["available"], keys), self.db.one(_SQL["available_addressed"], keys))
        return min((event for event in found if event is not None), default=None)

    def look_at_all(self) -> None:
        """Look at every open wait. When values are large some are left: the run owes a look at them."""
        for wait in to_look_at(self.db, self.now, self.run):
            if self.copied >= BATCH_BYTES:
                self.db.run(_SQL["owe_a_look"], (self.run,))
                break
            self.look(wait)

    def _come(self, wait: Step, event: Row) -> dict[str, Any]:
        seq, event_id, topic, at, size = event
        self.copied += size
        before = text({"id": event_id, "topic": topic, "at": at})[:-1] + ',"payload":'
        self.db.run(_SQL["receipt"], (self.run, seq, wait.key))
        if self.is_reached:
            self.db.run(_SQL["count"], (seq,))
        if wait.kind is StepKind.TASK:
            self._call_again(wait, Value('{"reason":"event","event":' + before, seq, "}}"))
        else:
            self._outcome(wait, StepStatus.SUCCEEDED, Value(before, seq, "}"))
        return self.note("woken", step=wait.key, event=event_id)

    def _call_again(self, wait: Step, wake: Value) -> None:
        self.db.run(_SQL["call_again"], (*wake, self.run, wait.key))

    def _outcome(
        self, wait: Step, status: StepStatus, output: Value | Json | None, error: Json | None = None
    ) -> None:
        """Numbered by when it became known; a plan's rows keep their number."""
        value = output if isinstance(output, Value) else Value(output)
        if self.is_plan:
            self.db.run(_SQL["settle_planned"], (status.value, *value, error, self.now, self.run, wait.key))
        else:
            self.db.run(_SQL["settle"], (self.run, status.value, *value, error, self.now, wait.key))

    def _child_ended(self, wait: Step) -> dict[str, Any] | None:
        child = None if wait.child is None else self.db.one(_SQL["child"], (str(wait.child),))
        status, result, error, has_ended = child or ("gone", None, None, True)
        if not has_ended:
            return None
        self.copied += len(result or "") + len(error or "")
        end = {"run": wait.child, "status": status}
        if status == Status.SUCCEEDED:
            self._outcome(wait, StepStatus.SUCCEEDED, text(end | {"result": raw(result or "null")}))
            return self.note("woken", step=wait.key, child=str(wait.child))
        why = _blame("child_failed", f"child run {wait.child} is {status}", wait)
        self._outcome(wait, StepStatus.FAILED, text(end | {"error": raw(error or "null")}), why)
        return self.note("woken", step=wait.key, child=str(wait.child), error=raw(why))

    def _lapse(self, wait: Step) -> dict[str, Any]:
        """Its time has come."""
        match wait.kind:
            case StepKind.SLEEP:
                self._outcome(wait, StepStatus.SUCCEEDED, "null")
                return self.note("woken", step=wait.key)
            case StepKind.APPROVAL:
                row = self.db.one(_SQL["on_timeout"], (self.run, wait.key))
                approved = row == ("approve",)
                self.decided(wait, approved=approved, timed_out=True)
                return self.note("timed_out", step=wait.key, approved=approved)
            case StepKind.TASK:
                self._call_again(wait, Value(text({"reason": "timeout"})))
            case _:
                why = _blame("timeout", f"no event on {wait.topic} before the deadline", wait)
                self._outcome(wait, StepStatus.FAILED, None, why)
        return self.note("timed_out", step=wait.key)

    def decided(
        self, gate: Step, *, approved: bool, by: str = "", comment: str = "", timed_out: bool = False
    ) -> None:
        """A gate has its decision. In a plan a rejected one has failed; code is told, and goes on."""
        output = said(approved=approved, by=by, comment=comment, at=self.now, timed_out=timed_out)
        if approved or not self.is_plan:
            self._outcome(gate, StepStatus.SUCCEEDED, output)
        else:
            why = why_rejected(by=by, comment=comment, timed_out=timed_out)
            self._outcome(gate, StepStatus.FAILED, output, _blame("rejected", why, gate))


def to_look_at(db: Database, now: Instant, run: str) -> list[Step]:
    """The open waits of a run that may be settled now, first due first."""
    return [open_wait(*wait) for wait in db.all(_SQL["to_look_at"], (run, now))]


def open_wait(
    seq: int,
    key: str,
    kind: str,
    topic: str | None,
    due_at: Instant | None,
    child: str | None = None,
) -> Step:
    """A wait, with the fields that settling needs."""
    return Step(
        seq=seq, key=key, kind=StepKind(kind), status=StepStatus.WAITING, topic=topic, due_at=due_at,
        child=None if child is None else UUID(child),
    )  # fmt: skip


def _blame(kind: str, message: str, wait: Step) -> Json:
    return text(Error(kind=kind, message=message, step=wait.key))
