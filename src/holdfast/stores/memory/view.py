"""The machine's view of the dicts. Rows are changed in place: saving only checks them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf
from typing import Any
from uuid import UUID

import msgspec

from holdfast.bounds import NEWS_BYTES, text_bytes
from holdfast.contract import EVENT_KEEP_SECONDS
from holdfast.lifecycle import FINAL, Status, StepKind, StepStatus
from holdfast.machine.rows import StepRow, shown
from holdfast.machine.settling import COME, has_waited
from holdfast.machine.view import Account, Beginning, Data, End
from holdfast.records import (
    Definition,
    Instant,
    Json,
    NewEvent,
    NewRun,
    Outbound,
    RunningStep,
    Step,
    Verdict,
)

from .outbox import put
from .rows import EventRow, RunRow, State, check, step_bytes

OPEN_STEP = frozenset({StepStatus.READY, StepStatus.WAITING})


class MemoryView:
    """The rows that one verb reads and changes."""

    def __init__(self, state: State, now: Instant) -> None:
        self.now, self.copied = now, 0
        self._state = state
        self._touched: dict[UUID, RunRow] = {}
        self._grown: set[UUID] = set()  # runs with new steps
        self._seen: list[tuple[RunRow, StepRow]] = []  # steps that a move may have opened

    def save(self) -> None:
        """Check the changed rows, and register the waits that were opened under their topics."""
        for run in self._touched.values():
            check(run, steps=run.id in self._grown)
        for run, step in self._seen:
            if step.status is StepStatus.WAITING:
                self._state.listen(run, step)

    def _see(self, run: RunRow, step: StepRow | None) -> StepRow | None:
        if step is not None:
            self._seen.append((run, step))
        return step

    # The run.

    def run(self, id: UUID) -> RunRow | None:
        run = self._state.runs.get(id)
        if run is not None:
            self._touched[id] = run
        return run

    def call_holders(self) -> None:
        self._state.holder_calls += 1

    def show_running(self, run: RunRow, steps: Sequence[RunningStep]) -> None:
        run.running = run.fence, tuple(steps)

    def keep_trace(self, run: RunRow, trace: str) -> None:
        run.trace = trace

    def go_on_as(self, run: RunRow, first: RunRow, next: UUID) -> None:
        first.present, self._state.runs[next].first = next, first

    def links(self, first: RunRow, limit: int, *, deleted: bool) -> Sequence[RunRow]:
        runs = (run for run in self._state.runs.values() if run.first is first)
        found = [run for run in runs if (run.deleted_at is not None) == deleted]
        page = sorted(found, key=lambda run: (run.deleted_at or 0, run.id))[:limit]
        self._touched |= {run.id: run for run in page}
        return page

    def changed_since(self, run: RunRow, since: Instant) -> bool:
        if run.status is not Status.LEASED:
            return run.updated_at >= since
        words, trail = {"leased", "resumed"}, reversed(self._state.trail)
        return next((one.at >= since for one in trail if one.run == run.id and one.type in words), False)

    def has_open_children(self, run: RunRow) -> bool:
        return bool(self.children_to_cancel(run, 1, orphans=False))

    def children_to_cancel(self, run: RunRow, limit: int, *, orphans: bool) -> Sequence[RunRow]:
        family = [
            each for each in self._state.runs.values()
            if (each.parent, each.tenant) == (run.id, run.tenant) and each.status not in FINAL
            and (not orphans or _is_orphan(run, each))
        ]  # fmt: skip
        page = sorted(family, key=lambda child: child.id)[:limit]
        self._touched |= {child.id: child for child in page}
        return page

    def account(self, id: UUID) -> Account | None:
        return self._state.accounts.get(id)

    def keep_account(self, id: UUID, account: Account) -> None:
        self._state.accounts[id] = account

    def stopped_members(self, id: UUID, by: str, limit: int) -> Sequence[RunRow]:
        members = [
            run for run in self._state.runs.values()
            if run.account == id and run.status is Status.PAUSED and run.pause_asked_by == by
            and run.deleted_at is None
        ]  # fmt: skip
        page = sorted(members, key=lambda run: run.id)[:limit]
        self._touched |= {run.id: run for run in page}
        return page

    def end_of(self, child: UUID) -> End | None:
        run = self._state.runs.get(child)
        return None if run is None else End(run.status, run.result, run.error)

    # Steps.

    def step(self, run: RunRow, key: str) -> StepRow | None:
        return self._see(run, run.steps.get(key))

    def put(self, run: RunRow, step: StepRow) -> None:
        run.steps[step.key] = step
        run.seq = max(run.seq, step.seq)
        self._grown.add(run.id)
        self._see(run, step)

    def put_all(self, run: RunRow, steps: Sequence[StepRow]) -> None:
        for step in steps:
            self.put(run, msgspec.structs.replace(step))

    def drop(self, run: RunRow, step: StepRow) -> None:
        del run.steps[step.key]

    def highest(self, run: RunRow) -> int:
        return run.seq

    def next_seq(self, run: RunRow) -> int:
        run.seq += 1
        return run.seq

    def current(self, run: RunRow) -> StepRow | None:
        return self._see(run, run.current())

    def at_work(self, run: RunRow) -> StepRow | None:
        return run.current()

    def after(self, run: RunRow, seq: int) -> StepRow | None:
        behind = (step for step in run.steps.values() if step.seq > seq)
        return self._see(run, min(behind, key=lambda step: step.seq, default=None))

    def outline(self, run: RunRow) -> Sequence[StepRow]:
        return run.in_order()

    def open_steps(self, run: RunRow) -> Sequence[StepRow]:
        return [step for step in run.steps.values() if step.status in OPEN_STEP]

    def open_waits(self, run: RunRow) -> Sequence[StepRow]:
        return open_waits(run)

    def to_look_at(self, run: RunRow) -> Iterable[StepRow]:
        return open_waits(run)

    def gates(self, run: RunRow) -> Sequence[StepRow]:
        steps = (step for step in run.in_order() if step.kind is StepKind.APPROVAL)
        return [step for step in steps if step.status is not StepStatus.PENDING]

    def last_item(self, run: RunRow) -> tuple[int, int]:
        written = [(step.fence, step.number) for step in run.steps.values() if step.number]
        return max(written, default=(0, 0))

    def wrote(self, run: RunRow, fence: int, number: int) -> bool:
        return any(step.fence == fence and step.number >= number for step in run.steps.values())

    def overtaken(self, run: RunRow, fence: int) -> bool:
        return any(step.fence > fence and step.number for step in run.steps.values())

    def has_news(self, run: RunRow, known: int) -> bool:
        return any(_settled_since(run, known))

    def news(self, run: RunRow, known: int) -> tuple[tuple[Step, ...], bool]:
        settled = sorted(_settled_since(run, known), key=lambda step: step.seq)
        large = sum(map(step_bytes, settled)) > NEWS_BYTES
        return ((), True) if large else (tuple(map(shown, settled)), False)

    def shown(self, run: RunRow, step: StepRow) -> Step | None:
        return None if text_bytes(step.wake) > NEWS_BYTES else shown(step)

    # Events.

    def newest_event(self) -> int:
        return self._state.event_seq

    def record(self, event: NewEvent) -> None:
        record(self._state, event, self.now)

    def available(self, run: RunRow, wait: StepRow) -> EventRow | None:
        chain = run.head
        for event in self._state.topics.get((run.tenant, wait.topic or ""), ()):
            mine = event.run == chain.id or (event.run is None and event.seq > run.watermark)
            in_time = wait.due_at is None or event.at <= wait.due_at
            if mine and in_time and event.seq > wait.watermark and event.seq not in chain.receipts:
                return event
        return None

    def take(self, run: RunRow, event: EventRow, key: str, *, counts: bool) -> None:
        run.head.receipts[event.seq] = (run.id, key)
        event.woken += counts

    def forget_receipts(self, run: RunRow, key: str) -> None:
        kept = {event: by for event, by in run.head.receipts.items() if by != (run.id, key)}
        run.head.receipts = kept

    # Starts, messages, the trail.

    def by_key(self, tenant: str, key: str) -> tuple[UUID, str] | None:
        run = self._state.keys.get((tenant, key))
        return None if run is None else (run, self._state.runs[run].digest)

    def is_known(self, id: UUID) -> bool:
        return id in self._state.runs

    def has_parent(self, id: UUID, tenant: str) -> bool:
        parent = self._state.runs.get(id)
        return parent is not None and parent.deleted_at is None and parent.tenant == tenant

    def open_runs(self, api_key: str, most: int) -> int:
        runs = self._state.runs.values()
        return min(most, sum(run.api_key == api_key and run.finished_at is None for run in runs))

    def definition(self, type: str) -> Definition | None:
        return self._state.definitions.get(type)

    def insert(self, new: NewRun, begins: Beginning) -> RunRow | None:
        if new.id in self._state.runs:
            return None
        run = RunRow(
            id=new.id, tenant=new.tenant, type=new.type, params=new.params, digest=new.digest, key=new.key,
            priority=new.priority, limit_key=new.limit_key, parent=new.parent, parent_step=new.parent_step,
            labels=new.labels, trace=new.trace, origin=new.origin, created_at=self.now, updated_at=self.now,
            api_key=new.api_key if begins.chain is None else self._state.runs[begins.chain].api_key,
            **begins._asdict(),
        )  # fmt: skip
        self._touched[run.id] = self._state.runs[run.id] = run
        if run.key is not None:
            self._state.keys[run.tenant, run.key] = run.id
        return run

    def send(self, run: RunRow, messages: Sequence[Outbound]) -> None:
        put(self._state.post, messages, run.tenant, run.id, self.now)

    def newest_note(self) -> int:
        return self._state.trail_seq

    def note(self, run: RunRow, what: str, /, **data: Any) -> Data:
        self._state.note(run, what, data, self.now)
        if what != "cancelled" or "step" not in data:  # else a wait was given up, not the run
            self._state.happenings.add(run, what, self.now)
        return data

    def log(self, run: RunRow, what: str, data: Json) -> None:
        run.logs.append(self._state.note(run, what, data, self.now))

    def was_added(self, run: RunRow, key: str) -> bool:
        return self._state.was_noted(run, "step_added", {"step": key})

    def answer(self, run: RunRow) -> Verdict | None:
        answer: Verdict | None = run.commit_answer
        return answer

    def answered(self, run: RunRow, verdict: Verdict) -> None:
        run.commit_answer = verdict


def open_waits(run: RunRow) -> list[StepRow]:
    """Return the open waits of a run, first due first."""
    waits = [step for step in run.steps.values() if step.status is StepStatus.WAITING]
    return sorted(waits, key=lambda wait: (inf if wait.due_at is None else wait.due_at, wait.seq))


def _settled_since(run: RunRow, known: int) -> Iterable[StepRow]:
    return (s for s in run.steps.values() if s.seq > known and s.status in COME and has_waited(s))


def _is_orphan(parent: RunRow, child: RunRow) -> bool:
    step = parent.steps.get(child.parent_step or "")
    return child.parent_step is not None and (step is None or step.child != child.id)


def record(state: State, event: NewEvent, now: Instant) -> EventRow:
    """Put an event into the inbox. A known id changes nothing."""
    known = state.event_ids.get((event.tenant, event.id))
    if known is not None:
        return known
    state.event_seq += 1
    row = EventRow(
        seq=state.event_seq, id=event.id, tenant=event.tenant, topic=event.topic, payload=event.payload,
        run=None if event.run is None else state.chain_of(event.run), at=now,
        keep_seconds=EVENT_KEEP_SECONDS if event.keep_seconds is None else event.keep_seconds,
    )  # fmt: skip
    state.add_event(row)
    return row
