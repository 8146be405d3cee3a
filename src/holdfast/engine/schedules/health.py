"""The health of schedules: overdue ones, and ones that cannot fire, with the reason."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.contract import Store
from holdfast.engine.pages import gathered
from holdfast.errors import HoldfastError
from holdfast.escaping import escaped
from holdfast.records import SECOND, Finding, Instant, Schedule, instant

from .firing import rhythm_of, timed_run
from .versions import published_types, resolved

LATE_SECONDS = 10.0  # keepers work every second
DUE_MAX = 1000  # schedules that are read
SHOWN = 5  # schedules that a finding names
WHY_MAX = 500  # characters of the reason


async def due(store: Store) -> Sequence[Schedule]:
    """The schedules that a keeper should fire now."""
    return await gathered(store.due_schedules, DUE_MAX, None, lambda one: one.id)


def trouble(one: Schedule, now: Instant, published: Sequence[str]) -> str | None:
    """The reason why a schedule cannot fire here; None if no reason is known."""
    try:
        rhythm_of(one).after(now)
        timed_run(resolved(one, published), now)
    except HoldfastError as error:
        return escaped(error, WHY_MAX)
    return None


async def findings(store: Store) -> list[Finding]:
    """The findings of `doctor` about schedules."""
    now = await store.now()
    late = [one for one in await due(store) if _late(one, now) > LATE_SECONDS]
    published = await published_types(store, late)
    broken = [(one, why) for one in late if (why := trouble(one, now, published)) is not None]
    found = [_unfirable(one, why) for one, why in broken[:SHOWN]]
    if len(broken) > SHOWN:
        found.append(
            Finding(level="error", what=f"{len(broken) - SHOWN:,} more schedules that cannot fire here")
        )
    rest = [one for one in late if one not in [each for each, _ in broken]]
    return found + ([_overdue(rest, now)] if rest else [])


def _late(one: Schedule, now: Instant) -> float:
    return 0.0 if one.next_at is None else (now - instant(one.next_at)) / SECOND


def _named(one: Schedule) -> str:
    return f"{escaped(one.name)} (tenant {escaped(one.tenant)})"


def _unfirable(one: Schedule, why: str) -> Finding:
    return Finding(
        level="error",
        what=f"schedule {_named(one)} is overdue since {one.next_at:%Y-%m-%d %H:%M:%SZ} and cannot fire "
        f"here: {why}",
        mend="correct it in the app that created it, or `holdfast schedule pause NAME`; if its params "
        "are encrypted, give the workers and this command the keys",
    )


def _overdue(late: Sequence[Schedule], now: Instant) -> Finding:
    named = ", ".join(_named(one) for one in late[:SHOWN]) + ", …" * (len(late) > SHOWN)
    most = max(_late(one, now) for one in late)
    count = f"{len(late):,} schedule{'s' * (len(late) != 1)}"
    return Finding(
        level="warning",
        what=f"{count} overdue, by up to {most:,.0f} s: {named}",
        mend="start a worker, or `holdfast tick --loop`; if one runs, its log says why it cannot fire them",
    )
