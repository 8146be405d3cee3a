"""One item of a holder on its way into the rows, in the order that the contract gives."""

from __future__ import annotations

from holdfast.lifecycle import Move, Status
from holdfast.records import Instant, Item, Step, StepWrite, Verdict
from holdfast.stores.durations import micros

from .database import Database, Row, text
from .outbox import put
from .rows import open_waits, settled_since
from .sql import statements
from .start import TRAIL, start
from .steps import Recorded, raw, record_steps
from .waits import record, settle

_SQL = statements("commit")

_PLAIN = {status: Verdict(answer="applied", status=status) for status in Status}
_ANSWERS = {status: text(verdict) for status, verdict in _PLAIN.items()}


class Writing:
    """Held by the one whose item this is: the guard has been passed in this very transaction."""

    def __init__(
        self, db: Database, now: Instant, run: str, item: Item, held: Row, *, marked: bool = False
    ) -> None:
        self.db, self.now, self.run, self.item, self.marked = db, now, run, item, marked
        self.attempt, self.crashes, self.lease_until, self.pause_by, self.started_fence = held[:5]
        self.same = held[:3]
        self.step_mark: int = held[8]
        # Only who writes steps or parks needs to know the highest number there is.
        self.seq = self._highest() if item.steps or item.move is Move.PARK else 0
        self.known = self.seq if item.known is None else item.known
        self.recorded = Recorded(self.seq)
        self.started_at: Instant | None = None

    def apply(self, stands: dict[str, Row]) -> Verdict:
        self._record(stands)
        match self.item.move:
            case Move.CHECKPOINT:
                return self._stay() if self.pause_by is None else self._leave(Status.PENDING, refund=1)
            case Move.PARK:
                return self._park()
            case Move.COMPLETE:
                return self._finish(Status.SUCCEEDED)
            case Move.FAIL:
                return self._finish(Status.FAILED)
            case Move.RETRY:
                return self._retry()
            case Move.RELEASE:
                self._note("released")
                return self._leave(Status.PENDING, refund=1, run_at=self.now)
            case other:
                raise AssertionError(other)

    def _record(self, stands: dict[str, Row]) -> None:
        self._begin()
        for entry in self.item.trail:
            self._note(entry.type, entry.data)
        self.recorded = record_steps(self.db, self.now, self.item, stands, self.seq)
        if self.recorded.opened is not None and self.item.move is not Move.PARK:
            self._look()
        for event in self.item.events:
            record(self.db, self.now, event)
        if self.item.starts:
            start(self.db, self.now, self.item.starts)
        if self.item.outbox:
            put(self.db, self.now, self.run, self.item.outbox)

    def _begin(self) -> None:
        """Write `started`, once a fence."""
        if self.item.started_at is not None and self.started_fence != self.item.fence:
            self.started_fence, self.started_at = self.item.fence, self.item.started_at
            self._note("started", text({"at": self.started_at}))

    def _park(self) -> Verdict:
        self._look()
        waits = open_waits(self.db, self.run)
        # Without an open wait nothing could ever wake it: what was asked for stands in `kept`.
        news = bool(settled_since(self.db, self.run, self.known)) or not waits
        if self.pause_by is not None:
            if news:
                return self._leave(Status.PENDING, refund=1, run_at=self.now)
            return self._leave(Status.WAITING, refund=1, wait=waits[0])
        if news:
            self._count()
            return self._held()
        self._note_parked(waits[0])
        return self._leave(Status.WAITING, refund=1, wait=waits[0])

    def _look(self) -> None:
        """Nothing falls between asking and waiting: what is already there is the answer."""
        for wait in open_waits(self.db, self.run):
            settle(self.db, self.now, self.run, wait)

    def _note_parked(self, first: Step) -> None:
        """The last `waiting` row of this commit says that the run waits; without one, one more does."""
        if self.recorded.opened is None:
            self._note("waiting", _parked(first))
            return
        entry, write = self.recorded.opened
        self.db.run(_SQL["parked"], (_parked(write), entry))

    def _retry(self) -> Verdict:
        item, stays = self.item, self.item.in_place and self.pause_by is None
        delay = item.delay_seconds or 0.0
        data: dict[str, object] = {"attempt": self.attempt, "delay": delay, "error": raw(item.error)}
        to = {} if stays or self.pause_by is not None else {"status": "pending"}
        for step in self.recorded.ready or [""]:
            self._note("retried", text(data | ({"step": step} if step else {}) | to))
        if stays:
            return self._stay(more=0 if item.refund else 1)
        news = settled_since(self.db, self.run, item.known)
        run_at = self.now if news else self.now + micros(delay)
        return self._leave(Status.PENDING, refund=1 if item.refund else 0, run_at=run_at)

    def _stay(self, more: int = 0) -> Verdict:
        self._count(more)
        lease = micros(self.item.lease_seconds)
        if (self.lease_until - self.now) * 3 < lease * 2:
            self.lease_until = self.now + lease
        return self._held()

    def _held(self) -> Verdict:
        verdict = self._verdict(Status.LEASED)
        if self._differs():
            self.db.run(
                _SQL["stay"],
                (
                    self.attempt, self.crashes, self.lease_until, self.recorded.cost, self.item.progress,
                    *self._blame(), *self._marks(verdict), self.now, self.run,
                ),
            )  # fmt: skip
        return verdict

    def _differs(self) -> bool:
        # An item of which no step and no trail row stands must be known by the run row, or it could not
        # be told when it is sent again.
        recorded, item = self.recorded, self.item
        return bool(
            self.marked or recorded.silent or recorded.kept or recorded.cost or item.progress is not None
            or self.started_at is not None or item.move is not Move.CHECKPOINT
            or (self.attempt, self.crashes, self.lease_until) != self.same
        )  # fmt: skip

    def _leave(
        self, to: Status, *, refund: int, run_at: Instant | None = None, wait: Step | None = None
    ) -> Verdict:
        """Let go: to where the move leads, or into the pause that was asked for."""
        self._count(-refund)
        status = to
        if self.pause_by is not None:
            status = Status.PAUSED
            self._note("paused", text({"by": self.pause_by}))
        verdict = self._verdict(status)
        people = (None, None, None) if wait is None else (wait.kind.value, wait.topic, wait.due_at)
        self.db.run(
            _SQL["leave"],
            (
                status.value, None if self.pause_by is None else to.value, run_at, *people, self.attempt,
                self.crashes, self.recorded.cost, self.item.progress, *self._blame(), *self._marks(verdict),
                self.now, self.run,
            ),
        )  # fmt: skip
        return verdict

    def _finish(self, status: Status) -> Verdict:
        self._count()
        item, db = self.item, self.db
        db.run(_SQL["cancel_steps"], (self.now, self.run))
        failed = status is Status.FAILED
        verdict = self._verdict(status)
        db.run(
            _SQL["finish"],
            (
                status.value, None if failed else item.result, item.error if failed else None,
                item.last_error if failed else None, self.now, self.attempt, self.crashes, self.recorded.cost,
                item.progress, *self._marks(verdict), self.run,
            ),
        )  # fmt: skip
        self._note(status.value, text({"kind": item.kind, "message": item.last_error}) if failed else "{}")
        return verdict

    def _count(self, by: int = 0) -> None:
        if self.recorded.progress:
            self.attempt, self.crashes = 1, 0
        self.attempt = max(0, self.attempt + by)

    def _verdict(self, status: Status) -> Verdict:
        asked = self.item.known is not None
        # A park tells what it has just settled even to a holder who had no open wait before.
        settled = settled_since(self.db, self.run, self.known) if asked or self.item.move is Move.PARK else ()
        return Verdict(
            answer="paused" if status is Status.PAUSED else "applied",
            status=status,
            kept=tuple(self.recorded.kept),
            settled=settled,
            seq=self._highest() if asked else 0,
        )

    def _highest(self) -> int:
        row = self.db.one(_SQL["seq"], (self.run,))
        return max(self.step_mark, row[0] if row is not None else 0)

    def _blame(self) -> tuple[bool, str | None, str | None]:
        item = self.item
        return (True, item.error, item.last_error) if item.move is Move.RETRY else (False, None, None)

    def _marks(self, verdict: Verdict) -> tuple[int, Instant | None, int, int, str]:
        answer = _ANSWERS.get(verdict.status) if verdict == _PLAIN.get(verdict.status) else None
        return self.started_fence, self.started_at, self.item.fence, self.item.number, answer or text(verdict)

    def _note(self, what: str, data: str = "{}") -> None:
        self.db.run(TRAIL, (self.run, what, data, self.now))


def _parked(wait: Step | StepWrite) -> str:
    return text({"step": wait.key, "kind": wait.kind, "status": "waiting"})
