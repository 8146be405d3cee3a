"""The record of a new run: made from the arguments of `start`, checked and encoded, with its id."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from holdfast.arguments import (
    Seconds,
    check_attempts,
    check_budget,
    check_datetime,
    check_duration,
    check_id,
    check_kept,
    check_labels,
    check_name,
    check_priority,
    check_tenant,
    check_type,
)
from holdfast.clipped import clipped
from holdfast.codec import digest, untyped
from holdfast.engine.definitions import Defined, check_reserved
from holdfast.errors import UsageError
from holdfast.records import DEFAULT_TENANT, PRIORITY, NewRun, Run
from holdfast.records.units import SAME
from holdfast.world import World

OPTIONS = [
    "key",
    "id",
    "priority",
    "run_at",
    "delay",
    "timeout",
    "max_attempts",
    "ttl",
    "budget",
    "limit_key",
    "parent",
    "tenant",
    "labels",
    "connection",
]
_OPTIONS = frozenset(OPTIONS)


def check_start(start: Any) -> Sequence[Any]:
    """Check one item of `start_many`: (workflow, params), or (workflow, params, options)."""
    if not isinstance(start, tuple | list) or not 2 <= len(start) <= 3:
        raise UsageError(
            f"{clipped(start)} is not a start: give (workflow, params) or (workflow, params, options)"
        )
    return start


def check_options(options: Any) -> dict[str, Any]:
    """Check the options of a start; unknown ones are refused."""
    if not isinstance(options, dict):
        raise UsageError(f"options {clipped(options)}: give a dict, as in {{'priority': 5}}")
    if "connection" in options:
        raise UsageError("give the connection once for all: start_many([…], connection=connection)")
    if not _OPTIONS.issuperset(options):
        unknown = sorted((one for one in options if one not in _OPTIONS), key=str)
        raise UsageError(f"start has no option {clipped(unknown[0])}; its options: {', '.join(OPTIONS)}")
    return options


CHILD_OPTIONS = [one for one in OPTIONS if one not in {"key", "id", "parent", "tenant", "connection"}]


def check_child_options(options: dict[str, Any]) -> None:
    """Check the options of a child's start. `key` is not one of them: there it is the key of the step."""
    unknown = sorted(set(options) - set(CHILD_OPTIONS))
    if unknown:
        raise UsageError(
            f"a child run has no option {unknown[0]!r}; its options: {', '.join(CHILD_OPTIONS)}. Its tenant "
            f"is that of its parent, and `key` names its step"
        )


def repeated_run(world: World, found: Run, known: Defined | None, params: Any, key: str | None) -> NewRun:
    """Return a new run like another: with its type, options and tenant, and its params unless others are
    given.

    BadValue when the params cannot be read here.
    """
    if params is SAME:
        text, _ = found.params_json, found.params
    else:
        text = (known.params if known else untyped).encode(params, f"params of {found.type}")
    labels = {name: value for name, value in found.labels.items() if name != "continued_from"}
    return NewRun(
        id=world.uuid7(),
        type=found.type,
        params=text,
        digest=digest(found.type, text),
        tenant=found.tenant,
        key=None if key is None else check_name("key", key),
        priority=found.priority,
        max_attempts=known.retry.attempts if known else None,
        timeout_seconds=found.timeout_seconds,
        ttl_seconds=found.ttl_seconds,
        budget=found.budget_units,
        limit_key=found.limit_key,
        labels=untyped.encode(check_labels(labels), "labels") if labels else None,
        origin=found.id,
        covers_children=found.account == found.chain,
    )


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
    """Return the new run, checked and encoded."""
    known = workflow if isinstance(workflow, Defined) else None
    type_ = known.type if known else check_type(workflow)
    check_reserved(known, type_)
    if run_at is not None and delay is not None:
        raise UsageError("give run_at= or delay=, not both")
    if known and params is not None and not known.takes_params:
        raise UsageError(
            f"workflow {type_} takes no params: leave them out, or give its function a second parameter"
        )
    text = (known.params if known else untyped).encode(params, f"params of {type_}")
    if known and max_attempts is None:
        max_attempts = known.retry.attempts
    if known and timeout is None:
        timeout = known.timeout_seconds
    return NewRun(
        id=check_id(id) if id is not None else world.uuid7(),
        type=type_,
        params=text,
        digest=digest(type_, text),
        tenant=check_tenant(tenant),
        key=None if key is None else check_name("key", key),
        priority=check_priority(priority),
        run_at=None if run_at is None else check_datetime("run_at", run_at),
        delay_seconds=None if delay is None else check_duration("delay", delay),
        max_attempts=None if max_attempts is None else check_attempts("max_attempts", max_attempts),
        timeout_seconds=None if timeout is None else check_duration("timeout", timeout),
        ttl_seconds=None if ttl is None else check_kept("ttl", ttl),
        budget=check_budget("budget", budget) if budget is not None else known.budget if known else None,
        limit_key=None if limit_key is None else check_name("limit_key", limit_key),
        parent=None if parent is None else check_id(parent),
        labels=None if labels is None else untyped.encode(check_labels(labels), "labels"),
        covers_children=known is not None and known.budget_covers_children,
    )
