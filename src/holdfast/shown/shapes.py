"""The shapes of records for machines: one typed record for each JSON document that a front end prints.

The command line with `--json` and the HTTP API print the same documents. The OpenAPI document is made from
these classes. Field names are stable. Instants are ISO 8601 in UTC, durations are in seconds and end in
`_seconds`, costs are numbers. Values of users (`Value`) are JSON as it is stored. `redacted` is true when the
reader may not see values: then params, results, outputs, payloads, questions and messages of errors are left
out.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType

from holdfast.lifecycle import Status, StepKind, StepStatus
from holdfast.records import MessageStatus, PlanStep, Scope

Value = msgspec.Raw  # JSON of a user, as it is stored
NULL = msgspec.Raw(b"null")


class Shape(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The base of all shapes. Only fields with a default, such as `redacted`, may be missing."""


class ErrorData(Shape, frozen=True, kw_only=True, omit_defaults=True):
    """An error of a run, a step or a message."""

    kind: str
    type: str
    message: str
    traceback: str
    step: str | None
    attempt: int | None
    max_attempts: int | None
    since: datetime | None
    args: Value


class WaitData(Shape, frozen=True, kw_only=True, omit_defaults=True):
    """An open wait: what a run waits for, since when, until when."""

    step: str
    kind: StepKind
    topic: str | None
    child: UUID | None
    since: datetime | None
    due_at: datetime | None


class SharedBudgetData(Shape, frozen=True, kw_only=True, omit_defaults=True):
    """The budget that covers a run and others: of which run, how much, and how much of it is spent."""

    run: UUID | None
    budget: float
    cost: float


class ChildCountsData(Shape, frozen=True, kw_only=True, omit_defaults=True):
    """The children of a run by status. more: the store stopped counting there."""

    total: int
    ended: int
    by_status: dict[str, int]
    more: bool


class RunningData(Shape, frozen=True, kw_only=True, omit_defaults=True):
    """A step that is executed now, and is not recorded yet."""

    step: str
    attempt: int
    started_at: datetime


class RunData(Shape, frozen=True, kw_only=True, omit_defaults=True):
    """A run without its values: one line of `ls`."""

    id: UUID
    type: str
    kind: str
    status: Status
    tenant: str
    key: str | None
    priority: int
    run_at: datetime
    attempt: int
    max_attempts: int
    crashes: int
    fence: int
    cursor: str | None
    current_step_seq: int | None
    current_step_name: str | None
    waiting_on: tuple[WaitData, ...]
    leased_by: str | None
    lease_until: datetime | None
    pause_asked_by: str | None
    last_error: str | None
    fingerprint: str | None
    progress: Value
    cost: float
    budget: float | None
    shared_budget: SharedBudgetData | None
    limit_key: str | None
    labels: Value
    chain: UUID
    present: UUID
    parent: UUID | None
    parent_step: str | None
    origin: UUID | None
    timeout_at: datetime | None
    timeout_seconds: float | None
    ttl_seconds: float | None
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    expires_at: datetime | None
    deleted_at: datetime | None
    redacted: bool = False


class ListedRunData(RunData, frozen=True, kw_only=True, omit_defaults=True):
    """A run of a list, with its children counted. Its error has no traceback.

    params, result: only where values were asked for; then the error is complete.
    """

    error: ErrorData | None
    child_counts: ChildCountsData | None
    params: Value | UnsetType = UNSET
    result: Value | UnsetType = UNSET


class RunValuesData(RunData, frozen=True, kw_only=True, omit_defaults=True):
    """A run with its values and the steps that are executed now."""

    params: Value
    result: Value
    error: ErrorData | None
    running: tuple[RunningData, ...]


class StepData(Shape, frozen=True, kw_only=True, omit_defaults=True):
    """A recorded step of a run."""

    seq: int
    step: str
    kind: StepKind
    status: StepStatus
    attempts: int
    max_attempts: int | None
    output: Value
    error: ErrorData | None
    cost: float
    topic: str | None
    due_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    child: UUID | None
    ask: Value
    digest: str | None
    left_out: bool = False
    redacted: bool = False


class ChildData(Shape, frozen=True, kw_only=True, omit_defaults=True):
    """A child of a run."""

    id: UUID
    type: str
    status: Status


class WholeRunData(RunValuesData, frozen=True, kw_only=True, omit_defaults=True):
    """A run with its values, its children and all its steps: what `show` prints."""

    children: tuple[ChildData, ...]
    steps: tuple[StepData, ...]
    child_counts: ChildCountsData | None


class StartedData(Shape, frozen=True, kw_only=True, omit_defaults=True):
    """The answer to a start: the id of the run, and whether this call created it."""

    id: UUID
    type: str
    created: bool


class RerunData(StartedData, frozen=True, kw_only=True, omit_defaults=True):
    """The answer to a rerun. origin: the run that the new one repeats."""

    origin: UUID


class ResultData(Shape, frozen=True, kw_only=True, omit_defaults=True):
    """The result or the error of a run; both are null while it is open."""

    id: UUID
    type: str
    status: Status
    result: Value
    error: ErrorData | None
    redacted: bool = False


class StartedResultData(ResultData, frozen=True, kw_only=True, omit_defaults=True):
    """A run that was started and has ended."""

    created: bool


class RerunResultData(StartedResultData, frozen=True, kw_only=True, omit_defaults=True):
    """A run that repeats another, and has ended."""

    origin: UUID


class ApprovalData(Shape, frozen=True, kw_only=True, omit_defaults=True):
    """An open gate: one line of the approval inbox."""

    run: UUID
    step: str
    type: str
    tenant: str
    ask: str
    data: Value
    digest: str | None
    opened_at: datetime
    due_at: datetime | None
    redacted: bool = False


class DecidedData(Shape, frozen=True, kw_only=True, omit_defaults=True):
    """The decision of a gate, and whether it was made before."""

    run: UUID
    step: str
    approved: bool
    by: str
    comment: str
    at: datetime
    timed_out: bool
    repeated: bool
    status: Status


class TrailEntryData(Shape, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that happened to a run. `seq` grows over all runs of the store."""

    seq: int
    run: UUID
    type: str
    at: datetime
    data: Value
    told: bool = False  # written by a worker in user SQL, not by a move of the store
    redacted: bool = False


class MessageData(Shape, frozen=True, kw_only=True, omit_defaults=True):
    """A message of the outbox, with its payload and its last error."""

    seq: int
    id: str
    status: MessageStatus
    sink: str
    key: str | None
    tenant: str
    run: UUID
    step: str | None
    attempts: int
    held_by: str | None
    next_at: datetime | None
    created_at: datetime
    tried_at: datetime | None
    sent_at: datetime | None
    payload: Value
    error: ErrorData | None
    redacted: bool = False


class ExplanationData(Shape, frozen=True, kw_only=True, omit_defaults=True):
    """Why a run is not moving: one stable word, a sentence for people, and the facts in it."""

    id: UUID
    status: Status
    reason: str
    text: str
    data: Any
    redacted: bool = False


class ScheduleData(Shape, frozen=True, kw_only=True, omit_defaults=True):
    """A schedule, its next times or why they are unknown here, and the start of its intervals."""

    id: UUID
    name: str
    tenant: str
    type: str
    params: Value
    cron: str | None
    zone: str | None
    every_seconds: float | None
    anchor_at: datetime
    jitter_seconds: float
    overlap: str
    catch_up: str
    priority: int
    max_attempts: int | None
    timeout_seconds: float | None
    ttl_seconds: float | None
    budget: float | None
    limit_key: str | None
    labels: Value
    paused: bool
    paused_by: str | None
    next_at: datetime | None
    next_times: tuple[datetime, ...]
    trouble: str | None
    waiting: tuple[datetime, ...]
    fired: int
    skipped: int
    last_at: datetime | None
    last_run: UUID | None
    last_skipped_at: datetime | None
    last_missed_at: datetime | None
    rev: int
    created_at: datetime
    updated_at: datetime
    redacted: bool = False


class DefinitionData(Shape, frozen=True, kw_only=True, omit_defaults=True):
    """A published workflow, with the JSON Schemas of its params and its result as far as they are known."""

    type: str
    kind: str
    max_attempts: int | None
    timeout_seconds: float | None
    description: str
    steps: tuple[PlanStep, ...]
    budget: float | None
    covers_children: bool
    params_schema: Value
    result_schema: Value


class PresenceData(Shape, frozen=True, kw_only=True, omit_defaults=True):
    """A live worker: its name, what it can run, how much, and when it was last seen."""

    worker: str
    types: tuple[str, ...]
    patterns: tuple[str, ...]
    tenants: tuple[str, ...] | None
    runtime: str
    slots: int
    stragglers: int
    sinks: tuple[str, ...]
    lacking: dict[str, tuple[str, ...]]
    library: str = ""
    seen_at: datetime


class StatsData(Shape, frozen=True, kw_only=True, omit_defaults=True):
    """An overview of the store."""

    now: datetime
    by_status: dict[str, int]
    workers: int
    oldest_due_at: datetime | None
    unclaimable: dict[str, int]
    undelivered: int
    extra: dict[str, int]


class KeyData(Shape, frozen=True, kw_only=True, omit_defaults=True):
    """An API key, without its secret."""

    id: str
    tenant: str
    name: str
    scopes: tuple[Scope, ...]
    patterns: tuple[str, ...]
    expires_at: datetime | None
    rate: float | None
    open_runs_max: int | None
    created_at: datetime
    created_by: str
    last_used_at: datetime | None
    rotated_at: datetime | None
    old_secret_until: datetime | None
    revoked_at: datetime | None
    revoked_by: str
