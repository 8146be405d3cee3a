"""The answers of the server to a worker."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, Raw

from holdfast.lifecycle import Status, StepKind, StepStatus

from .values import Value

PROTOCOL = 1  # the version of the protocol
HELD, CANCELLED, LOST, UNREADABLE = "held", "cancelled", "lost", "unreadable"  # states of a lease
APPLIED, PAUSED = "applied", "paused"  # answers to an item


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """The base of the answers. Fields may be added to them."""


class Span(Answered, frozen=True, kw_only=True):
    """The bounds of a duration, and what it is when it is left out."""

    min: float
    max: float
    default: float


class Limits(Answered, frozen=True, kw_only=True):
    """The limits of requests."""

    value_bytes: int
    value_levels: int
    batch_bytes: int
    batch_items: int
    claim_slots: int
    leases: int
    types: int
    key_chars: int


class Registered(Answered, frozen=True, kw_only=True):
    """The server: its protocol and limits. worker: the name that people see. published: whether the
    definitions were published."""

    protocol: int
    worker: str
    tenant: str
    published: bool
    present_ms: float
    lease_ms: Span
    wait_ms_max: float
    limits: Limits


class RecordedStep(Answered, frozen=True, kw_only=True, omit_defaults=True):
    """A step as it is recorded. Times are in milliseconds since the claim of the lease."""

    seq: int
    key: str
    kind: StepKind
    status: StepStatus
    attempts: int
    output: Value = UNSET
    error: Value = UNSET
    cost: float = 0
    topic: str | None = None
    due_ms: float | None = None
    started_ms: float | None = None
    finished_ms: float | None = None
    fence: int = 0
    max_attempts: int | None = None
    timeout_ms: float | None = None
    ask: Value = UNSET
    digest: str | None = None
    child: UUID | None = None
    wake: Value = UNSET
    waits: int = 0


class Leased(Answered, frozen=True, kw_only=True):
    """A run that the worker holds now, with all that is needed to execute it; or `unread`."""

    run: UUID
    type: str
    kind: str
    tenant: str
    fence: int
    token: str
    lease_ms: float
    attempt: int
    max_attempts: int
    crashes: int
    claimed_at: Annotated[int, Meta(description="Microseconds since 1970, by the clock of the store.")]
    created_ms: float
    due_ms: float
    timeout_ms: float | None
    params: Raw
    labels: Raw
    steps: tuple[RecordedStep, ...]
    unread: bool
    woken_by: tuple[str, ...]
    logs: int
    parent: UUID | None
    traceparent: str
    trace: Annotated[str, Meta(description="The trace context as it is stored, with what Python adds.")]
    cost: float
    budget: float | None
    left: float | None
    account: UUID | None


class Claimed(Answered, frozen=True, kw_only=True):
    """The runs of a claim. drain: this server is stopping. waited_ms: from the request to the claim."""

    leases: tuple[Leased, ...]
    drain: bool
    waited_ms: float = 0.0


class RunRecord(Answered, frozen=True, kw_only=True):
    """Fields of the run itself."""

    priority: int
    limit_key: str | None
    timeout_ms: float | None
    ttl_ms: float | None
    budget: float | None
    parent_step: str | None
    error: Raw
    last_error: str | None


class LoadedPage(Answered, frozen=True, kw_only=True):
    """One page of a large run: params and labels on the first one. more: there is a further page."""

    params: Raw
    labels: Raw
    steps: tuple[RecordedStep, ...]
    more: bool
    record: RunRecord | None


class LeaseNews(Answered, frozen=True, kw_only=True):
    """The news of a heartbeat about one lease."""

    run: UUID
    state: str
    reason: str = ""
    renewed: bool = False
    pause: bool = False
    settled: tuple[RecordedStep, ...] = ()
    more: bool = False


class Stray(Answered, frozen=True, kw_only=True):
    """A run that is leased to this worker, which did not name it: the answer to a claim was lost."""

    run: UUID
    fence: int
    token: str


class Heartbeat(Answered, frozen=True, kw_only=True):
    """The answer to a heartbeat: the leases in their order."""

    leases: tuple[LeaseNews, ...]
    strays: tuple[Stray, ...]
    drain: bool


class StateNews(Answered, frozen=True, kw_only=True):
    """The state of one lease."""

    run: UUID
    state: str
    pause: bool


class States(Answered, frozen=True, kw_only=True):
    """The states of leases, in their order."""

    leases: tuple[StateNews, ...]
    drain: bool


class Shown(Answered, frozen=True, kw_only=True):
    """For each run, in order: whether people can see its running steps now."""

    written: tuple[bool, ...]


class Kept(Answered, frozen=True, kw_only=True):
    """A step that was recorded before, with the value that counts."""

    key: str
    output: Raw


class ItemApplied(Answered, frozen=True, kw_only=True):
    """The answer to one item of a batch. status: of the run from now on; `leased`: its holder goes on.

    known: the highest seq of the run, if the item had `known`. children: the ids of the runs that its steps
    have started. next: the id of the run that `continue_as` has started.
    """

    run: UUID | None
    seq: int
    answer: str
    status: Status | None = None
    kept: tuple[Kept, ...] = ()
    settled: tuple[RecordedStep, ...] = ()
    known: int = 0
    more: bool = False
    children: dict[str, UUID] = {}
    next: UUID | None = None
    left: float | None = None
