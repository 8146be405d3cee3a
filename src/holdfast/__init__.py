"""Holdfast: a durable workflow engine. A run that is recorded is executed through crashes and deploys.

Names are imported at their first use: `holdfast --help` must not load the engine.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from .version import VERSION

if TYPE_CHECKING:
    from .backoff import Backoff
    from .client.client import Client
    from .client.sync import SyncClient
    from .durations import days, hours, minutes, seconds, weeks
    from .engine.app.app import App
    from .engine.app.bulk import BulkOperations, BulkPreview
    from .engine.app.handle import Handle
    from .engine.app.keys import NewKey
    from .engine.app.sync import SyncApp, SyncHandle, SyncTenantApp
    from .engine.app.tenants import TenantApp
    from .engine.bulk.asked import BulkReport
    from .engine.code.context import Context
    from .engine.code.sync_context import SyncContext
    from .engine.definitions import Workflow
    from .engine.hooks import Notice
    from .engine.log_context import LogContext
    from .engine.options import ChildOptions, StartOptions, StepOptions, WorkerOptions
    from .engine.outbox.messages import Delivery, Message
    from .engine.plans.elements import Approval, Sleep, Task, Wait
    from .engine.plans.outcomes import Completed, Dead, Outcome, Retry, Waiting
    from .engine.plans.plan import Plan
    from .engine.plans.task import PlanTask
    from .engine.worker.worker import Worker
    from .errors import (
        BadType,
        BadValue,
        CannotOpen,
        CannotSeal,
        ChildFailed,
        Conflict,
        Drift,
        EventTimeout,
        Fatal,
        HoldfastError,
        IllegalMove,
        KeyReused,
        LeaseLost,
        NotAllowed,
        NotSealed,
        RateLimited,
        ResultTimeout,
        RetryAfter,
        RunCancelled,
        RunFailed,
        StepFailed,
        StoreError,
        TooLarge,
        TooManyRuns,
        Unavailable,
        UnknownApiKey,
        UnknownKey,
        UnknownMessage,
        UnknownRun,
        UnknownSchedule,
        UnknownWorkflow,
        UsageError,
        WrongKey,
    )
    from .lifecycle import Status, StepKind, StepStatus
    from .records import (
        ANY,
        BEGINNING,
        ApiKey,
        ApprovalRequest,
        AuditEntry,
        Backlog,
        ChildCounts,
        Counted,
        Counts,
        Decision,
        DueRuns,
        Error,
        Event,
        Found,
        Limit,
        MessageStatus,
        OutboxFilter,
        OutboxMessage,
        Rate,
        Registration,
        Run,
        RunFilter,
        Scale,
        Schedule,
        Scope,
        Step,
        TrailEntry,
    )
    from .sealing import Compress, Encrypt

__version__ = VERSION

__all__ = [
    # what you use to write workflows
    "App",
    "Context",
    "SyncContext",
    "Workflow",
    "Plan",
    "Task",
    "Approval",
    "Wait",
    "Sleep",
    "PlanTask",
    "Outcome",
    "Completed",
    "Waiting",
    "Retry",
    "Dead",
    "Message",
    "Backoff",
    "days",
    "hours",
    "minutes",
    "seconds",
    "weeks",
    "LogContext",
    "Compress",
    "Encrypt",
    # what you call, and what you get back
    "Client",
    "SyncClient",
    "Handle",
    "TenantApp",
    "SyncApp",
    "SyncTenantApp",
    "SyncHandle",
    "Worker",
    "StartOptions",
    "ChildOptions",
    "StepOptions",
    "WorkerOptions",
    "Notice",
    "Run",
    "Step",
    "Error",
    "Event",
    "Decision",
    "ApprovalRequest",
    "TrailEntry",
    "RunFilter",
    "BulkOperations",
    "BulkPreview",
    "BulkReport",
    "ANY",
    "BEGINNING",
    "Schedule",
    "Delivery",
    "OutboxMessage",
    "OutboxFilter",
    "MessageStatus",
    "Limit",
    "Registration",
    "ApiKey",
    "NewKey",
    "Scope",
    "AuditEntry",
    "Status",
    "StepKind",
    "StepStatus",
    # exceptions that you raise
    "Fatal",
    "RetryAfter",
    # exceptions that are raised
    "HoldfastError",
    "UsageError",
    "BadType",
    "BadValue",
    "TooLarge",
    "UnknownRun",
    "UnknownSchedule",
    "UnknownMessage",
    "UnknownApiKey",
    "UnknownWorkflow",
    "Conflict",
    "IllegalMove",
    "KeyReused",
    "TooManyRuns",
    "NotAllowed",
    "RateLimited",
    "LeaseLost",
    "Drift",
    "StepFailed",
    "EventTimeout",
    "ChildCounts",
    "Counts",
    "Counted",
    "Rate",
    "Scale",
    "DueRuns",
    "Backlog",
    "Found",
    "ChildFailed",
    "RunFailed",
    "RunCancelled",
    "ResultTimeout",
    "CannotSeal",
    "CannotOpen",
    "UnknownKey",
    "WrongKey",
    "NotSealed",
    "StoreError",
    "Unavailable",
]

_HOMES = {
    "backoff": "Backoff",
    "client.client": "Client",
    "client.sync": "SyncClient",
    "durations": "days hours minutes seconds weeks",
    "engine.app.app": "App",
    "engine.app.bulk": "BulkOperations BulkPreview",
    "engine.bulk.asked": "BulkReport",
    "engine.code.context": "Context",
    "engine.definitions": "Workflow",
    "engine.app.sync": "SyncApp SyncHandle SyncTenantApp",
    "engine.app.handle": "Handle",
    "engine.app.keys": "NewKey",
    "engine.hooks": "Notice",
    "engine.log_context": "LogContext",
    "engine.options": "ChildOptions StartOptions StepOptions WorkerOptions",
    "engine.outbox.messages": "Delivery Message",
    "engine.code.sync_context": "SyncContext",
    "engine.plans.elements": "Approval Sleep Task Wait",
    "engine.plans.outcomes": "Completed Dead Outcome Retry Waiting",
    "engine.plans.plan": "Plan",
    "engine.plans.task": "PlanTask",
    "engine.app.tenants": "TenantApp",
    "engine.worker.worker": "Worker",
    "errors": (
        "BadType BadValue CannotOpen CannotSeal ChildFailed Conflict Drift EventTimeout Fatal "
        "HoldfastError IllegalMove KeyReused LeaseLost NotAllowed NotSealed RateLimited ResultTimeout "
        "RetryAfter RunCancelled RunFailed StepFailed StoreError TooLarge TooManyRuns Unavailable "
        "UnknownApiKey UnknownKey UnknownMessage UnknownRun UnknownSchedule UnknownWorkflow "
        "UsageError WrongKey"
    ),
    "lifecycle": "Status StepKind StepStatus",
    "records": (
        "ANY BEGINNING ApiKey ApprovalRequest AuditEntry Backlog ChildCounts Counted Counts Decision "
        "DueRuns Error Event Found Limit MessageStatus OutboxFilter OutboxMessage Rate Registration Run "
        "RunFilter Scale Schedule Scope Step TrailEntry"
    ),
    "sealing": "Compress Encrypt",
}
_HOME = {name: home for home, names in _HOMES.items() for name in names.split()}


# Names of 0.1 that were renamed in 0.2. They work until 0.3, with a DeprecationWarning.
_RENAMED = {"Door": "SyncApp", "PlainContext": "SyncContext", "PlainHandle": "SyncHandle"}


if not TYPE_CHECKING:  # otherwise the type checker would accept every name

    def __getattr__(name: str) -> object:
        if name in _RENAMED:
            return _renamed(name)
        if name not in _HOME:
            raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
        return found


def _renamed(name: str) -> object:
    import warnings  # noqa: PLC0415 - only for old names

    new = _RENAMED[name]
    warnings.warn(f"holdfast.{name} is now called holdfast.{new}", DeprecationWarning, stacklevel=3)
    return getattr(import_module(__name__), new)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
