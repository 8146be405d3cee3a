"""What the reference keeps: plain mutable rows, and the laws that no row may break."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Flag, auto
from typing import Any
from uuid import UUID

import msgspec

from holdfast.errors import StoreError
from holdfast.lifecycle import FINAL, SETTLED, Status, StepKind, StepStatus
from holdfast.records import Definition, Instant, Json, NewSchedule, Presence, Step, Verdict
from holdfast.stores.durations import micros

from .limits import Limiting
from .outbox import Post

OPEN_STEP = frozenset({StepStatus.READY, StepStatus.WAITING})


class Owes(Flag):
    """What a run has promised with its last commit, and `deliver` carries out."""

    NOTHING = 0
    END = auto()  # its parent is to be told
    CHILDREN = auto()  # they are to be cancelled
    ORPHANS = auto()  # those are that no step of its names any more
    LOOK = auto()  # at its open waits: the last look stopped, for values were large


@dataclass(slots=True, kw_only=True)
class StepRow:
    """A recorded step. `mark`: a wait does not look at events up to that one."""

    seq: int
    key: str
    kind: StepKind
    status: StepStatus
    attempts: int = 0
    output: Json | None = None
    error: Json | None = None
    cost: int = 0
    topic: str | None = None
    due_at: Instant | None = None
    fence: int = 0
    started_at: Instant | None = None
    finished_at: Instant | None = None
    mark: int = 0
    max_attempts: int | None = None
    timeout_seconds: float | None = None
    ask: Json | None = None
    digest: str | None = None
    on_timeout: str = "reject"
    child: UUID | None = None
    wake: Json | None = None
    waits: int = 0

    def shown(self) -> Step:
        return Step(
            seq=self.seq, key=self.key, kind=self.kind, status=self.status, attempts=self.attempts,
            output=self.output, error=self.error, cost=self.cost, topic=self.topic, due_at=self.due_at,
            fence=self.fence, started_at=self.started_at, finished_at=self.finished_at,
            max_attempts=self.max_attempts, timeout_seconds=self.timeout_seconds, ask=self.ask,
            digest=self.digest, child=self.child, wake=self.wake, waits=self.waits,
        )  # fmt: skip


@dataclass(slots=True, kw_only=True)
class RunRow:
    """A run, with its steps by key and its receipts: the step that consumed an event, by the event's seq."""

    id: UUID
    tenant: str
    type: str
    params: Json
    digest: str
    key: str | None
    priority: int
    run_at: Instant
    max_attempts: int
    max_crashes: int
    timeout_seconds: float | None
    ttl_seconds: float | None
    budget: int | None
    limit_key: str | None
    parent: UUID | None
    parent_step: str | None
    labels: Json | None
    created_at: Instant
    updated_at: Instant
    mark: int  # the newest event when the run was started
    kind: str = "code"
    owes: Owes = Owes.NOTHING
    status: Status = Status.PENDING
    resume_to: Status | None = None
    attempt: int = 0
    crashes: int = 0
    fence: int = 0
    leased_by: str | None = None
    lease_until: Instant | None = None
    pause_asked_by: str | None = None
    started_fence: int = 0
    commit_fence: int = 0
    commit_no: int = 0
    commit_answer: Verdict | None = None
    seq: int = 0  # the highest number given to a step so far; one that was forgotten is not given again
    cost: int = 0
    progress: Json | None = None
    result: Json | None = None
    error: Json | None = None
    last_error: str | None = None
    timeout_at: Instant | None = None
    expires_at: Instant | None = None
    started_at: Instant | None = None
    finished_at: Instant | None = None
    deleted_at: Instant | None = None
    steps: dict[str, StepRow] = field(default_factory=dict)
    receipts: dict[int, str] = field(default_factory=dict)
    logs: list[TrailRow] = field(default_factory=list)  # those of its rows in the trail that code has logged

    @property
    def is_plan(self) -> bool:
        return self.kind == "plan"

    def in_order(self) -> list[StepRow]:
        return sorted(self.steps.values(), key=lambda step: step.seq)

    def current(self) -> StepRow | None:
        """Of a plan: the first step that has not succeeded."""
        left = (step for step in self.steps.values() if step.status is not StepStatus.SUCCEEDED)
        return min(left, key=lambda step: step.seq, default=None) if self.is_plan else None

    def next_seq(self) -> int:
        self.seq += 1
        return self.seq

    def pause(self, resume_to: Status) -> None:
        self.let_go()
        self.status, self.resume_to, self.pause_asked_by = Status.PAUSED, resume_to, None

    def let_go(self) -> None:
        self.leased_by = self.lease_until = None

    def finish(self, status: Status, now: Instant) -> None:
        """An end: nothing is held, asked or open any more."""
        self.status, self.finished_at = status, now
        self.resume_to = self.pause_asked_by = None
        self.expires_at = None if self.ttl_seconds is None else now + micros(self.ttl_seconds)
        self.let_go()
        for step in self.steps.values():
            if step.status in OPEN_STEP:
                step.status, step.finished_at = StepStatus.CANCELLED, now
        if self.parent_step is not None:
            self.owes |= Owes.END

    def forget(self, keys: set[str]) -> None:
        """Drop steps, and make the events that only they consumed available again."""
        self.steps = {key: step for key, step in self.steps.items() if key not in keys}
        self.receipts = {event: key for event, key in self.receipts.items() if key not in keys}

    def begin_anew(self, now: Instant) -> None:
        """Fresh counts and a fresh timeout; whoever was at it is fenced off."""
        self.let_go()
        self.attempt, self.crashes, self.fence, self.run_at = 0, 0, self.fence + 1, now
        self.result = self.error = self.last_error = self.pause_asked_by = None
        self.finished_at = self.expires_at = None
        self.timeout_at = None if self.timeout_seconds is None else now + micros(self.timeout_seconds)


@dataclass(slots=True, kw_only=True)
class EventRow:
    """An event in the inbox; `woken` counts the runs that it reached."""

    seq: int
    id: str
    tenant: str
    topic: str
    payload: Json
    run: UUID | None
    at: Instant
    keep_seconds: float
    delivered: bool = False
    woken: int = 0
    output: Json | None = None  # what a wait is settled with that takes it: one text for all of them
    wake: Json | None = None  # what a plan's task is told


@dataclass(slots=True, kw_only=True)
class TrailRow:
    """One thing that happened. What a holder logs is kept as the text it came as."""

    seq: int
    run: UUID
    tenant: str
    type: str
    at: Instant
    data: dict[str, Any] | Json


@dataclass(slots=True, kw_only=True)
class ScheduleRow:
    """A schedule: what it was last said to be, and how far it has come. `open`: its runs, but for those
    that were seen to have ended; none where they may go beside each other."""

    new: NewSchedule
    created_at: Instant
    updated_at: Instant
    rev: int = 1
    paused: bool = False
    paused_by: str | None = None
    waiting: tuple[Instant, ...] = ()
    open: tuple[UUID, ...] = ()
    fired: int = 0
    skipped: int = 0
    last_at: Instant | None = None
    last_run: UUID | None = None
    last_skipped_at: Instant | None = None
    last_missed_at: Instant | None = None


@dataclass(slots=True)
class State:
    """All that there is."""

    runs: dict[UUID, RunRow] = field(default_factory=dict)
    keys: dict[tuple[str, str], UUID] = field(default_factory=dict)
    events: list[EventRow] = field(default_factory=list)
    event_ids: dict[tuple[str, str], EventRow] = field(default_factory=dict)
    # By tenant and topic: the events, and the steps that have waited there. Some of them do no longer.
    topics: dict[tuple[str, str], list[EventRow]] = field(default_factory=dict)
    listeners: dict[tuple[str, str], set[tuple[UUID, str]]] = field(default_factory=dict)
    trail: list[TrailRow] = field(default_factory=list)
    definitions: dict[str, Definition] = field(default_factory=dict)
    workers: dict[str, Presence] = field(default_factory=dict)
    post: Post = field(default_factory=Post)
    limiting: Limiting = field(default_factory=Limiting)
    schedules: dict[tuple[str, str], ScheduleRow] = field(default_factory=dict)  # by tenant and name
    # The newest numbers given so far: rows may go, their numbers are not given again.
    event_seq: int = 0
    trail_seq: int = 0

    def listen(self, row: RunRow, step: StepRow) -> None:
        """A wait was opened: whoever hands an event over finds it by its topic."""
        if step.topic is not None:
            self.listeners.setdefault((row.tenant, step.topic), set()).add((row.id, step.key))

    def add_event(self, event: EventRow) -> None:
        self.events.append(event)
        self.event_ids[event.tenant, event.id] = event
        self.topics.setdefault((event.tenant, event.topic), []).append(event)

    def drop_events(self, events: list[EventRow]) -> None:
        numbers = {event.seq for event in events}
        self.events = [event for event in self.events if event.seq not in numbers]
        for event in events:
            del self.event_ids[event.tenant, event.id]
        for name in {(event.tenant, event.topic) for event in events}:
            self.topics[name] = [event for event in self.topics[name] if event.seq not in numbers]

    def note(self, row: RunRow, what: str, now: Instant, /, **data: Any) -> TrailRow:
        """Write into the trail, in the same breath as the change itself."""
        self.trail_seq += 1
        entry = TrailRow(
            seq=self.trail_seq, run=row.id, tenant=row.tenant, type=what, at=now, data=data
        )  # fmt: skip
        self.trail.append(entry)
        if what == "log":
            row.logs.append(entry)
        row.updated_at = now
        return entry

    def end(self, row: RunRow, status: Status, now: Instant) -> None:
        """However a run ends; the current step of a plan that does not succeed ends with it."""
        step = row.current()
        if step is not None and step.status not in SETTLED:
            failed = status is Status.FAILED
            step.status, step.finished_at = StepStatus.FAILED if failed else StepStatus.CANCELLED, now
            if failed:
                step.error, step.attempts = row.error, row.attempt
                error = None if row.error is None else msgspec.Raw(row.error.encode())
                self.note(row, "step_failed", now, step=step.key, error=error)
        row.finish(status, now)


def check(row: RunRow, *, steps: bool = True) -> None:
    """Refuse a row that no move may leave behind, as the constraints of SQL stores do.

    `steps`: False where one step was settled, of a run that may have thousands.
    """
    leased = row.status is Status.LEASED
    looked_at = row.steps.values() if steps else ()
    laws = {
        "a status that is known": row.status in set(Status),
        "a holder and a lease exactly while leased": leased == (row.leased_by is not None)
        and leased == (row.lease_until is not None),
        "nobody at it once it is deleted": not leased or row.deleted_at is None,
        "a pause asked of a leased run only": leased or row.pause_asked_by is None,
        "an end exactly when final": (row.status in FINAL) == (row.finished_at is not None),
        "a way on exactly while paused": (row.status is Status.PAUSED) == (row.resume_to is not None),
        "something to wait for while waiting": row.status is not Status.WAITING
        or any(step.status is StepStatus.WAITING for step in row.steps.values()),
        "a step status that is known": all(step.status in set(StepStatus) for step in looked_at),
        "one row a seq": len({step.seq for step in looked_at}) == len(looked_at),
    }
    broken = [law for law, holds in laws.items() if not holds]
    if broken:
        raise StoreError(f"run {row.id} as {row.status} breaks a law of the store: {'; '.join(broken)}")
