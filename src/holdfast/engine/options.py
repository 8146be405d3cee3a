"""The options of public calls, by name and type: `start`, `worker`, `ctx.step` and others.

Write `**options: Unpack[hf.StartOptions]` in a function of your own that passes options on.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypedDict
from uuid import UUID

from holdfast.arguments import Seconds
from holdfast.backoff import Backoff
from holdfast.records import OwnTenant

from .step_failures import Raises


class StepOptions(TypedDict, total=False):
    """The options of `ctx.step`. Other keywords are arguments of the step's function."""

    key: str | None
    retry: Backoff | None
    timeout: Seconds | None
    raises: Raises
    cost_max: float | None


STEP_OPTIONS = tuple(StepOptions.__annotations__)


class TransactionOptions(TypedDict, total=False):
    """The options of `ctx.transaction`."""

    name: str | None
    key: str | None
    retry: Backoff | None
    limit: Seconds | None
    on: Any
    raises: Raises


class RunOptions(TypedDict, total=False):
    """The options of each run of a schedule."""

    priority: int
    timeout: Seconds | None
    max_attempts: int | None
    ttl: Seconds | None
    budget: float | None
    limit_key: str | None
    labels: dict[str, str] | None


class ChildOptions(RunOptions, total=False):
    """The options of a child's start. Tenant and parent are given by the run that starts it."""

    run_at: datetime | None
    delay: Seconds | None


class StartOptions(ChildOptions, total=False):
    """The options of `start`, and of each item of `start_many`; there `connection` is given once for all."""

    key: str | None
    id: UUID | str | None
    parent: UUID | str | None
    tenant: str | OwnTenant
    connection: Any


class PlanOptions(TypedDict, total=False):
    """The options of `app.plan`, besides the type of its params."""

    retry: Backoff | None
    timeout: Seconds | None
    budget: float | None
    budget_covers_children: bool
    max_waits: int
    no_handler_after: Seconds | None
    description: str


class WorkerOptions(TypedDict, total=False):
    """The options of `worker`, `work` and `run`."""

    name: str
    patterns: Sequence[str]
    tenants: Sequence[str] | None
    runtime: str
    slots: int
    batch: int | None
    lease: Seconds
    poll: Seconds | None
    grace: Seconds
    keeper: bool
    ttl: Seconds
    wait_timeouts: bool
    relay: bool
