"""One item of a holder on its way into the rows, in the order that the contract gives."""

from __future__ import annotations

from holdfast.bounds import NEWS_BYTES
from holdfast.lifecycle import Move, Status, StepStatus
from holdfast.machine.durations import micros
from holdfast.records import Answer, Instant, Item, Json, Step, StepWrite, Verdict
from holdfast.store import BUDGET

from . import plans
from .database import Database, Row, text
from .outbox import put
from .rows import has_settled, news_since, open_waits
from .settling import Way, Whose
from .sql import statements
from .start import follow, start
from .steps import Recorded, opening, record_steps
from .trail import TRAIL, raw
from .waits import record

_SQL = statements("commit")

_PLAIN = {status: Verdict(answer=Answer.APPLIED, status=status) for status in Status}
_ANSWERS = {status: text(verdict) for status, verdict in _PLAIN.items()}


class Writing:
    """Held by the one whose item this is: the guard has been passed in this very transaction."""

    def __init__(
        self,
        db: Database,
        now: Instant,
        run: str,
        item: Item,
        held: Row,
        *,
        marked: bool = False,
        current: Step | None = None,
    ) -> None:
        self.db, self.now, self.run, self.item, self.marked = db, now, run, item, marked
        self.attempt, self.crashes, self.lease_until, self.pause_by, self.started_fence = held[:5]
        self.same = held[:3]
        self.step_mark: int = held[8]
        self.kind, self.spent, self.budget = held[9:12]
        self.current = current  # of a plan, when the item brings a step
        self.news: tuple[Step, ...] = ()  # of a plan: the row that is current now, if the holder goes on
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
            case Move.ADVANCE:
                return self._advance() if not self.item.plan else self._begin_plan()
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
        is_plan = self.kind == "plan"
        self.recorded = record_steps(self.db, self.now, self.item, stands, self.seq, in_plan=is_plan)
        if self.recorded.cost and self.budget is not None and self.pause_by is None:
            self._ask_for_a_pause()
        if self.recorded.opened is not None and self.item.move is not Move.PARK:
            self._look()
        for event in self.item.events:
            record(self.db, self.now, event)
        if self.item.starts:
            start(self.db, self.now, self.item.starts, self.run)
            follow(self.db, self.run, self.item.starts)
        if self.item.outbox:
            put(self.db, self.now, self.run, self.item.outbox)

    def _ask_for_a_pause(self) -> None:
        """Once: when what the run has spent reaches its budget."""
        if self.spent < self.budget <= self.spent + self.recorded.cost:
            self.pause_by = BUDGET

    def _begin(self) -> None:
        """Write `started`, once a fence."""
        if self.item.started_at is not None and self.started_fence != self.item.fence:
            self.started_fence, self.started_at = self.item.fence, self.item.started_at
            self._note("started", text({"at": self.started_at}))

    def _advance(self) -> Verdict:
        """What comes next decides: it is called here, it is opened, or the run is at its end."""
        way = self._way()
        found = plans.following(way, self.current)
        if found is None:
            return self._end_plan(way, None, self.item.result)
        if found.status is not StepStatus.PENDING:
            return self._end_plan(way, found)  # none of our doing: drift
        if self.pause_by is not None:
            return self._leave(Status.PENDING, refund=1, run_at=self.now)
        found = plans.come_to(way, self.current)
        if found is None or found.status not in {StepStatus.WAITING, StepStatus.PENDING}:
            return self._end_plan(way, found)
        way.write()
        if found.status is StepStatus.WAITING:
            return self._leave(Status.WAITING, refund=1, wait=found)
        if self.item.in_place:
            self.news = (found,)
            return self._stay()
        data = text({"step": self.item.steps[0].key, "status": "pending"})
        self.db.run(_SQL["lead"], (data, self.recorded.done))
        return self._leave(Status.PENDING, refund=1, run_at=self.now)

    def _begin_plan(self) -> Verdict:
        """A run that was started before its plan was published: its rows now, and back with it."""
        way = self._way()
        plans.become_plan(way, self.item.plan)
        self.kind = way.whose.kind
        way.note("released")
        if self.pause_by is not None or not way.is_plan:
            way.write()
            return self._leave(Status.PENDING, refund=1, run_at=self.now)
        found = plans.come_to(way)
        if found is not None and found.status is StepStatus.PENDING:
            way.write()
            return self._leave(Status.PENDING, refund=1, run_at=self.now)
        self.attempt = self.crashes = 0
        if found is None or found.status is not StepStatus.WAITING:
            return self._end_plan(way, found, run_at=self.now)
        way.write()
        return self._leave(Status.WAITING, refund=0, run_at=self.now, wait=found)

    def _end_plan(
        self, way: Way, found: Step | None, result: Json | None = None, *, run_at: Instant | None = None
    ) -> Verdict:
        """All rows are done, or one is not as it should be. Only a task that is the last one has a result."""
        self._count()
        if found is None:
            return self._end(way, Status.SUCCEEDED, result, run_at=run_at)
        error = plans.why_failed(found)
        line = f"{error.kind}: {error.message}"
        return self._end(way, Status.FAILED, None, (text(error), line, error.kind), run_at=run_at)

    def _park(self) -> Verdict:
        self._look()
        waits = open_waits(self.db, self.run)
        # Without an open wait nothing could ever wake it: what was asked for stands in `kept`.
        news = not waits or (self.kind == "code" and has_settled(self.db, self.run, self.known))
        if news and self.current is not None:
            self.recorded.progress = True
            self.news = (plans.named(self.db, self.run, self.current.key),)
        if self.pause_by is not None:
            if news:
                return self._leave(Status.PENDING, refund=1, run_at=self.now)
            return self._leave(Status.WAITING, refund=1, wait=waits[0])
        if news:
            self._count()
            return self._held()
        self._note_parked(waits[0])
        return self._leave(Status.WAITING, refund=1, wait=waits[0])

    def _way(self) -> Way:
        return Way(self.db, self.now, self.run, Whose(Status.LEASED, self.kind, self.item.fence))

    def _look(self) -> None:
        """Nothing falls between asking and waiting: what is already there is the answer."""
        way = self._way()
        way.look_at_all()
        way.write()

    def _note_parked(self, first: Step) -> None:
        """The last `waiting` row of this commit says that the run waits; without one, one more does."""
        if self.recorded.opened is None:
            self._note(opening(first.kind), _parked(first))
            return
        entry, write = self.recorded.opened
        self.db.run(_SQL["lead"], (_parked(write), entry))

    def _retry(self) -> Verdict:
        item, stays = self.item, self.item.in_place and self.pause_by is None
        delay = item.delay_seconds or 0.0
        data: dict[str, object] = {"attempt": self.attempt, "delay": delay, "error": raw(item.error)}
        to = {} if stays or self.pause_by is not None else {"status": "pending"}
        for step in self.recorded.ready or [""]:
            self._note("retried", text(data | ({"step": step} if step else {}) | to))
        if stays:
            return self._stay(more=0 if item.refund else 1)
        news = has_settled(self.db, self.run, item.known)
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
        item = self.item
        if status is Status.FAILED:
            return self._end(self._way(), status, None, (item.error, item.last_error, item.kind))
        return self._end(self._way(), status, item.result)

    def _end(
        self,
        way: Way,
        status: Status,
        result: Json | None,
        blame: tuple[Json | None, str | None, str | None] = (None, None, None),
        run_at: Instant | None = None,
    ) -> Verdict:
        """`blame`: the error, in one line, and its kind."""
        error, line, kind = blame
        plans.end_steps(way, status, error, self.attempt)
        verdict = self._verdict(status)
        self.db.run(
            _SQL["finish"],
            (
                status.value, run_at, result, error, line, self.now, self.attempt, self.crashes,
                self.recorded.cost, self.item.progress, *self._marks(verdict), self.run,
            ),
        )  # fmt: skip
        way.note(status.value, **({"kind": kind, "message": line} if status is Status.FAILED else {}))
        way.write()
        return verdict

    def _count(self, by: int = 0) -> None:
        if self.recorded.progress:
            self.attempt, self.crashes = 1, 0
        self.attempt = max(0, self.attempt + by)

    def _verdict(self, status: Status) -> Verdict:
        asked = self.item.known is not None
        # A park tells what it has just settled even to a holder who had no open wait before.
        if self.kind == "code":
            known = self.known if asked or self.item.move is Move.PARK else None
            settled, more = news_since(self.db, self.run, known)
        else:  # a large row of a plan is read by the holder itself
            large = any(len(step.wake or "") > NEWS_BYTES for step in self.news)
            settled, more = () if large else self.news, False
        return Verdict(
            answer=Answer.PAUSED if status is Status.PAUSED else Answer.APPLIED,
            status=status,
            kept=tuple(self.recorded.kept),
            settled=settled,
            more=more,
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
