"""Records that people read: runs, steps, the trail, events, and an overview of the store."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from holdfast.lifecycle import FINAL, Status, StepKind, StepStatus

from .fingerprints import fingerprint
from .units import COST_UNIT, OWN, Instant, Json, OwnTenant, Tenant
from .unreadable import MARK, Unreadable, read, read_error, read_object, value
from .written import Error, Presence, RunningStep


class Step(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """One recorded unit inside a run."""

    seq: int
    key: str
    kind: StepKind
    status: StepStatus
    attempts: int = 0
    output: Json | None = None
    error_json: Json | None = msgspec.field(default=None, name="error")  # as it is stored
    cost: int = 0
    topic: str | None = None
    due_at: Instant | None = None
    fence: int = 0
    started_at: Instant | None = None
    finished_at: Instant | None = None
    max_attempts: int | None = None  # for a plan's task
    timeout_seconds: float | None = None  # for a plan's gate, awaited event or sleep
    ask: Json | None = None  # approval: {"ask", "data"}
    digest: str | None = None  # approval: digest of what is shown
    child: UUID | None = None
    wake: Json | None = None  # a plan's task that has waited: {"reason": "event" | "timeout", "event": …}
    waits: int = 0  # how often a plan's task, or the step of a child, has waited
    left_out: bool = False  # True: output, ask or wake was larger than the reader wanted, and is None here

    @property
    def error(self) -> Error | None:
        """The error that made it fail or be retried; of kind `unreadable` if it cannot be read."""
        return None if self.error_json is None else read_error(self.error_json)


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
    current_step_seq: int | None  # for a plan: number and name of the first step that has not succeeded
    current_step_name: str | None
    chain: UUID  # the first run of its chain; its own id, if it never went on as another
    present: UUID  # the present run of its chain
    parent: UUID | None
    parent_step: str | None  # the parent's step that waits, or waited, for it
    limit_key: str | None
    labels_json: Json | None
    cost_units: int
    budget_units: int | None
    progress_json: Json | None
    timeout_at: datetime | None
    timeout_seconds: float | None  # counted from there; a rewind and a retry start it again
    ttl_seconds: float | None  # how long it is kept after its end; None: the default
    expires_at: datetime | None
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    deleted_at: datetime | None
    # Steps that have run for 2 s or longer, oldest first; only `get` reads them.
    running: tuple[RunningStep, ...] = ()
    origin: UUID | None = None  # the run that it repeats
    account: UUID | None = None  # the run at the top whose budget covers it; of that run its own id
    account_cost_units: int | None = None  # what all runs of that account have cost
    account_budget_units: int | None = None  # the budget that they share

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
        """The error that made it fail or be retried; of kind `unreadable` if it cannot be read."""
        return read_error(self.error_json) if self.error_json is not None else None

    @property
    def fingerprint(self) -> str | None:
        """The short form of a failed run's error, for `RunFilter(error=…)`: `ValueError at charge: no card`.
        None while the run has not failed.
        """
        return fingerprint(self.error_json) if self.status is Status.FAILED else None

    @property
    def labels(self) -> dict[str, str]:
        """Labels of the run."""
        return read_object(self.labels_json)

    @property
    def progress(self) -> Any:
        """The newest `ctx.progress`: done, total, note; `{"holdfast.unreadable": reason}` if it cannot be
        read.
        """
        found = None if self.progress_json is None else read(self.progress_json)
        return found.data if isinstance(found, Unreadable) else found

    @property
    def cost(self) -> float:
        """The sum of its steps' costs."""
        return self.cost_units / COST_UNIT

    @property
    def budget(self) -> float | None:
        """The cost at which it pauses."""
        return None if self.budget_units is None else self.budget_units / COST_UNIT


class RunOutline(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """A few fields of a run, for readers that count or measure many runs. They mean the same as in `Run`."""

    id: UUID
    type: str
    status: Status
    present: UUID  # the present run of its chain
    pause_asked: bool  # True: somebody has asked for a pause, and the run has not come to it yet
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


def outline(run: Run) -> RunOutline:
    """Return the outline of a run."""
    return RunOutline(
        id=run.id, type=run.type, status=run.status, present=run.present,
        pause_asked=run.pause_asked_by is not None, created_at=run.created_at, started_at=run.started_at,
        finished_at=run.finished_at,
    )  # fmt: skip


def without_large(step: Step, largest: int) -> Step:
    """Return the step without values of more than `largest` bytes."""
    values = {"output": step.output, "ask": step.ask, "wake": step.wake}
    large = [name for name, value in values.items() if value is not None and len(value.encode()) > largest]
    return msgspec.structs.replace(step, **dict.fromkeys(large), left_out=True) if large else step


def without_values(run: Run) -> Run:
    """Return the run without its params and its result, which may be large."""
    return msgspec.structs.replace(run, params_json="null", result_json=None)


class Decision(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """The decision about a gate. timed_out: nobody decided, and the gate's default counts."""

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
    told: bool = False  # written by a worker in user SQL, not by a move of the store

    @property
    def data(self) -> dict[str, Any]:
        """Worker, attempt, error, step and so on; `{"holdfast.unreadable": reason}` if it cannot be read."""
        return read_object(self.data_json)


class Followed(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """The news of one run for a follower; of a run that is gone, only that."""

    run: UUID
    gone: bool = False  # unknown, deleted, or another tenant's
    tenant: str = ""
    status: Status | None = None
    present: UUID | None = None  # the present run of its chain: the run itself, if it has not continued
    entries: tuple[TrailEntry, ...] = ()  # later rows of its trail, oldest first
    more: bool = False  # there are further rows: ask again at once


class TrailPage(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """Rows of the trail over all runs, for a follower."""

    entries: tuple[TrailEntry, ...] = ()
    seq: int  # the next page begins after this number
    more: bool = False  # there are further rows: ask again at once


class Event(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """A message on a topic, as the run that awaited it gets it."""

    id: str
    topic: str
    at: datetime
    payload: Any


class RunFilter(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """The filter of a list of runs: a run is listed when it matches every field that is given.

    A type or an error that ends in % is a prefix. A time `since` is included, a time `until` is not.
    """

    statuses: tuple[Status, ...] = ()
    waiting_on: StepKind | None = None
    type: str | None = None
    tenant: Tenant | OwnTenant | None = OWN  # ANY: all; None: all, only inside of stores
    key: str | None = None
    parent: UUID | None = None
    roots: bool = False  # only runs without a parent
    labels: dict[str, str | None] = {}  # all of them, with this value; None: with any value
    error: str | tuple[str, ...] | None = None  # failed runs with this `fingerprint`, or one of several
    created_since: datetime | None = None  # as in Run.created_at
    created_until: datetime | None = None
    finished_since: datetime | None = None  # as in Run.finished_at: only runs that have ended
    finished_until: datetime | None = None
    updated_since: datetime | None = None  # as in Run.updated_at: the last change
    updated_until: datetime | None = None
    deleted: bool = False
    values: bool = True  # False: params and results, which may be large, are neither read nor shown


class Found(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """The answer of one `search`: the runs that were found, newest first. Only `after=None` is the end."""

    runs: tuple[Run, ...]
    after: UUID | None  # go on after this id, also when `runs` is empty; None: all runs were looked at
    looked_at: int  # runs that match the filter, and whose text was looked at


class ChildCounts(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """The children of a run by status. more: the store stopped counting there, and has more of them."""

    run: UUID
    by_status: dict[str, int]
    more: bool = False

    @property
    def total(self) -> int:
        """The number of children that were counted."""
        return sum(self.by_status.values())

    @property
    def ended(self) -> int:
        """Those of them that have ended."""
        return sum(self.by_status.get(status, 0) for status in FINAL)


class Stats(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """An overview of the store."""

    now: Instant
    by_status: dict[str, int]
    workers: tuple[Presence, ...]
    # Due runs are those that `scale` finds: of at most SCALE_MAX types and tenants, DUE_COUNTED of each.
    oldest_due_at: Instant | None  # the earliest due time of pending runs
    unclaimable: dict[str, int]  # due runs by type that no present worker can run
    undelivered: (
        int  # recorded events whose waits are not all met yet, and runs that owe news; DUE_COUNTED of each
    )
    extra: dict[str, int] = {}  # figures that only this store has: commits, wal bytes, …


class Finding(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """One finding of a check-up: well, or what is wrong and how to mend it."""

    level: str  # ok | warning | error
    what: str
    mend: str = ""
    runs: tuple[UUID, ...] = ()  # the first few runs that it is about
