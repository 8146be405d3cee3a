"""The rows that moves work on: a run, and a step of it.

A store may add fields of its own. A value that a store has not read is `UNREAD`: moves may write it, and
never look at it.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec

from holdfast.lifecycle import Status, StepKind, StepStatus
from holdfast.records import MAX_ATTEMPTS, MAX_CRASHES, PRIORITY, Instant, Json, Step

from .durations import micros

PLAN = "plan"
UNREAD: Any = type("Unread", (), {"__repr__": lambda _: "UNREAD"})()


class Owes:
    """A run's promises, as bits: made in one commit, carried out by `deliver` right after it."""

    END = 1  # the parent is told of the end
    CHILDREN = 2  # the open children are cancelled
    ORPHANS = 4  # the open children that no step names any more are cancelled
    LOOK = 8  # the open waits are looked at: the last look stopped, because values were large
    CHAIN = 16  # the other runs of the chain are deleted, or restored, as its first one is
    ANY = ~0


class StepRow(msgspec.Struct, gc=False):
    """A recorded step. `mark`: a wait takes no event up to that number."""

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
    fence: int = 0  # of the holder that wrote it,
    number: int = 0  # and the number of its item; 0: no item wrote it
    started_at: Instant | None = None
    finished_at: Instant | None = None
    max_attempts: int | None = None
    timeout_seconds: float | None = None
    ask: Json | None = None
    digest: str | None = None
    child: UUID | None = None
    wake: Json | None = None
    waits: int = 0
    mark: int = 0
    on_timeout: str | None = "reject"


class RunRow(msgspec.Struct, gc=False):
    """A run, as far as moves need it: what they may change, then what stays."""

    id: UUID
    tenant: str
    run_at: Instant
    kind: str = "code"
    status: Status = Status.PENDING
    resume_to: Status | None = None
    attempt: int = 0
    crashes: int = 0
    survived: int = 0  # 1: it has executed for a whole lease time since its last progress, and was forgiven
    tried_of: int | None = None  # of a run that failed by a step: how many tries that had
    fence: int = 0
    leased_by: str | None = None
    lease_until: Instant | None = None
    pause_asked_by: str | None = None
    started_fence: int = 0  # the execution whose `started` is in the trail
    started_at: Instant | None = None
    commit_fence: int = 0  # the last item that is recorded in this row,
    commit_no: int = 0  # its number,
    commit_answer: Any = None  # and its answer, as the store keeps it
    step_mark: int = 0  # the highest number of a step that was forgotten
    waiting_on: str | None = None  # kind, topic and time of the first due open wait, for people
    wait_topic: str | None = None
    deadline_at: Instant | None = None
    owes: int = 0
    cost: int = 0
    error: Json | None = None
    last_error: str | None = None
    timeout_at: Instant | None = None
    expires_at: Instant | None = None
    finished_at: Instant | None = None
    priority: int = PRIORITY
    deleted_at: Instant | None = None
    progress: Json | None = None
    result: Json | None = None
    updated_at: Instant = 0
    type: str = ""
    max_attempts: int = MAX_ATTEMPTS
    max_crashes: int = MAX_CRASHES
    mark: int = 0  # the newest event when the run was started
    parent: UUID | None = None
    parent_step: str | None = None
    budget: int | None = None
    timeout_seconds: float | None = None
    ttl_seconds: float | None = None
    chain: UUID | None = None  # the first run of its chain; None: it is the first, or the only one
    present: UUID | None = None  # of a first run: the run that its chain has come to; None: itself

    @property
    def chain_id(self) -> UUID:
        """The id of its chain: receipts and events for the run go by it."""
        return self.id if self.chain is None else self.chain

    @property
    def is_plan(self) -> bool:
        return self.kind == PLAN

    @property
    def is_reached(self) -> bool:
        """Whether news get the run going. A paused or deleted run finds them later."""
        return self.status is not Status.PAUSED and self.deleted_at is None

    def let_go(self) -> None:
        """Nobody holds the run any more."""
        self.leased_by = self.lease_until = None

    def pause(self, resume_to: Status) -> None:
        """The run is paused, and will resume to this status."""
        self.let_go()
        self.status, self.resume_to, self.pause_asked_by = Status.PAUSED, resume_to, None

    def show_wait(self, wait: StepRow | None) -> None:
        """People are shown what the run waits for, or that it waits no longer."""
        if wait is None:
            self.waiting_on = self.wait_topic = self.deadline_at = None
        else:
            self.waiting_on, self.wait_topic, self.deadline_at = wait.kind.value, wait.topic, wait.due_at

    def blame(self, kind: str, message: str) -> None:
        """The run's error, decided by the store itself."""
        self.error = msgspec.json.encode({"kind": kind, "message": message}).decode()
        self.last_error = f"{kind}: {message}"

    def begin_anew(self, now: Instant) -> None:
        """Fresh counts and a fresh timeout; the former holder is fenced off. A cancel that still owed the
        cancels of all children owes them no more: the next execution has its own.
        """
        self.let_go()
        self.attempt, self.crashes, self.fence, self.run_at = 0, 0, self.fence + 1, now
        self.survived, self.tried_of = 0, None
        self.owes &= ~Owes.CHILDREN
        self.result = self.error = self.last_error = self.pause_asked_by = None
        self.finished_at = self.expires_at = None
        self.timeout_at = None if self.timeout_seconds is None else now + micros(self.timeout_seconds)
        self.show_wait(None)


def holds(run: RunRow, fence: int, now: Instant) -> bool:
    """THE guard of every write of a holder: leased, under this fence, and the lease has not run out."""
    return (
        run.status is Status.LEASED
        and run.fence == fence
        and run.lease_until is not None
        and run.lease_until >= now
    )


def shown(step: StepRow) -> Step:
    """The step as callers see it."""
    return Step(
        seq=step.seq, key=step.key, kind=step.kind, status=step.status, attempts=step.attempts,
        output=step.output, error=step.error, cost=step.cost, topic=step.topic, due_at=step.due_at,
        fence=step.fence, started_at=step.started_at, finished_at=step.finished_at,
        max_attempts=step.max_attempts, timeout_seconds=step.timeout_seconds, ask=step.ask,
        digest=step.digest, child=step.child, wake=step.wake, waits=step.waits,
    )  # fmt: skip


def raw(json: Json | None) -> msgspec.Raw | None:
    """JSON text as a part of other JSON, not looked into."""
    return None if json is None else msgspec.Raw(json.encode())
