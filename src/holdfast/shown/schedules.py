"""Schedules in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from holdfast.cron import local
from holdfast.engine.app.schedules import upcoming
from holdfast.engine.schedules.versions import unresolved
from holdfast.errors import UsageError
from holdfast.records import COST_UNIT, DEFAULT_TENANT, Instant, Schedule

from .data import raw_text
from .text import clean, counted
from .times import ago, span, stamp

TIMES_SHOWN = 5
VALUE_MAX = 400  # characters of params; --json prints all


def next_times(
    schedule: Schedule, now: Instant, published: Sequence[str]
) -> tuple[list[Instant], str | None]:
    """The next times at which a schedule fires; or an error that says why it cannot fire here."""
    try:
        return upcoming(schedule, now, TIMES_SHOWN), unresolved(schedule, published)
    except UsageError as error:
        return [], str(error)


def rhythm(schedule: Schedule) -> str:
    """Return the interval (`every 15 min`), or the cron expression with its time zone."""
    jitter = f", up to {span(schedule.jitter.total_seconds())} later" if schedule.jitter_us else ""
    if schedule.every is not None:
        return f"every {span(schedule.every.total_seconds())}{jitter}"
    return f"{clean(schedule.cron)} {clean(schedule.zone)}{jitter}"


def local_time(at: Instant, zone: str) -> str:
    """An instant on the clock of a time zone."""
    return local(at, zone).strftime("%a %Y-%m-%d %H:%M:%S %z")


def schedule_facts(schedule: Schedule, now: datetime) -> Iterator[tuple[str, str]]:
    """Names and values that describe a schedule."""
    yield "when", rhythm(schedule)
    if schedule.paused:
        yield "paused", f"by {clean(schedule.paused_by)}" if schedule.paused_by else "yes"
    if schedule.tenant != DEFAULT_TENANT:
        yield "tenant", clean(schedule.tenant)
    yield "params", clean(raw_text(schedule.params_json), VALUE_MAX)
    yield "overlap", schedule.overlap + (f", {len(schedule.waiting)} queued" if schedule.waiting else "")
    yield "catch-up", schedule.catch_up.value
    if schedule.limit_key is not None:
        yield "limit key", clean(schedule.limit_key)
    if schedule.budget_units is not None:
        yield "budget", f"{schedule.budget_units / COST_UNIT:g}"
    if schedule.ttl_seconds is not None:
        yield "runs kept", f"{span(schedule.ttl_seconds)} after their end"
    skipped = f", {schedule.skipped} skipped" if schedule.skipped else ""
    yield "fired", f"{counted(schedule.fired, 'time')}{skipped}"
    if schedule.last_at is not None:
        yield (
            "last fired",
            f"{ago(schedule.last_at, now)} ({stamp(schedule.last_at)}), run {schedule.last_run}",
        )
    if schedule.last_missed_at is not None:
        yield "last missed", f"{ago(schedule.last_missed_at, now)} ({stamp(schedule.last_missed_at)})"
