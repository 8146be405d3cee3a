"""commit: the one door for everything that a holder writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from holdfast.bounds import NEWS_BYTES, text_bytes
from holdfast.errors import UsageError
from holdfast.lifecycle import HOLDER_MOVES, Move, Status, StepKind, StepStatus
from holdfast.records import Instant, Item, Json, Step, Verdict
from holdfast.store import BUDGET
from holdfast.stores.durations import micros
from holdfast.stores.plans import strays

from . import settling, waits
from .claim import begin, held
from .outbox import put
from .rows import Owes, RunRow, State, check
from .start import follow, insert_plan, start
from .steps import Recorded, record_steps, refuse_bad_steps


def commit(state: State, batch: Sequence[Item], now: Instant) -> list[Verdict]:
    _refuse_bad(batch)
    return [_answer(state, item, now) for item in batch]


def _refuse_bad(batch: Sequence[Item]) -> None:
    """Find bad content before the first write: one batch is one commit."""
    if len({item.run for item in batch}) != len(batch):
        raise UsageError("a batch holds at most one item of a run: send the next one after the answer")
    for item in batch:
        if item.move not in HOLDER_MOVES:
            raise UsageError(f"{item.move!r} is no move of a holder: {', '.join(sorted(HOLDER_MOVES))}")
        if item.move is Move.CHECKPOINT and not item.steps:
            raise UsageError(f"a checkpoint of run {item.run} records no step: it needs at least one")
        micros(item.delay_seconds or 0.0)
        refuse_bad_steps(item.move, item.steps)


def _answer(state: State, item: Item, now: Instant) -> Verdict:
    row = state.runs.get(item.run)
    if row is None:
        return Verdict(answer="lost", status=Status.CANCELLED)
    if item.fence == row.commit_fence and item.number <= row.commit_no:
        return _repeated(row, item)
    if not held(row, item.fence, now):
        gone = row.status is Status.CANCELLED
        return Verdict(answer="cancelled" if gone else "lost", status=row.status)
    current = row.current()
    if strays(item, None if current is None else current.key, is_plan=row.is_plan):
        return Verdict(answer="lost", status=row.status)
    verdict = _Writing(state, row, item, now).apply()
    row.commit_fence, row.commit_no, row.commit_answer = item.fence, item.number, verdict
    row.updated_at = now
    check(row)
    return verdict


def _repeated(row: RunRow, item: Item) -> Verdict:
    """The first answer once more. Of older numbers only this much is sure: the holder went on after them."""
    first = row.commit_answer if item.number == row.commit_no else None
    first = first or Verdict(answer="applied", status=Status.LEASED)
    if item.known is None or first.answer != "applied":
        return first
    settled, more = settling.news_since(row, item.known)
    return msgspec.structs.replace(first, settled=settled, more=more, seq=row.seq)


class _Writing:
    """One item on its way into the row, in the order that the contract gives."""

    def __init__(self, state: State, row: RunRow, item: Item, now: Instant) -> None:
        self.state, self.row, self.item, self.now = state, row, item, now
        self.known = row.seq if item.known is None else item.known
        self.recorded = Recorded()
        self.news: tuple[Step, ...] = ()  # of a plan: the row that is current now, if the holder goes on

    def apply(self) -> Verdict:
        state, row, item, now = self.state, self.row, self.item, self.now
        begin(state, row, item.started_at, now)
        for entry in item.trail:
            state.note(row, entry.type, now).data = entry.data
        spent = row.cost
        self.recorded = record_steps(state, row, item, now)
        if row.budget is not None and spent < row.budget <= row.cost and row.pause_asked_by is None:
            row.pause_asked_by = BUDGET
        if self.recorded.last_opened is not None and item.move is not Move.PARK:
            self._look()
        for event in item.events:
            waits.record(state, event, now)
        start(state, item.starts, now, row)
        for new in item.starts:
            follow(state, row, new)
        put(state.post, item.outbox, row.tenant, row.id, now)
        if item.progress is not None:
            row.progress = item.progress
        self._moves()[item.move]()
        return self._verdict()

    def _verdict(self) -> Verdict:
        row, item = self.row, self.item
        # A park tells what it has just settled even to a holder who had no open wait before.
        asked = item.known is not None or item.move is Move.PARK
        settled, more = settling.news_since(row, self.known if asked else None)
        return Verdict(
            answer="paused" if row.status is Status.PAUSED else "applied",
            status=row.status,
            kept=tuple(self.recorded.kept),
            settled=self._row() if row.is_plan else settled,
            more=more and not row.is_plan,
            seq=row.seq if item.known is not None else 0,
        )

    def _row(self) -> tuple[Step, ...]:
        """The current row of a plan. The holder reads a large one by itself."""
        return () if any(text_bytes(step.wake) > NEWS_BYTES for step in self.news) else self.news

    def _moves(self) -> dict[Move, Callable[[], None]]:
        return {
            Move.CHECKPOINT: self._checkpoint,
            Move.ADVANCE: self._advance,
            Move.PARK: self._park,
            Move.COMPLETE: self._complete,
            Move.FAIL: self._fail,
            Move.RETRY: self._retry,
            Move.RELEASE: self._release,
        }

    def _checkpoint(self) -> None:
        if self.row.pause_asked_by is not None:
            self._leave(Status.PENDING, refund=1)
        else:
            self._stay()

    def _advance(self) -> None:
        """What comes next decides: it is called here, it is opened, or the run is at its end."""
        row, item = self.row, self.item
        if item.plan:
            self._begin_plan()
            return
        done = row.steps[item.steps[0].key]
        step = settling.following(row, done)
        result = item.result if step is None else None  # the plan does not end with this task
        is_drift = step is not None and step.status is not StepStatus.PENDING
        if step is not None and not is_drift:
            if row.pause_asked_by is not None:
                row.run_at = self.now
                self._leave(Status.PENDING, refund=1)
                return
            step = settling.come_to(self.state, row, done, self.now)
        if step is None:
            self._succeed(result)
        elif is_drift or step.status not in {StepStatus.WAITING, StepStatus.PENDING}:
            self._count()
            settling.fail(self.state, row, step, self.now)
        elif step.status is StepStatus.WAITING:
            self._leave(Status.WAITING, refund=1)
        elif item.in_place:
            self._stay()
            self.news = (step.shown(),)
        else:
            self._back_to_the_queue()

    def _back_to_the_queue(self) -> None:
        entry = self.recorded.done
        assert entry is not None
        assert isinstance(entry.data, dict)
        entry.data["status"], self.row.run_at = Status.PENDING, self.now
        self._leave(Status.PENDING, refund=1)

    def _begin_plan(self) -> None:
        """A run that was started before its plan was published: its rows now, and back with it."""
        row, state = self.row, self.state
        if not row.steps:
            insert_plan(row, self.item.plan)
            for step in row.in_order():
                state.note(row, "step_added", self.now, step=step.key)
        self._release()
        attempt, crashes = row.attempt, row.crashes
        if row.status is Status.PENDING and row.is_plan:
            settling.apply(state, row, settling.come_to(state, row, None, self.now), self.now)
        if row.status is Status.PENDING:
            row.attempt, row.crashes = attempt, crashes  # no step has succeeded yet

    def _park(self) -> None:
        row = self.row
        self._look()
        if row.is_plan:
            news = self.recorded.progress = not settling.open_waits(row)
            self.news = tuple(row.steps[write.key].shown() for write in self.item.steps) if news else ()
        else:
            # Without an open wait nothing could ever wake it: what was asked for stands in `kept`.
            news = bool(settling.settled_since(row, self.known)) or not settling.open_waits(row)
        if row.pause_asked_by is not None:
            row.run_at = self.now if news else row.run_at
            self._leave(Status.PENDING if news else Status.WAITING, refund=1)
        elif news:
            self._count()
        else:
            self._leave(Status.WAITING, refund=1)
            self._note_parked()

    def _look(self) -> None:
        """Nothing falls between asking and waiting: what is already there is the answer."""
        _, left = settling.look_at_all(self.state, self.row, self.now)
        if left:
            self.row.owes |= Owes.LOOK

    def _note_parked(self) -> None:
        """The last `waiting` row of this commit says that the run waits; without one, one more does."""
        entry = self.recorded.last_opened
        if entry is None:
            first = settling.open_waits(self.row)[0]
            opened = "approval_opened" if first.kind is StepKind.APPROVAL else "waiting"
            entry = self.state.note(self.row, opened, self.now, step=first.key, kind=first.kind)
        assert isinstance(entry.data, dict)
        entry.data["status"] = Status.WAITING

    def _complete(self) -> None:
        self._succeed(self.item.result)

    def _succeed(self, result: Json | None) -> None:
        row = self.row
        self._count()
        row.result, row.error, row.last_error = result, None, None
        self.state.end(row, Status.SUCCEEDED, self.now)
        self.state.note(row, "succeeded", self.now)

    def _fail(self) -> None:
        row, item = self.row, self.item
        self._count()
        row.error, row.last_error = item.error, item.last_error
        self.state.end(row, Status.FAILED, self.now)
        self.state.note(row, "failed", self.now, kind=item.kind, message=item.last_error)

    def _retry(self) -> None:
        row, item = self.row, self.item
        stays = item.in_place and row.pause_asked_by is None
        row.error, row.last_error = item.error, item.last_error
        delay = item.delay_seconds or 0.0
        data: dict[str, object] = {"attempt": row.attempt, "delay": delay, "error": raw(item.error)}
        to = {} if stays or row.pause_asked_by is not None else {"status": Status.PENDING}
        for step in self.recorded.ready or [""]:
            self.state.note(row, "retried", self.now, **data, **({"step": step} if step else {}), **to)
        if stays:
            self._stay(more=0 if item.refund else 1)
        else:
            news = settling.settled_since(row, item.known)
            row.run_at = self.now if news else self.now + micros(delay)
            self._leave(Status.PENDING, refund=1 if item.refund else 0)

    def _release(self) -> None:
        self.state.note(self.row, "released", self.now)
        self.row.run_at = self.now
        self._leave(Status.PENDING, refund=1)

    def _stay(self, more: int = 0) -> None:
        row, lease = self.row, micros(self.item.lease_seconds)
        self._count(more)
        assert row.lease_until is not None
        if (row.lease_until - self.now) * 3 < lease * 2:
            row.lease_until = self.now + lease

    def _leave(self, to: Status, refund: int) -> None:
        """Let go: to where the move leads, or into the pause that was asked for."""
        row, by = self.row, self.row.pause_asked_by
        self._count(-refund)
        row.let_go()
        if by is None:
            row.status = to
        else:
            row.pause(to)
            self.state.note(row, "paused", self.now, by=by)

    def _count(self, by: int = 0) -> None:
        row = self.row
        if self.recorded.progress:
            row.attempt, row.crashes = 1, 0
        row.attempt = max(0, row.attempt + by)


def raw(text: Json | None) -> msgspec.Raw | None:
    """JSON text as a part of other JSON, not looked into."""
    return None if text is None else msgspec.Raw(text.encode())
