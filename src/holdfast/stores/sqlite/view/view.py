"""The machine's view of the file, inside one transaction.

Rows are read when the machine asks for them, and kept. Changed rows are written at the end.

A query over steps reads the file, so changed steps are written before it (`_write_steps`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from uuid import UUID

import msgspec

from holdfast.bounds import NEWS_BYTES
from holdfast.lifecycle import Status, StepStatus
from holdfast.machine.rows import UNREAD, StepRow, shown
from holdfast.machine.settling import COME, LISTENS, has_waited
from holdfast.machine.view import End
from holdfast.records import (
    Answer,
    Instant,
    Json,
    NewEvent,
    Outbound,
    Run,
    Step,
    Verdict,
)
from holdfast.stores.sqlite import outbox, rows
from holdfast.stores.sqlite.chores import inbox
from holdfast.stores.sqlite.connection.database import Database, Row, text

from .machine_rows import SQL, Event, FromEvent, RunRow, outlined, run_row, step_row, step_values
from .starts import Starting

_OPEN = frozenset({StepStatus.READY, StepStatus.WAITING})
_STATUSES = {status.value: status for status in Status}
FEW_LISTENERS = 4  # waits of one run up to this number are looked at one by one

# The fields with which rows of a plan begin, in the order of view.sql.
_PLANNED = (
    "seq", "key", "kind", "status", "max_attempts", "topic", "timeout_seconds", "ask", "digest", "on_timeout",
)  # fmt: skip

_VERDICTS = {status: Verdict(answer=Answer.APPLIED, status=status) for status in Status}
_ANSWERS = {status: text(verdict) for status, verdict in _VERDICTS.items()}
_decode_answer = msgspec.json.Decoder(Verdict).decode


class SqliteView(Starting):
    """The rows of the file that one verb reads and changes."""

    def __init__(self, db: Database, now: Instant) -> None:
        super().__init__(db, now)
        self.copied = 0
        self._taking: dict[tuple[str, str], Event] = {}  # for a wait, the event that it would take
        self._plans: dict[int, tuple[Sequence[StepRow], str]] = {}  # rows of plans, and the same rows as JSON

    # Reading ahead.

    def prefetch(self, runs: Mapping[str, UUID | None]) -> None:
        """Read many runs at once. `runs`: their ids as text, and the ids themselves where they are at
        hand."""
        missing = [run for run in runs if run not in self._runs]
        if len(missing) > 1:
            self._runs |= dict.fromkeys(missing)
            for row in self.db.all(SQL["runs"], (text(missing),)):
                self._keep(run_row(row, runs[row[0]]))

    def prefetch_steps(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Read many steps at once, by run and key. Their runs must have been read."""
        if len(pairs) > 1:
            for name, key in pairs:
                if (run := self._runs.get(name)) is not None:
                    run.steps.setdefault(key, None)
            for row in self.db.all(SQL["steps"], (text(pairs),)):
                if (run := self._runs.get(row[0])) is not None and run.steps.get(row[2]) is None:
                    self._add(run, step_row(row[1:]))

    def know_result(self, run: RunRow, result: Json | None) -> None:
        """Set the result of a run, which was read separately."""
        run.result, run.saved = result, (*run.saved[:-1], result)

    def prefetch_takers(self, event: int, pairs: Sequence[tuple[str, str]]) -> None:
        """Find the waits that would take this event, for many runs at once."""
        found = self.db.one(SQL["event"], (event,)) if len(pairs) > 1 else None
        if found is not None:
            taken = Event(*found)
            takers = self.db.all(SQL["takes"], (text(pairs), event))
            self._taking = dict.fromkeys(takers, taken)

    # The run.

    def run(self, id: UUID) -> RunRow | None:
        return self.run_of(str(id), id)

    def run_of(self, name: str, id: UUID | None = None) -> RunRow | None:
        """Return the run with this id, given as text."""
        if name in self._runs:
            return self._runs[name]
        self._write_starts()
        row = self.db.one(SQL["run"], (name,))
        if row is None:
            self._runs[name] = None
            return None
        return self._keep(run_row(row, id))

    def changed_since(self, run: RunRow, since: Instant) -> bool:
        found = self.db.one(SQL["claimed_at" if run.status is Status.LEASED else "changed_at"], (run.text,))
        return found is not None and found[0] >= since

    def has_open_children(self, run: RunRow) -> bool:
        return self.db.one(SQL["has_open_children"], (run.text, run.tenant)) is not None

    def children_to_cancel(self, run: RunRow, limit: int, *, orphans: bool) -> Sequence[RunRow]:
        self._write_runs()
        self._write_steps(run)
        found = self.db.all(SQL["orphans" if orphans else "open_children"], (run.text, run.tenant, limit))
        return [child for row in found if (child := self._keep(run_row(row))) is not None]

    def end_of(self, child: UUID) -> End | None:
        name = str(child)
        known = self._runs.get(name)
        if known is not None and known.has_moved:
            self._write_runs()
        elif known is not None and known.result is not UNREAD:
            return End(known.status, known.result, known.error)
        row = self.db.one(SQL["end"], (name,))
        return None if row is None else End(_STATUSES[row[0]], row[1], row[2])

    # Steps.

    def _add(self, run: RunRow, step: StepRow) -> StepRow:
        run.steps[step.key] = step
        run.saved_steps[step.key] = step_values(step)
        return step

    def _known(self, run: RunRow, row: Row, made: Callable[[Row], StepRow] = step_row) -> StepRow:
        return run.steps.get(row[1]) or self._add(run, made(row))

    def step(self, run: RunRow, key: str) -> StepRow | None:
        if key in run.steps:
            return run.steps[key]
        row = self.db.one(SQL["step"], (run.text, key))
        if row is None:
            run.steps[key] = None
            return None
        return self._add(run, step_row(row))

    def put(self, run: RunRow, step: StepRow) -> None:
        run.steps[step.key] = step
        run.seq, run.grown = max(run.seq, step.seq), True

    def put_all(self, run: RunRow, steps: Sequence[StepRow]) -> None:
        known = self._plans.get(id(steps))
        if known is None:
            rows = [attrgetter(*_PLANNED)(step) for step in steps]
            self._plans[id(steps)] = known = (steps, text(rows))
        self.db.run(SQL["plan"], (run.text, run.tenant, known[1]))
        run.seq = run.top = max(run.seq, steps[-1].seq)

    def drop(self, run: RunRow, step: StepRow) -> None:
        self.db.run(SQL["drop"], (run.text, step.key))
        run.steps[step.key] = None
        run.saved_steps.pop(step.key, None)

    def highest(self, run: RunRow) -> int:
        return run.seq

    def next_seq(self, run: RunRow) -> int:
        run.seq += 1
        return run.seq

    def _one_step(self, run: RunRow, name: str, *args: object) -> StepRow | None:
        row = self.db.one(SQL[name], (run.text, *args))
        return None if row is None else self._known(run, row)

    def current(self, run: RunRow) -> StepRow | None:
        self._write_steps(run)
        return self._one_step(run, "current") if run.is_plan else None

    def at_work(self, run: RunRow) -> StepRow | None:
        return self._one_step(run, "at_work")

    def after(self, run: RunRow, seq: int) -> StepRow | None:
        if run.grown:
            self._write_steps(run)
        return self._one_step(run, "after", seq)

    def outline(self, run: RunRow) -> Sequence[StepRow]:
        self._write_steps(run)
        return [self._known(run, row, outlined) for row in self.db.all(SQL["outline"], (run.text,))]

    def _read_open(self, run: RunRow) -> None:
        if not run.knows_open:
            run.knows_open = True
            for row in self.db.all(SQL["open"], (run.text,)):
                self._known(run, row)

    def open_steps(self, run: RunRow) -> Sequence[StepRow]:
        self._read_open(run)
        return [step for step in run.steps.values() if step is not None and step.status in _OPEN]

    def open_waits(self, run: RunRow) -> Sequence[StepRow]:
        self._read_open(run)
        waits = [
            step for step in run.steps.values() if step is not None and step.status is StepStatus.WAITING
        ]
        if len(waits) > 1:
            waits.sort(key=lambda wait: (wait.due_at is None, wait.due_at, wait.seq))
        return waits

    def to_look_at(self, run: RunRow) -> Iterable[StepRow]:
        waits = self.open_waits(run)
        listening = [wait for wait in waits if wait.topic is not None and wait.kind in LISTENS]
        if len(listening) <= FEW_LISTENERS:
            return waits
        self._write_steps(run)
        args = (run.text, run.tenant, run.watermark, run.chain_text or run.text)
        hearing = {key for (key,) in self.db.all(SQL["to_look_at"], args)}
        idle = {
            wait.key
            for wait in listening
            if wait.key not in hearing and (wait.due_at is None or wait.due_at > self.now)
        }
        return [wait for wait in waits if wait.key not in idle]

    def gates(self, run: RunRow) -> Sequence[StepRow]:
        return [self._known(run, row) for row in self.db.all(SQL["gates"], (run.text,))]

    def last_item(self, run: RunRow) -> tuple[int, int]:
        row = self.db.one(SQL["last_item"], (run.text,))
        return (0, 0) if row is None else (row[0], row[1])

    def wrote(self, run: RunRow, fence: int, number: int) -> bool:
        return self.db.one(SQL["wrote"], (run.text, fence, number)) is not None

    def overtaken(self, run: RunRow, fence: int) -> bool:
        return self.db.one(SQL["overtaken"], (run.text, fence)) is not None

    def _has_no_news(self, run: RunRow, known: int) -> bool:
        """Return True when the run has no step after that number, without a look into the file."""
        return known >= run.top and not any(
            step is not None and step.seq > known and step.status in COME and has_waited(step)
            for step in run.steps.values()
        )

    def has_news(self, run: RunRow, known: int) -> bool:
        if self._has_no_news(run, known):
            return False
        self._write_steps(run)
        return rows.has_settled(self.db, run.text, known)

    def news(self, run: RunRow, known: int) -> tuple[tuple[Step, ...], bool]:
        if self._has_no_news(run, known):
            return (), False
        self._write_steps(run)
        return rows.news_since(self.db, run.text, known)

    def shown(self, run: RunRow, step: StepRow) -> Step | None:
        wake: object = step.wake
        if isinstance(wake, FromEvent):
            self._write_steps(run)
            (step.wake,) = self.db.one(SQL["wake"], (run.text, step.key)) or (None,)
            run.saved_steps[step.key] = step_values(step)
        return None if len(step.wake or "") > NEWS_BYTES else shown(step)

    # Events.

    def record(self, event: NewEvent) -> None:
        inbox.record(self.db, self.now, event)
        self._newest_event = None

    def available(self, run: RunRow, wait: StepRow) -> Event | None:
        if (event := self._taking.pop((run.text, wait.key), None)) is not None and not self._receipts_of(run):
            return event
        if self._receipts:
            self._write_receipts()
        since = max(wait.watermark, self._passed(run, wait.topic))
        found = self.db.one(
            SQL["available"],
            (
                run.tenant,
                wait.topic,
                max(run.watermark, since),
                wait.due_at,
                run.chain_text or run.text,
                since,
            ),
        )
        return None if found is None else Event(*found)

    def _receipts_of(self, run: RunRow) -> bool:
        return any(receipt[0] == (run.chain_text or run.text) for receipt in self._receipts)

    def take(self, run: RunRow, event: Event, key: str, *, counts: bool) -> None:
        link = None if run.chain_text is None else run.text
        self._receipts.append((run.chain_text or run.text, event.seq, key, link))
        self._woken[event.seq] = self._woken.get(event.seq, 0) + counts

    def reached_apart(self, event: int) -> int:
        """Return how many runs the event has reached in this view. From here on the caller keeps that
        count."""
        return self._woken.pop(event, 0)

    def forget_receipts(self, run: RunRow, key: str) -> None:
        self._write_receipts()
        of_link = run.chain_text is not None
        self.db.run(SQL["forget_receipts_of_link" if of_link else "forget_receipts"], (run.text, key))

    # Starts, messages, the trail.

    def send(self, run: RunRow, messages: Sequence[Outbound]) -> None:
        outbox.put(self.db, self.now, run.text, messages)

    def was_added(self, run: RunRow, key: str) -> bool:
        return self.db.one(SQL["was_added"], (run.text, key)) is not None

    def answer(self, run: RunRow) -> Verdict | None:
        return None if run.commit_answer is None else _decode_answer(run.commit_answer)

    def answered(self, run: RunRow, verdict: Verdict) -> None:
        common = verdict == _VERDICTS[verdict.status]
        run.commit_answer = _ANSWERS[verdict.status] if common else text(verdict)

    def shown_run(self, run: RunRow) -> Run:
        """Return the run as callers see it. It must have been saved."""
        found = rows.run_or_deleted(self.db, run.text)
        assert found is not None
        return found
