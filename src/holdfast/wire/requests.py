"""The bodies that a worker sends. Unknown fields are ignored: newer workers can talk to older servers."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, Raw

from holdfast.arguments import LEASE_MAX_SECONDS, LEASE_MIN_SECONDS
from holdfast.bounds import BATCH_BYTES
from holdfast.contract import RUNNING_MAX
from holdfast.lifecycle import StepKind, StepStatus

from .values import (
    Cost,
    Duration,
    Fence,
    LeaseTime,
    Name,
    StepKey,
    Token,
    Topic,
    Value,
    Whole,
    WorkerName,
    Zoned,
)

TYPES_MAX = 1_000
LACKING_MAX = 100  # tasks without a handler, of one plan
CLAIM_MAX = 1_000  # runs of one claim
LEASES_MAX = 10_000  # of one heartbeat
ITEMS_MAX = 1_000  # of one batch
WAIT_MS_MAX = 25_000
LEASE_MS = 30_000.0
BODY_BYTES = 16 * 1024 * 1024  # of a batch

LeaseMs = Annotated[
    float,
    Meta(
        ge=LEASE_MIN_SECONDS * 1000,
        le=LEASE_MAX_SECONDS * 1000,
        description="How long a lease lasts without a heartbeat, in milliseconds.",
    ),
]
WaitMs = Annotated[
    float,
    Meta(
        ge=0, le=WAIT_MS_MAX, description="How long the server may wait before it answers, in milliseconds."
    ),
]
TraceContext = Annotated[str, Meta(max_length=1000, description="A W3C traceparent.")]
Types = Annotated[tuple[Name, ...], Meta(max_length=TYPES_MAX, description="Types, as `shop.order.v1`.")]
Lacking = Annotated[
    dict[Name, Annotated[tuple[StepKey, ...], Meta(max_length=LACKING_MAX)]],
    Meta(max_length=TYPES_MAX, description="By plan, the tasks without a handler."),
]


class Request(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The base of the bodies. Fields with their default are not sent."""

    levels: ClassVar[int] = 10  # levels of the body around a value
    takes_null: ClassVar[bool] = True  # null in an optional field means that it was left out


class PlanStepData(Request, frozen=True, kw_only=True):
    """One step of a plan."""

    name: StepKey
    kind: StepKind = StepKind.TASK
    max_attempts: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None
    topic: Topic | None = None
    timeout_ms: Duration | None = None
    ask: Value = UNSET
    on_timeout: Literal["reject", "approve"] = "reject"


class DefinitionData(Request, frozen=True, kw_only=True):
    """A workflow that is to be published."""

    type: Name
    kind: Literal["code", "plan"] = "code"
    max_attempts: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None
    timeout_ms: Duration | None = None
    description: str = ""
    steps: tuple[PlanStepData, ...] = ()
    budget: Cost | None = None
    covers_children: bool = False
    params_schema: Value = UNSET
    result_schema: Value = UNSET


class RegisterRequest(Request, frozen=True, kw_only=True):
    """The introduction of a worker: who it is, and what it can execute."""

    worker: WorkerName
    language: Name
    library: Name
    version: Annotated[str, Meta(max_length=100)] = ""
    runtime: Name
    types: Types
    slots: Annotated[int, Meta(ge=0, le=2**31 - 1)]
    patterns: Annotated[tuple[Name, ...], Meta(max_length=100)] = ("%",)
    stragglers: Whole = 0
    lacking: Lacking = {}
    definitions: Annotated[tuple[DefinitionData, ...], Meta(max_length=TYPES_MAX)] = ()


class LeaveRequest(Request, frozen=True, kw_only=True):
    """The end of a worker."""

    worker: WorkerName


class ClaimRequest(Request, frozen=True, kw_only=True):
    """The request for runs: at most `slots`, of these types."""

    worker: WorkerName
    runtime: Name
    types: Types
    slots: Annotated[int, Meta(ge=0, le=CLAIM_MAX)]
    lease_ms: LeaseMs = LEASE_MS
    wait_ms: WaitMs = 0
    crashed: Annotated[tuple[Whole, ...], Meta(max_length=100)] | None = None
    bytes: Annotated[int, Meta(ge=0, le=BATCH_BYTES)] = BATCH_BYTES


class HeldLease(Request, frozen=True, kw_only=True):
    """A lease, as its holder names it."""

    run: UUID
    fence: Fence
    token: Token


class LoadRequest(HeldLease, frozen=True, kw_only=True):
    """The request for one page of a large run. record: also the fields of the run itself."""

    after: Annotated[int, Meta(ge=-1, le=2**31 - 1)] = -1
    bytes: Annotated[int, Meta(ge=0, le=BATCH_BYTES)] = BATCH_BYTES
    record: bool = False


class RenewedLease(HeldLease, frozen=True, kw_only=True):
    """One lease of a heartbeat."""

    known: Whole | None = None
    started_ms: LeaseTime | None = None
    heartbeat: bool = False
    survived: bool = False
    progress: Value = UNSET


class HeartbeatRequest(Request, frozen=True, kw_only=True):
    """The leases that a worker holds, to be extended."""

    worker: WorkerName
    lease_ms: LeaseMs = LEASE_MS
    leases: Annotated[tuple[RenewedLease, ...], Meta(max_length=LEASES_MAX)]


class StateOf(HeldLease, frozen=True, kw_only=True):
    """One lease that is asked about. pause: what the worker knows already."""

    pause: bool = False


class StatesRequest(Request, frozen=True, kw_only=True):
    """The question whether leases still hold."""

    leases: Annotated[tuple[StateOf, ...], Meta(max_length=LEASES_MAX)]
    wait_ms: WaitMs = 0


class RunningStepData(Request, frozen=True, kw_only=True):
    """A step that is executed now."""

    step: StepKey
    attempt: Annotated[int, Meta(ge=1, le=2**31 - 1)]
    started_ms: LeaseTime


class RunningRun(HeldLease, frozen=True, kw_only=True):
    """The steps of one run that are executed now, oldest first."""

    started_ms: LeaseTime | None = None
    steps: Annotated[tuple[RunningStepData, ...], Meta(min_length=1, max_length=RUNNING_MAX)]


class RunningRequest(Request, frozen=True, kw_only=True):
    """Steps that people are to see while they run."""

    worker: WorkerName
    runs: Annotated[tuple[RunningRun, ...], Meta(max_length=ITEMS_MAX)]


class ChildData(Request, frozen=True, kw_only=True):
    """A run that a step starts. The server makes its id; one that is given is refused."""

    type: Name
    params: Value = UNSET
    priority: Annotated[int, Meta(ge=0, le=999)] = 100
    delay_ms: Duration | None = None
    run_at: Zoned | None = None
    timeout_ms: Duration | None = None
    max_attempts: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None
    ttl_ms: Duration | None = None
    budget: Annotated[float, Meta(gt=0, le=1_000_000_000)] | None = None
    limit_key: Name | None = None
    labels: dict[str, str] | None = None
    covers_children: bool = False
    traceparent: TraceContext = ""
    tenant: Name | None = None
    id: Value = UNSET


class StepData(Request, frozen=True, kw_only=True):
    """A step that is to be recorded: its outcome, a failed try, or a wait that is opened or given up."""

    key: StepKey
    kind: StepKind = StepKind.TASK
    status: StepStatus = StepStatus.SUCCEEDED
    output: Value = UNSET
    error: Value = UNSET
    attempts: Whole | None = None
    max_attempts: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None
    cost: Cost = 0
    topic: Topic | None = None
    delay_ms: Duration | None = None
    due_ms: LeaseTime | None = None
    until: Zoned | None = None
    since_now: bool = False
    started_ms: LeaseTime | None = None
    ask: Value = UNSET
    on_timeout: Literal["reject", "approve"] = "reject"
    child: ChildData | None = None


class EventData(Request, frozen=True, kw_only=True):
    """An event. The same name of the same run is one event."""

    name: StepKey
    topic: Topic
    payload: Value = UNSET
    tenant: Name | None = None


class MessageData(Request, frozen=True, kw_only=True):
    """A message for the outbox: the `number`-th of its step."""

    sink: Name
    payload: Value = UNSET
    key: Name | None = None
    step: StepKey
    number: Annotated[int, Meta(ge=1, le=2**53)] | None = None


class ContinueData(Request, frozen=True, kw_only=True):
    """The next run of the chain: its params."""

    params: Value = UNSET
    traceparent: TraceContext = ""


class BatchItem(HeldLease, frozen=True, kw_only=True):
    """One write of a run. The fields after `traceparent` belong to some operations only."""

    op: Annotated[str, Meta(max_length=50)]
    seq: Annotated[int, Meta(ge=1, le=2**31 - 1)]
    steps: tuple[StepData, ...] = ()
    logs: tuple[Raw, ...] = ()
    events: tuple[EventData, ...] = ()
    messages: tuple[MessageData, ...] = ()
    progress: Value = UNSET
    known: Whole | None = None
    started_ms: LeaseTime | None = None
    lease_ms: LeaseMs = LEASE_MS
    shares: bool = False
    traceparent: TraceContext | None = None
    result: Value = UNSET
    continue_as: ContinueData | None = None
    error: Value = UNSET
    last_error: Annotated[str, Meta(max_length=4000)] | None = None
    delay_ms: Duration = 0
    in_place: bool = False
    refund: bool = False
    before: StepKey | None = None
    cost_max: Cost = 0
    plan: tuple[PlanStepData, ...] = ()


class BatchRequest(Request, frozen=True, kw_only=True):
    """The writes of runs: at most one item of each."""

    items: Annotated[tuple[BatchItem, ...], Meta(max_length=ITEMS_MAX)]


class RawBatch(Request, frozen=True, kw_only=True):
    """A batch as the server reads it: an item with a wrong field is refused alone."""

    shape: ClassVar[type] = BatchRequest  # as the OpenAPI document shows it

    items: Annotated[tuple[Raw, ...], Meta(max_length=ITEMS_MAX)]
