"""From the call of a start to an intent that a store can record: validated, encoded, with its id."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from holdfast.codec import digest, plain
from holdfast.durations import Seconds, seconds
from holdfast.errors import UsageError
from holdfast.records import DEFAULT_TENANT, PRIORITY, NewRun, instant
from holdfast.world import World

from .checks import (
    check_budget,
    check_datetime,
    check_id,
    check_kept,
    check_labels,
    check_name,
    check_priority,
)
from .definitions import Defined


def new_run(
    world: World,
    workflow: Defined | str,
    params: Any,
    *,
    key: str | None = None,
    id: UUID | str | None = None,
    priority: int = PRIORITY,
    run_at: datetime | None = None,
    delay: Seconds | None = None,
    timeout: Seconds | None = None,
    max_attempts: int | None = None,
    ttl: Seconds | None = None,
    budget: float | None = None,
    limit_key: str | None = None,
    parent: UUID | str | None = None,
    tenant: str = DEFAULT_TENANT,
    labels: dict[str, str] | None = None,
) -> NewRun:
    """The intent, checked and encoded."""
    known = workflow if isinstance(workflow, Defined) else None
    type_ = known.type if known else str(workflow)
    if run_at is not None and delay is not None:
        raise UsageError("give run_at= or delay=, not both")
    if max_attempts is not None and max_attempts < 1:
        raise UsageError(f"max_attempts is {max_attempts}: at least 1, the first execution counts")
    if known and params is not None and not known.takes_params:
        raise UsageError(f"workflow {type_} takes no value: give its function a parameter, or no params")
    if delay is not None and seconds(delay) < 0:
        raise UsageError(f"delay is {seconds(delay):g} s: not negative")
    text = (known.params if known else plain).encode(params, f"params of {type_}")
    if known and max_attempts is None:
        max_attempts = known.retry.attempts
    if known and timeout is None:
        timeout = known.timeout_seconds
    return NewRun(
        id=check_id(id) if id is not None else world.uuid7(),
        type=type_,
        params=text,
        digest=digest(type_, text),
        tenant=check_name("tenant", tenant),
        key=None if key is None else check_name("key", key),
        priority=check_priority(priority),
        run_at=None if run_at is None else instant(check_datetime("run_at", run_at)),
        delay_seconds=None if delay is None else seconds(delay),
        max_attempts=max_attempts,
        timeout_seconds=None if timeout is None else seconds(timeout),
        ttl_seconds=None if ttl is None else check_kept("ttl", ttl),
        budget=check_budget("budget", budget) if budget is not None else known.budget if known else None,
        limit_key=None if limit_key is None else check_name("limit_key", limit_key),
        parent=None if parent is None else check_id(parent),
        labels=None if labels is None else plain.encode(check_labels(labels), "labels"),
    )
