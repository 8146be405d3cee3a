"""The rows that moves work on: a run, and a step of a run.

A store may add fields. A value that a store has not read is `UNREAD`: moves may write it, but never read it.
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
    """Bits of work that a commit leaves to do. `deliver` carries it out right after the commit."""

    END = 1  # tell the parent about the end
    CHILDREN = 2  # cancel the open children
    ORPHANS = 4  # cancel the open children that no step names any more
    LOOK = 8  # look at the open waits: the last look stopped, because values were large
    CHAIN = 16  # delete or restore the other runs of the chain, like its first run
    RESUME = 32  # resume the runs that were paused because the budget of this run was spent
    ALL = 63  # nothing carries out any other one
    ANY = ~0


class StepRow(msgspec.Struct, gc=False):
    """A recorded step. `watermark`: a wait takes no event up to that number."""

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
    fence: int = 0  # the fence of the holder that wrote it
    number: int = 0  # the number of the item that wrote it; 0: no item wrote it
    started_at: Instant | None = None
    finished_at: Instant | None = None
    max_attempts: int | None = None
    timeout_seconds: float | None = None
    ask: Json | None = None
    digest: str | None = None
    child: UUID | None = None
    wake: Json | None = None
    waits: int = 0
    watermark: int = 0
    on_timeout: str | None = "reject"


class RunRow(msgspec.Struct, gc=False):
    """A run, with the fields that moves need: first those that may change, then those that never do."""

    id: UUID
    tenant: str
    run_at: Instant
    kind: str = "code"
    status: Status = Status.PENDING
    resume_to: Status | None = None
    attempt: int = 0
    crashes: int = 0
    # 1: it executed for a whole lease time since its last progress, and its crashes were forgiven.
    survived: int = 0
    tried_of: int | None = None  # for a run that failed by a step: the max_attempts of that step
    fence: int = 0
    leased_by: str | None = None
    lease_until: Instant | None = None
    pause_asked_by: str | None = None
    started_fence: int = 0  # the execution whose `started` is in the trail
    started_at: Instant | None = None
    commit_fence: int = 0  # the fence of the last item that is recorded in this row
    commit_no: int = 0  # the number of that item
    commit_answer: Any = None  # the answer to that item, as the store keeps it
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
    budget: int | None = None
    deleted_at: Instant | None = None
    progress: Json | None = None
    result: Json | None = None
    updated_at: Instant = 0
    type: str = ""
    max_attempts: int = MAX_ATTEMPTS
    max_crashes: int = MAX_CRASHES
    watermark: int = 0  # the newest event when the run was started: it takes only later ones
    parent: UUID | None = None
    parent_step: str | None = None
    timeout_seconds: float | None = None
    ttl_seconds: float | None = None
    chain: UUID | None = None  # the first run of its chain; None: it is the first, or the only one
    present: UUID | None = None  # for a first run: the present run of its chain; None: itself
    account: UUID | None = None  # the chain at the top whose budget covers it; of that chain its own id

    @property
    def chain_id(self) -> UUID:
        """The id of its chain. Receipts and events addressed to the run are stored under it."""
        return self.id if self.chain is None else self.chain

    @property
    def is_plan(self) -> bool:
        return self.kind == PLAN

    @property
    def is_reached(self) -> bool:
        """True when an event can wake the run now. A paused or deleted run finds it later."""
        return self.status is not Status.PAUSED and self.deleted_at is None

    def let_go(self) -> None:
        """Clear the lease."""
        self.leased_by = self.lease_until = None

    def pause(self, resume_to: Status, by: str | None) -> None:
        """Pause the run. It will resume to the given status. Its row names who asked for the pause."""
        self.let_go()
        self.status, self.resume_to, self.pause_asked_by = Status.PAUSED, resume_to, by

    def show_wait(self, wait: StepRow | None) -> None:
        """Set the fields that show what the run waits for. None: nothing."""
        if wait is None:
            self.waiting_on = self.wait_topic = self.deadline_at = None
        else:
            self.waiting_on, self.wait_topic, self.deadline_at = wait.kind.value, wait.topic, wait.due_at

    def blame(self, kind: str, message: str) -> None:
        """Set an error that the store itself has decided."""
        self.error = msgspec.json.encode({"kind": kind, "message": message}).decode()
        self.last_error = f"{kind}: {message}"

    def begin_anew(self, now: Instant) -> None:
        """Start the run again: counts and timeout start again, and the fence shuts out the former holder.

        An owed cancel of all children is dropped: the next execution has its own children.
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
    """Return True when this fence holds the lease: the guard of every write of a holder."""
    return (
        run.status is Status.LEASED
        and run.fence == fence
        and run.lease_until is not None
        and run.lease_until >= now
    )


def shown(step: StepRow) -> Step:
    """Return the step as callers see it."""
    return Step(
        seq=step.seq, key=step.key, kind=step.kind, status=step.status, attempts=step.attempts,
        output=step.output, error_json=step.error, cost=step.cost, topic=step.topic, due_at=step.due_at,
        fence=step.fence, started_at=step.started_at, finished_at=step.finished_at,
        max_attempts=step.max_attempts, timeout_seconds=step.timeout_seconds, ask=step.ask,
        digest=step.digest, child=step.child, wake=step.wake, waits=step.waits,
    )  # fmt: skip


def raw(json: Json | None) -> msgspec.Raw | None:
    """Return JSON text for use inside other JSON, without parsing it."""
    return None if json is None else msgspec.Raw(json.encode())
