"""Order and grouping of the public names on the pages of the Python API."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import holdfast
from holdfast.engine.app.new_run import new_run


class Group(NamedTuple):
    """One page: its file, its title, and the names on it, the most used first."""

    file: str
    title: str
    text: str
    names: tuple[str, ...]
    module: str = "holdfast"


class Twin(NamedTuple):
    """A class with the methods of another class."""

    of: str
    text: str


GROUPS = (
    Group(
        "app.md",
        "App, runs and workers",
        "The app defines workflows, starts runs and makes workers.",
        (
            *(
                "App",
                "Handle",
                "Worker",
                "Backoff",
                "days",
                "hours",
                "minutes",
                "seconds",
                "weeks",
                "Workflow",
            ),
            *("SyncApp", "SyncHandle", "TenantApp", "SyncTenantApp", "Client", "SyncClient"),
            *("Notice", "LogContext"),
            *("StartOptions", "WorkerOptions", "BulkOperations"),
        ),
    ),
    Group(
        "context.md",
        "Inside a workflow",
        "A workflow gets a context as its first argument. Every durable thing that it does goes through it.",
        ("Context", "SyncContext", "StepOptions", "ChildOptions", "Fatal", "RetryAfter"),
    ),
    Group(
        "plans.md",
        "Plans",
        "A plan is a fixed list of steps. `app.plan` makes one.",
        (
            *("Plan", "Task", "Approval", "Wait", "Sleep", "PlanTask"),
            *("Outcome", "Completed", "Waiting", "Retry", "Dead"),
        ),
    ),
    Group(
        "records.md",
        "Records",
        "Records are what reads return. They cannot be changed.",
        (
            *("Run", "Step", "Error", "Event", "Decision", "ApprovalRequest", "TrailEntry", "Schedule"),
            *("Limit", "Registration", "RunFilter", "Found", "ChildCounts", "BulkPreview", "BulkReport"),
            *("Counts", "Counted", "Rate", "Scale", "DueRuns", "Backlog"),
            *("ApiKey", "NewKey", "Scope", "AuditEntry"),
            *("ANY", "BEGINNING", "Status", "StepKind", "StepStatus"),
        ),
    ),
    Group(
        "outbox.md",
        "Outbox",
        "Messages to the outside world, sent at least once and in order.",
        ("Message", "Delivery", "OutboxMessage", "OutboxFilter", "MessageStatus"),
    ),
    Group(
        "encryption.md",
        "Encryption and compression",
        "Hooks of the codec: `App(codec=…)` applies them to every value before it is stored.",
        ("Encrypt", "Compress"),
    ),
    Group(
        "testing.md",
        "Tests",
        "Names of `holdfast.testing`: workflows under a virtual clock, and a suite for stores.",
        (
            *("Rehearsal", "RehearsedRun", "Stuck", "explore", "Report", "Finding"),
            *("contract", "play", "VirtualWorld", "VirtualLoop", "Deadlock"),
        ),
        "holdfast.testing",
    ),
)

# Errors have a page of their own, which shows their tree.
ERRORS = tuple(
    name
    for name in holdfast.__all__
    if name not in {grouped for group in GROUPS for grouped in group.names}
    and isinstance(getattr(holdfast, name), type)
    and issubclass(getattr(holdfast, name), holdfast.HoldfastError)
)

# Classes that users call. The others are made by Holdfast.
BUILT = frozenset(
    {
        *("App", "Client", "Backoff", "Fatal", "RetryAfter", "RunFilter", "OutboxFilter", "Message"),
        *("Task", "Approval", "Wait", "Sleep", "Completed", "Waiting", "Retry", "Dead"),
        *("Encrypt", "Compress", "Rehearsal", "VirtualWorld", "VirtualLoop"),
    }
)

TWINS = {
    "SyncContext": Twin("Context", "Methods of `Context`, with the same arguments; each one blocks:"),
    "SyncApp": Twin("App", "Methods of `App`, with the same arguments; each one blocks:"),
    "SyncHandle": Twin("Handle", "Methods of `Handle`, with the same arguments; each one blocks:"),
    "TenantApp": Twin("App", "Methods of `App`, with the same arguments but `tenant`:"),
    "SyncTenantApp": Twin("App", "Methods of `App`, with the same arguments but `tenant`; each one blocks:"),
    "Client": Twin("App", "Methods of `App`, with the same arguments, over HTTP:"),
    "SyncClient": Twin("App", "Methods of `App`, with the same arguments, over HTTP; each one blocks:"),
}

# Sections of a long class: their titles, by the module that defines the methods. The first has none.
SECTIONS = {
    "App": {
        "app": "",
        "client": "change runs",
        "reads": "read runs",
        "counts": "counts",
        "approvals": "approvals",
        "outbox": "outbox",
        "schedules": "schedules",
        "limits": "limits",
        "keys": "API keys",
        "maintenance": "maintenance",
        "transfer": "export and import",
    }
}

# Methods that take `**options`, and the function whose keywords those are.
OPTIONS: dict[str, Callable[..., Any]] = {"App.start": new_run, "App.worker": holdfast.Worker}

# Words for names that cannot have a docstring of their own.
NOTES = {
    "Outcome": "The outcome of a plan's handler: `Completed | Waiting | Retry | Dead`.",
    "ANY": "All tenants. Operators, workers and keepers write it where a method asks for a tenant.",
    "BEGINNING": "The beginning of a run: `app.rewind(run, hf.BEGINNING)` forgets all steps of the run.",
}

TYPES = {
    "Seconds": "A number of seconds, or a `timedelta`.",
    "Json": "A string that holds JSON.",
    "Instant": "Microseconds since 1970-01-01, UTC, as an `int`.",
    "Tenant": "The name of a tenant, or `ANY`.",
    "Defined": "A workflow or a plan: what `app.workflow` and `app.plan` return.",
    "World": "The source of time, randomness, ids and threads; tests replace it.",
    "Store": "A store: SQLite, Postgres, memory, or one of your own.",
}
