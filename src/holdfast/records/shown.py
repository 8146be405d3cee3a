"""What is read: runs, steps, the trail, events, and the store at a glance."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from holdfast.lifecycle import Status, StepKind, StepStatus

from .reading import MARK, Unreadable, read, read_error, read_object, value
from .units import COST_UNIT, OWN, Instant, Json, OwnTenant, Tenant
from .written import Error, Presence


class Step(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """One recorded unit inside a run."""

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
    max_attempts: int | None = None  # of a plan's task
    timeout_seconds: float | None = None  # of a plan's gate, awaited event or sleep
    ask: Json | None = None  # approval: {"ask", "data"}
    digest: str | None = None  # approval: of what is shown
    child: UUID | None = None
    wake: Json | None = None  # a plan's task that has waited: {"reason": "event" | "timeout", "event": …}
    waits: int = 0  # how often a plan's task, or the step of a child, has waited
    left_out: bool = False  # whether output, ask or wake was larger than the reader wanted, and is None here


class Run(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """The durable record of one execution of a workflow, as `get` and `list` show it."""

    id: UUID
    tenant: str
    type: str
    kind: str  # code | plan
    status: Status
    params_json: Json
    result_json: Json | None
    error_json: Json | None
    last_error: str | None
    priority: int
    run_at: datetime
    key: str | None
    attempt: int
    max_attempts: int
    crashes: int
    fence: int
    leased_by: str | None
    lease_until: datetime | None
    waiting_on: tuple[Step, ...]  # its open waits, first due first
    pause_asked_by: str | None
    cursor: str | None
    current_step_seq: int | None  # of a plan: number and name of the first step that has not succeeded
    current_step_name: str | None
    chain: UUID  # the first run of its chain; its own id, where it never went on as another
    present: UUID  # the run that its chain has come to
    parent: UUID | None
    parent_step: str | None  # the parent's step that waits, or waited, for it
    limit_key: str | None
    labels_json: Json | None
    cost_units: int
    budget_units: int | None
    progress_json: Json | None
    timeout_at: datetime | None
    timeout_seconds: float | None  # what that was counted from: a rewind and a retry count it anew
    ttl_seconds: float | None  # how long it is kept after its end; None: by the default
    expires_at: datetime | None
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    deleted_at: datetime | None

    @property
    def params(self) -> Any:
        """The value that the run was started with; BadValue if it cannot be read."""
        return value(self.params_json, f"params of run {self.id}")

    @property
    def result(self) -> Any:
        """The value that the run returned; None before that. BadValue if it cannot be read."""
        return None if self.result_json is None else value(self.result_json, f"the result of run {self.id}")

    @property
    def error(self) -> Error | None:
        """Why it failed, or why it will be tried again; of kind `unreadable` if that cannot be read."""
        return read_error(self.error_json) if self.error_json is not None else None

    @property
    def labels(self) -> dict[str, str]:
        """What the starter tagged it with."""
        return read_object(self.labels_json)

    @property
    def progress(self) -> Any:
        """The newest `ctx.progress`: done, total, note; `{"holdfast.unreadable": reason}` if not readable."""
        found = None if self.progress_json is None else read(self.progress_json)
        return found.data if isinstance(found, Unreadable) else found

    @property
    def cost(self) -> float:
        """The sum of its steps' costs."""
        return self.cost_units / COST_UNIT

    @property
    def budget(self) -> float | None:
        """At which cost it pauses."""
        return None if self.budget_units is None else self.budget_units / COST_UNIT


def without_large(step: Step, largest: int) -> Step:
    """The step without values of more than so many bytes."""
    values = {"output": step.output, "ask": step.ask, "wake": step.wake}
    large = [name for name, value in values.items() if value is not None and len(value.encode()) > largest]
    return msgspec.structs.replace(step, **dict.fromkeys(large), left_out=True) if large else step


def without_values(run: Run) -> Run:
    """The run without its params and its result, which may be large."""
    return msgspec.structs.replace(run, params_json="null", result_json=None)


class Decision(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """What became of a gate. Timed out: nobody decided, and what it says on its own stands."""

    approved: bool
    by: str = ""
    comment: str = ""
    at: datetime
    timed_out: bool = False


class ApprovalRequest(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """An open gate, as the approval inbox shows it."""

    run: UUID
    type: str
    tenant: str
    step: str
    ask_json: Json | None
    digest: str | None
    opened_at: datetime
    due_at: datetime | None

    @property
    def ask(self) -> str:
        """The question."""
        return str(read_object(self.ask_json).get("ask") or "")

    @property
    def data(self) -> Any:
        """The data shown with the question; `{"holdfast.unreadable": reason}` if it cannot be read."""
        said = read_object(self.ask_json)
        return said if MARK in said else said.get("data")


class TrailEntry(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """One thing that happened to a run. `seq` grows over all runs of the store."""

    seq: int
    run: UUID
    type: str
    at: datetime
    data_json: Json
    told: bool = False  # by a worker in plain SQL, and no move of the store's own

    @property
    def data(self) -> dict[str, Any]:
        """Worker, attempt, error, step and so on; `{"holdfast.unreadable": reason}` if it cannot be read."""
        return read_object(self.data_json)


class Event(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """A message on a topic, as the run that awaited it gets it."""

    id: str
    topic: str
    at: datetime
    payload: Any


class RunFilter(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """Which runs a list shows. A type that ends in % is a prefix."""

    statuses: tuple[Status, ...] = ()
    waiting_on: StepKind | None = None
    type: str | None = None
    tenant: Tenant | OwnTenant | None = OWN  # OWN: see there; ANY: all; None only inside of stores, for all
    key: str | None = None
    parent: UUID | None = None
    deleted: bool = False
    values: bool = True  # False: params and results, which may be large, are neither read nor shown


class Stats(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """The store at a glance."""

    now: Instant
    by_status: dict[str, int]
    workers: tuple[Presence, ...]
    oldest_due_at: Instant | None  # of the pending runs
    unclaimable: dict[str, int]  # due runs by type that no live worker can run
    undelivered: int  # events recorded whose waiters are not all woken yet
    extra: dict[str, int] = {}  # what only this store has: commits, wal bytes, …


class Finding(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """One thing that a check-up looked at: well, or what is wrong and how to mend it."""

    level: str  # ok | warning | error
    what: str
    mend: str = ""
    runs: tuple[UUID, ...] = ()  # the first few that it is about
