"""Records that are written: intents, steps, events, and the presence of workers. Items are in moves.py."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec

from holdfast.bounds import BATCH_BYTES
from holdfast.lifecycle import StepKind, StepStatus

from .limits import RUNTIME
from .units import DEFAULT_TENANT, PRIORITY, Instant, Json


class Error(msgspec.Struct, gc=False, frozen=True, kw_only=True, omit_defaults=True):
    """The reason why a run or step failed. `step` names the step that made the run fail, if one did."""

    kind: str
    type: str = ""
    message: str = ""
    traceback: str = ""
    step: str | None = None
    attempt: int | None = None  # of a step: how often it was tried,
    max_attempts: int | None = None  # of how many tries
    since: Instant | None = None  # for an error that only time ends (no_handler): when it first came up
    args: Json | None = None  # for an exception that `raises=` names: what it is rebuilt from


class NewRun(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """An intent, ready to be recorded: validated, encoded, with its id.

    `trace` is the W3C traceparent of the starter. It is kept with the run, comes with every claim and every
    message of the run, and no store parses it. A holder that lets the run go may replace it (`Item.trace`). A
    worker gives its own run's trace to the children and the successor that the run starts.
    """

    id: UUID
    type: str
    params: Json = "null"
    digest: str = ""  # digest of type and params: recognises the same call again under the same key
    tenant: str = DEFAULT_TENANT
    key: str | None = None
    priority: int = PRIORITY
    run_at: Instant | None = None  # None: now, by the store's clock
    delay_seconds: float | None = None  # from now, by the store's clock; not beside run_at
    max_attempts: int | None = None  # None: the published definition's, else 3
    timeout_seconds: float | None = None  # from its due time, by the store's clock
    ttl_seconds: float | None = None
    budget: int | None = None
    limit_key: str | None = None
    parent: UUID | None = None
    parent_step: str | None = None  # the step of the parent that waits for it, if one does
    labels: Json | None = None
    trace: str = ""
    follows: UUID | None = None  # the run that goes on as this one, by its own complete: see `commit`
    origin: UUID | None = None  # the run that this one repeats
    covers_children: bool = False  # its budget also covers its children; or the published definition says so
    by: str = ""  # who starts it, for the trail
    # The id of the API key that it counts under while it is open, and the most open runs that the key may
    # have: only in `start`. The next run of a chain counts in place of the run before. Children do not count.
    api_key: str | None = None
    open_runs_max: int | None = None


class StepWrite(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """A step row to be recorded, or a further try of one that is `ready`.

    status SUCCEEDED or FAILED: an outcome. READY: a try failed and another follows at `due_at`. WAITING: a
    wait is opened; `due_at` is its time or deadline, `topic` its topic. CANCELLED: the wait is given up. In a
    plan the row exists already: an outcome, or a task that waits.
    """

    key: str
    kind: StepKind = StepKind.TASK
    status: StepStatus = StepStatus.SUCCEEDED
    output: Json | None = None
    error: Json | None = None
    attempts: int = 1
    max_attempts: int | None = None  # for a failed try: how many tries there are; for the trail
    cost: int = 0
    topic: str | None = None
    due_at: Instant | None = None
    delay_seconds: float | None = None  # a wait's due_at counted from the commit, by the store's clock
    since_now: bool = False  # an event wait that ignores earlier events
    started_at: Instant | None = None
    ask: Json | None = None  # approval: {"ask": text, "data": what is shown}
    digest: str | None = None  # approval: digest of what is shown, for a decision that names it
    on_timeout: str = "reject"  # approval: or "approve"
    child: NewRun | None = None  # child: the run that is started with this row, unless the key is recorded


class PlanStep(msgspec.Struct, gc=False, frozen=True, kw_only=True, omit_defaults=True):
    """One step of a plan, as it is published, and as its row begins."""

    name: str
    kind: StepKind = StepKind.TASK  # task, approval, event, sleep
    max_attempts: int | None = None  # task; None: the run's
    topic: str | None = None  # event
    timeout_seconds: float | None = None  # timeout of a gate or an awaited event; length of a sleep
    ask: Json | None = None  # as in StepWrite
    digest: str | None = None
    on_timeout: str = "reject"


class Outbound(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """An outgoing message: written to the outbox with the commit that sends it, delivered after it."""

    id: str  # the same however often the code is executed
    sink: str
    payload: Json = "null"
    key: str | None = None  # messages of one sink and key are delivered in order
    step: str | None = None  # the step that sends it, for people
    number: int = 1  # which message of its step it is: its id is made of the run, the step and this


class TrailWrite(msgspec.Struct, gc=False, frozen=True):
    """A row that the holder adds to the trail: only `log`; moves write their own rows."""

    type: str
    data: Json


class NewEvent(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """An incoming event. `id` makes it idempotent within its tenant."""

    topic: str
    payload: Json = "null"
    id: str
    run: UUID | None = None
    tenant: str = DEFAULT_TENANT
    keep_seconds: float | None = None  # None: 7 days


class Lease(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """One run that a worker holds, for renewal."""

    run: UUID
    tenant: str = DEFAULT_TENANT  # as in Item
    fence: int
    known: int | None = None  # as in Item
    started_at: Instant | None = None  # until `started` is known to be in the trail
    heartbeat: bool = False  # a heartbeat row is wanted
    survived: bool = False  # it has executed for a whole lease time: its crashes are forgiven
    progress: Json | None = None


class RunningStep(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """A step that a worker executes now and has not recorded yet, as the worker has last reported it."""

    step: str
    attempt: int  # the number of this try; the first is 1
    started_at: datetime  # when this try began


class Running(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """The steps that a holder executes now, for `show_running`: oldest first."""

    run: UUID
    fence: int
    started_at: Instant | None = None  # as in Lease
    steps: tuple[RunningStep, ...]


class Ask(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """The request of a worker: what it can take."""

    worker: str
    types: tuple[str, ...]
    limit: int
    lease_seconds: float = 30.0
    tenants: tuple[str, ...] | None = None  # None: all
    runtime: str = RUNTIME
    # crashed[c - 1]: how many runs that crashed c times or more it still takes (above: the last number).
    crashed: tuple[int, ...] | None = None
    bytes: int = BATCH_BYTES  # bytes of params, labels and steps in the answer


class Presence(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """The presence of a worker: its name, what it can run, how much."""

    worker: str
    types: tuple[str, ...]
    patterns: tuple[str, ...] = ("%",)
    tenants: tuple[str, ...] | None = None
    runtime: str = RUNTIME
    slots: int = 0
    stragglers: int = 0  # sync functions that were told to stop and have not returned; each keeps a slot
    sinks: tuple[str, ...] = ()  # functions of the worker that messages can be relayed to
    lacking: dict[str, tuple[str, ...]] = {}  # by plan, the tasks without a handler
    library: str = ""  # for people: `holdfast-go 0.1.0 (go)`
    seen_at: Instant = 0


def library_of(library: str, version: str, language: str) -> str:
    """Return the library of a worker in words: `holdfast-go 0.1.0 (go)`."""
    return f"{library}{version and ' '}{version} ({language})"


class Definition(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """A published workflow: what a start by name alone needs to know."""

    type: str
    kind: str = "code"  # or "plan"
    max_attempts: int | None = None
    timeout_seconds: float | None = None
    description: str = ""
    steps: tuple[PlanStep, ...] = ()  # for a plan
    budget: int | None = None
    covers_children: bool = False  # the budget of a run also covers its children, and theirs
    # JSON Schemas as text, at most bounds.SCHEMA_BYTES each; None: not known, or not asked for.
    params_schema: str | None = None
    result_schema: str | None = None
