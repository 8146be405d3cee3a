"""Holdfast: a durable workflow engine. What was recorded happens, once, through crashes and deploys."""

from .backoff import Backoff
from .durations import days, hours, minutes, weeks
from .engine.app import App
from .engine.client import Client, Handle
from .engine.context import Context
from .engine.definitions import Workflow
from .engine.worker import Worker
from .errors import (
    BadType,
    BadValue,
    Conflict,
    Drift,
    EventTimeout,
    Fatal,
    HoldfastError,
    IllegalMove,
    KeyReused,
    LeaseLost,
    ResultTimeout,
    RetryAfter,
    RunCancelled,
    RunFailed,
    StepFailed,
    StoreError,
    TooLarge,
    Unavailable,
    UnknownRun,
    UnknownWorkflow,
    UsageError,
)
from .lifecycle import Status, StepKind, StepStatus
from .records import Event, Run, RunFilter, Step, TrailEntry

__version__ = "0.1.0"

__all__ = [
    # what you write
    "App",
    "Context",
    "Workflow",
    "Backoff",
    "days",
    "hours",
    "minutes",
    "weeks",
    # what you hold
    "Client",
    "Handle",
    "Worker",
    "Run",
    "Step",
    "Event",
    "TrailEntry",
    "RunFilter",
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
    "UnknownWorkflow",
    "Conflict",
    "IllegalMove",
    "KeyReused",
    "LeaseLost",
    "Drift",
    "StepFailed",
    "EventTimeout",
    "RunFailed",
    "RunCancelled",
    "ResultTimeout",
    "StoreError",
    "Unavailable",
]
