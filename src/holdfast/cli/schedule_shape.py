"""A schedule as JSON for machines."""

from __future__ import annotations

from typing import Any

from holdfast.records import COST_UNIT, Instant, Schedule, moment

from .shape import raw_value


def schedule_data(one: Schedule, times: list[Instant], trouble: str | None) -> dict[str, Any]:
    """All of it, and the times at which it fires next, or why these cannot be worked out here."""
    return {
        "name": one.name,
        "tenant": one.tenant,
        "type": one.type,
        "params": raw_value(one.params_json),
        "cron": one.cron,
        "zone": one.zone if one.cron is not None else None,
        "every_seconds": None if one.every is None else one.every.total_seconds(),
        "jitter_seconds": one.jitter.total_seconds(),
        "overlap": one.overlap,
        "catch_up": one.catch_up,
        "priority": one.priority,
        "max_attempts": one.max_attempts,
        "timeout_seconds": one.timeout_seconds,
        "ttl_seconds": one.ttl_seconds,
        "budget": None if one.budget_units is None else one.budget_units / COST_UNIT,
        "limit_key": one.limit_key,
        "labels": one.labels,
        "paused": one.paused,
        "paused_by": one.paused_by,
        "next_at": one.next_at,
        "next_times": [moment(at) for at in times],
        "trouble": trouble,
        "waiting": one.waiting,
        "fired": one.fired,
        "skipped": one.skipped,
        "last_at": one.last_at,
        "last_run": one.last_run,
        "last_skipped_at": one.last_skipped_at,
        "last_missed_at": one.last_missed_at,
        "created_at": one.created_at,
        "updated_at": one.updated_at,
    }
