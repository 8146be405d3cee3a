"""Holdfast: a durable workflow engine. What was recorded happens, once, through crashes and deploys.

Names are fetched when they are first asked for: `holdfast --help` must not pay for the engine.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .backoff import Backoff
    from .durations import days, hours, minutes, weeks
    from .engine.app import App
    from .engine.client import Client
    from .engine.context import Context
    from .engine.definitions import Workflow
    from .engine.door import Door, PlainHandle, SyncTenantApp
    from .engine.handle import Handle
    from .engine.hooks import Notice
    from .engine.messages import Delivery, Message
    from .engine.plain import PlainContext
    from .engine.plans.elements import Approval, Sleep, Task, Wait
    from .engine.plans.outcomes import Completed, Dead, Outcome, Retry, Waiting
    from .engine.plans.plan import Plan
    from .engine.plans.task import PlanTask
    from .engine.tenants import TenantApp
    from .engine.worker import Worker
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
        NotSealed,
        ResultTimeout,
        RetryAfter,
        RunCancelled,
        RunFailed,
        StepFailed,
        StoreError,
        TooLarge,
        Unavailable,
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
        ApprovalRequest,
        Decision,
        Event,
        Limit,
        MessageStatus,
        OutboxFilter,
        OutboxMessage,
        Registration,
        Run,
        RunFilter,
        Schedule,
        Step,
        TrailEntry,
    )
    from .sealing import Compress, Encrypt

__version__ = "0.1.0"

__all__ = [
    # what you write
    "App",
    "Context",
    "PlainContext",
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
    "weeks",
    "Compress",
    "Encrypt",
    # what you hold
    "Client",
    "Handle",
    "TenantApp",
    "Door",
    "SyncTenantApp",
    "PlainHandle",
    "Worker",
    "Notice",
    "Run",
    "Step",
    "Event",
    "Decision",
    "ApprovalRequest",
    "TrailEntry",
    "RunFilter",
    "ANY",
    "BEGINNING",
    "Schedule",
    "Delivery",
    "OutboxMessage",
    "OutboxFilter",
    "MessageStatus",
    "Limit",
    "Registration",
    "Status",
    "StepKind",
    "StepStatus",
    # what you raise
    "Fatal",
    "RetryAfter",
    # what is raised
    "HoldfastError",
    "UsageError",
    "BadType",
    "BadValue",
    "TooLarge",
    "UnknownRun",
    "UnknownSchedule",
    "UnknownMessage",
    "UnknownWorkflow",
    "Conflict",
    "IllegalMove",
    "KeyReused",
    "LeaseLost",
    "Drift",
    "StepFailed",
    "EventTimeout",
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
    "durations": "days hours minutes weeks",
    "engine.app": "App",
    "engine.client": "Client",
    "engine.context": "Context",
    "engine.definitions": "Workflow",
    "engine.door": "Door PlainHandle SyncTenantApp",
    "engine.handle": "Handle",
    "engine.hooks": "Notice",
    "engine.messages": "Delivery Message",
    "engine.plain": "PlainContext",
    "engine.plans.elements": "Approval Sleep Task Wait",
    "engine.plans.outcomes": "Completed Dead Outcome Retry Waiting",
    "engine.plans.plan": "Plan",
    "engine.plans.task": "PlanTask",
    "engine.tenants": "TenantApp",
    "engine.worker": "Worker",
    "errors": (
        "BadType BadValue CannotOpen CannotSeal ChildFailed Conflict Drift EventTimeout Fatal "
        "HoldfastError IllegalMove KeyReused LeaseLost NotSealed ResultTimeout RetryAfter RunCancelled "
        "RunFailed StepFailed StoreError TooLarge Unavailable UnknownKey UnknownMessage UnknownRun "
        "UnknownSchedule UnknownWorkflow UsageError WrongKey"
    ),
    "lifecycle": "Status StepKind StepStatus",
    "records": (
        "ANY BEGINNING ApprovalRequest Decision Event Limit MessageStatus OutboxFilter "
        "OutboxMessage Registration Run RunFilter Schedule Step TrailEntry"
    ),
    "sealing": "Compress Encrypt",
}
_HOME = {name: home for home, names in _HOMES.items() for name in names.split()}


if not TYPE_CHECKING:  # or the type checker would believe in every name

    def __getattr__(name: str) -> object:
        if name not in _HOME:
            raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
