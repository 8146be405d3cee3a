"""The rows of the memory store, and the checks that every row must pass."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import msgspec

from holdfast.bounds import ROW_BYTES, text_bytes
from holdfast.errors import StoreError
from holdfast.lifecycle import FINAL, Status, StepStatus
from holdfast.machine import rows as machine
from holdfast.machine.rows import StepRow
from holdfast.machine.view import Account
from holdfast.records import Definition, Instant, Json, PageSession, Presence, RunningStep
from holdfast.records.transfer import MOVED, MOVING, CarriedRun
from holdfast.stores.events import TakenEvent
from holdfast.stores.schedule_rows import ScheduleRow

from .counts import Happenings
from .keys import KeyRows
from .limits import Limiting
from .outbox import Post


class RunRow(machine.RunRow, gc=True, kw_only=True):
    """A run with its steps by key. `first`: the first run of its chain, if that is another run.

    Receipts belong to the chain, and are kept with its first run: by the event's seq, the run and the step
    that took it.
    """

    params: Json
    digest: str
    key: str | None
    limit_key: str | None
    labels: Json | None
    created_at: Instant
    trace: str = ""
    origin: UUID | None = None
    api_key: str | None = None
    seq: int = 0  # the highest number given to a step; numbers of forgotten steps are not given again
    steps: dict[str, StepRow] = msgspec.field(default_factory=dict)
    receipts: dict[int, tuple[UUID, str]] = msgspec.field(default_factory=dict)
    first: RunRow | None = None
    running: tuple[int, tuple[RunningStep, ...]] = (0, ())  # a fence, and the steps that its holder executes
    logs: list[TrailRow] = msgspec.field(default_factory=list)  # rows of its trail that holders brought

    @property
    def head(self) -> RunRow:
        """The first run of its chain, which may be the run itself."""
        return self if self.first is None else self.first

    def in_order(self) -> list[StepRow]:
        return sorted(self.steps.values(), key=lambda step: step.seq)

    def current(self) -> StepRow | None:
        """Return the first step of a plan that has not succeeded."""
        left = (step for step in self.steps.values() if step.status is not StepStatus.SUCCEEDED)
        return min(left, key=lambda step: step.seq, default=None) if self.is_plan else None


class EventRow(TakenEvent, kw_only=True):
    """An event in the inbox; `woken` counts the runs that it reached."""

    seq: int
    tenant: str
    run: UUID | None
    keep_seconds: float
    delivered: bool = False
    woken: int = 0
    left: deque[tuple[UUID, str]] | None = None  # during delivery: the waits that have not looked yet


@dataclass(slots=True, kw_only=True)
class TrailRow:
    """A row of the trail. Rows that a holder logs keep their text."""

    seq: int
    run: UUID
    tenant: str
    type: str
    at: Instant
    data: dict[str, Any] | Json


@dataclass(slots=True)
class State:
    """The whole state of the store."""

    runs: dict[UUID, RunRow] = field(default_factory=dict)
    keys: dict[tuple[str, str], UUID] = field(default_factory=dict)
    events: list[EventRow] = field(default_factory=list)
    event_ids: dict[tuple[str, str], EventRow] = field(default_factory=dict)
    # By tenant and topic: the events, and the steps that wait there. Some of the steps may not wait any more.
    topics: dict[tuple[str, str], list[EventRow]] = field(default_factory=dict)
    listeners: dict[tuple[str, str], set[tuple[UUID, str]]] = field(default_factory=dict)
    trail: list[TrailRow] = field(default_factory=list)
    definitions: dict[str, Definition] = field(default_factory=dict)
    workers: dict[str, Presence] = field(default_factory=dict)
    post: Post = field(default_factory=Post)
    limiting: Limiting = field(default_factory=Limiting)
    keyring: KeyRows = field(default_factory=KeyRows)
    page_sessions: dict[str, PageSession] = field(default_factory=dict)
    happenings: Happenings = field(default_factory=Happenings)
    # Budgets that runs share, by the run at the top.
    accounts: dict[UUID, Account] = field(default_factory=dict)
    schedules: dict[tuple[str, str], ScheduleRow] = field(default_factory=dict)  # by tenant and name
    parts: dict[UUID, list[CarriedRun]] = field(default_factory=dict)  # of large runs that are being imported
    # The highest numbers given so far. Numbers of removed rows are not given again.
    event_seq: int = 0
    trail_seq: int = 0
    holder_calls: int = 0  # moves of leased runs by others than their holders

    def seen(self, run: UUID, tenant: str | None) -> RunRow | None:
        """Return the run. None: it is unknown, deleted or of another tenant."""
        row = self.runs.get(run)
        hidden = row is None or row.deleted_at is not None or tenant not in {None, row.tenant}
        return None if hidden else row

    def chain_of(self, run: UUID) -> UUID:
        """Return the id of the run's chain; the given id, if the run is unknown."""
        row = self.runs.get(run)
        return run if row is None else row.head.id

    def present_of(self, row: RunRow) -> RunRow:
        """Return the present run of its chain."""
        head = row.head
        return head if head.present is None else self.runs[head.present]

    def listen(self, row: RunRow, step: StepRow) -> None:
        """Register an open wait under its topic, so that the delivery of events finds it."""
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

    def note(self, row: RunRow, what: str, data: dict[str, Any] | Json, now: Instant) -> TrailRow:
        """Add a row to the trail, together with the change itself."""
        self.trail_seq += 1
        entry = TrailRow(seq=self.trail_seq, run=row.id, tenant=row.tenant, type=what, at=now, data=data)
        self.trail.append(entry)
        row.updated_at = now
        return entry

    def was_noted(self, row: RunRow, what: str, data: dict[str, Any]) -> bool:
        return any((entry.run, entry.type, entry.data) == (row.id, what, data) for entry in self.trail)


def check(row: RunRow, *, steps: bool) -> None:
    """Refuse a row that no move may leave behind, as the constraints of SQL stores do.

    `steps`: False where no step was added, of a run that may have thousands.
    """
    leased = row.status is Status.LEASED
    looked_at = row.steps.values() if steps else ()
    laws = {
        "a status that is known": row.status in set(Status),
        "a holder and a lease exactly while leased": leased == (row.leased_by is not None)
        and leased == (row.lease_until is not None),
        "nobody at it once it is deleted": not leased or row.deleted_at is None,
        "a pause asked of a leased or paused run only, or a move": row.pause_asked_by is None
        or row.status in {Status.LEASED, Status.PAUSED}
        or (row.status in FINAL and row.pause_asked_by in {MOVING, MOVED}),
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


def step_bytes(step: StepRow) -> int:
    """Return how many bytes a step takes in an answer."""
    return ROW_BYTES + sum(map(text_bytes, (step.key, step.output, step.error, step.ask, step.wake)))
