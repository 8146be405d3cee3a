"""What is read and written: frozen records, one kind each.

Instants in the write path are integer microseconds since the epoch; in what a person reads they
are aware datetimes. Values (params, results, payloads, errors) cross the seam as JSON text, which
stores keep and never look into. Records form no cycles, so the garbage collector leaves them alone.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from .lifecycle import Move, Status, StepKind, StepStatus

Json = str  # JSON text
Instant = int  # microseconds since 1970-01-01T00:00:00Z
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SECOND = 1_000_000  # microseconds
DEFAULT_TENANT = "default"
PRIORITY = 100
MAX_ATTEMPTS = 3
MAX_CRASHES = 4
COST_UNIT = 1_000_000  # costs are kept as integers, or sums differ from store to store


def instant(at: datetime) -> Instant:
    """A datetime as the stores keep it; one without a zone is taken as local time."""
    return (at.astimezone(UTC) - EPOCH) // timedelta(microseconds=1)


def moment(at: Instant) -> datetime:
    """An instant as people read it."""
    return EPOCH + timedelta(microseconds=at)


class Error(msgspec.Struct, gc=False, frozen=True, kw_only=True, omit_defaults=True):
    """Why a run or step failed. `step` names the step that made the run fail, if one did."""

    kind: str
    type: str = ""
    message: str = ""
    traceback: str = ""
    step: str | None = None


class NewRun(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """An intent, ready to be recorded: validated, encoded, with its id."""

    id: UUID
    type: str
    params: Json = "null"
    digest: str = ""  # of type and params: tells the same call again from another one under the same key
    tenant: str = DEFAULT_TENANT
    key: str | None = None
    priority: int = PRIORITY
    run_at: Instant | None = None  # None: now, by the store's clock
    delay_seconds: float | None = None  # from now, by the store's clock; not beside run_at
    max_attempts: int | None = None  # None: the published definition's, else 3
    timeout_seconds: float | None = None  # from the start, by the store's clock
    ttl_seconds: float | None = None
    budget: int | None = None
    limit_key: str | None = None
    parent: UUID | None = None
    labels: Json | None = None


class StepWrite(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """A step row to be recorded, or a further try of one that is `ready`.

    status SUCCEEDED or FAILED: an outcome. READY: a try failed and another follows at `due_at`.
    WAITING: a wait is opened; `due_at` is its time or deadline, `topic` its topic. CANCELLED: it is given up.
    """

    key: str
    kind: StepKind = StepKind.TASK
    status: StepStatus = StepStatus.SUCCEEDED
    output: Json | None = None
    error: Json | None = None
    attempts: int = 1
    cost: int = 0
    topic: str | None = None
    due_at: Instant | None = None
    delay_seconds: float | None = None  # a wait's due_at counted from the commit, by the store's clock
    since_now: bool = False  # an event wait that does not look back
    started_at: Instant | None = None


class TrailWrite(msgspec.Struct, gc=False, frozen=True):
    """A row that the holder adds to the trail: only `log`; moves write their own rows."""

    type: str
    data: Json


class NewEvent(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """An event on its way in. `id` makes it idempotent within its tenant."""

    topic: str
    payload: Json = "null"
    id: str
    run: UUID | None = None
    tenant: str = DEFAULT_TENANT
    keep_seconds: float | None = None  # None: 7 days


class Item(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """One thing a holder writes: a move with everything that belongs into its commit.

    (fence, number) names it: numbers grow by one within a fence, from 1. The same pair again is
    answered as the first time and changes nothing.
    """

    run: UUID
    fence: int
    number: int
    move: Move  # one of HOLDER_MOVES
    steps: tuple[StepWrite, ...] = ()
    trail: tuple[TrailWrite, ...] = ()
    events: tuple[NewEvent, ...] = ()  # into the inbox
    starts: tuple[NewRun, ...] = ()  # runs that this commit starts (continue_as)
    result: Json | None = None  # complete
    error: Json | None = None  # retry, fail
    last_error: str | None = None  # retry, fail: the error in one line, for people
    kind: str | None = None  # fail: the error's kind, for the trail
    delay_seconds: float | None = None  # retry: from now, by the store's clock
    in_place: bool = False  # retry: stay leased
    refund: bool = False  # retry: the backoff of a code step, which uses up no attempt of the run
    started_at: Instant | None = None  # first item of an execution: when it began
    progress: Json | None = None
    known: int | None = None  # highest seq the holder has seen, when it has open waits; else None
    lease_seconds: float = 30.0


class Lease(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """One run that a worker says it holds, for renewal."""

    run: UUID
    fence: int
    known: int | None = None  # as in Item
    started_at: Instant | None = None  # until `started` is known to be in the trail
    heartbeat: bool = False  # a heartbeat row is wanted
    progress: Json | None = None


class Ask(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """What a worker is ready to take."""

    worker: str
    types: tuple[str, ...]
    limit: int
    lease_seconds: float = 30.0
    tenants: tuple[str, ...] | None = None  # None: all
    # crashed[c - 1]: how many runs that crashed c times or more it would still take (above: the last).
    crashed: tuple[int, ...] | None = None


class Presence(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """A worker that is there: who, what it can run, how much."""

    worker: str
    types: tuple[str, ...]
    patterns: tuple[str, ...] = ("%",)
    tenants: tuple[str, ...] | None = None
    slots: int = 0
    seen_at: Instant = 0


class Definition(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """A published workflow: what a start by name alone needs to know."""

    type: str
    kind: str = "code"
    max_attempts: int | None = None
    timeout_seconds: float | None = None
    description: str = ""


class Started(msgspec.Struct, gc=False, frozen=True):
    """The answer to one start."""

    id: UUID
    created: bool


class Verdict(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """The answer to one item.

    applied    done; `status` is what the run is now (leased: go on)
    paused     done as far as its steps go, and the run is paused now: stop
    cancelled  nothing changed: the run was cancelled: stop
    lost       nothing changed: another holds it, or nobody: stop
    busy       nothing changed, someone else holds the row: send it again
    """

    answer: str
    status: Status
    kept: tuple[tuple[str, Json | None], ...] = ()  # keys that existed, with the value that stands
    settled: tuple[Step, ...] = ()  # waits settled since `known`, oldest first
    seq: int = 0  # highest seq of the run, when `known` was given


class Held(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """What renewal learnt of one run."""

    answer: str  # applied | cancelled | lost
    pause_asked: bool = False
    settled: tuple[Step, ...] = ()


class Renewal(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """The answer to a renewal: one Held per lease, in order, and strays.

    A stray is a run leased to this worker that it did not name: the reply to its claim was lost.
    """

    held: tuple[Held, ...]
    strays: tuple[tuple[UUID, int], ...] = ()


class Claim(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """A run that is now held, with all that is needed to execute it."""

    id: UUID
    type: str
    tenant: str
    params: Json
    fence: int
    attempt: int
    crashes: int
    max_attempts: int
    created_at: Instant
    lease_until: Instant
    steps: tuple[Step, ...] = ()
    logs: int = 0  # the highest `log_no` of its `log` rows: how many of its own the code has logged
    timeout_at: Instant | None = None


class Emitted(msgspec.Struct, gc=False, frozen=True):
    """The answer to an emit: how many runs it woke, and whether it had been there before."""

    woken: int
    duplicate: bool


class Ticked(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """What a keeper's round did."""

    expired: int = 0
    lapsed: int = 0
    delivered: int = 0
    timed_out: int = 0

    @property
    def total(self) -> int:
        """How much was done; zero means that nothing was written."""
        return self.expired + self.lapsed + self.delivered + self.timed_out


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


class Run(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """The durable record of one execution of a workflow, as `get` and `list` show it."""

    id: UUID
    tenant: str
    type: str
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
    parent: UUID | None
    limit_key: str | None
    labels_json: Json | None
    cost_units: int
    budget_units: int | None
    progress_json: Json | None
    timeout_at: datetime | None
    expires_at: datetime | None
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    deleted_at: datetime | None

    @property
    def params(self) -> Any:
        """What the run was started with."""
        return msgspec.json.decode(self.params_json)

    @property
    def result(self) -> Any:
        """What the run returned; None while it has not."""
        return msgspec.json.decode(self.result_json) if self.result_json is not None else None

    @property
    def error(self) -> Error | None:
        """Why it failed, or why it will be tried again."""
        return msgspec.json.decode(self.error_json, type=Error) if self.error_json is not None else None

    @property
    def labels(self) -> dict[str, str]:
        """What the starter tagged it with."""
        return msgspec.json.decode(self.labels_json) if self.labels_json is not None else {}

    @property
    def progress(self) -> Any:
        """The newest `ctx.progress`: done, total, note."""
        return msgspec.json.decode(self.progress_json) if self.progress_json is not None else None

    @property
    def cost(self) -> float:
        """The sum of its steps' costs."""
        return self.cost_units / COST_UNIT


class TrailEntry(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """One thing that happened to a run. `seq` grows over all runs of the store."""

    seq: int
    run: UUID
    type: str
    at: datetime
    data_json: Json

    @property
    def data(self) -> dict[str, Any]:
        """Worker, attempt, error, step and so on."""
        return msgspec.json.decode(self.data_json)  # type: ignore[no-any-return]  # always an object


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
    tenant: str | None = DEFAULT_TENANT  # None: all
    key: str | None = None
    parent: UUID | None = None
    deleted: bool = False


class Due(msgspec.Struct, gc=False, frozen=True):
    """When there may next be something to do; None: nothing is in sight."""

    claim_at: Instant | None
    chore_at: Instant | None


class Stats(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """The store at a glance."""

    now: Instant
    by_status: dict[str, int]
    workers: tuple[Presence, ...]
    oldest_due_at: Instant | None  # of the pending runs
    unclaimable: dict[str, int]  # due runs by type that no live worker can run
    undelivered: int  # events recorded whose waiters are not all woken yet
    extra: dict[str, int] = {}  # what only this store has: commits, wal bytes, …
