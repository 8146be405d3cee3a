"""How schedules fare: which are overdue, and which cannot be fired, with the reason."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.contract import Store
from holdfast.errors import HoldfastError
from holdfast.escaping import escaped
from holdfast.records import SECOND, Finding, Instant, Schedule, instant

from .pages import gathered
from .timetable import rhythm_of, timed_run

LATE_SECONDS = 10.0  # a keeper comes by every second
DUE_MAX = 1000  # that are looked at
SHOWN = 5  # that a finding names
WHY_MAX = 500  # characters of the reason


async def due(store: Store) -> Sequence[Schedule]:
    """Those that a keeper should fire now."""
    return await gathered(store.due_schedules, DUE_MAX, None, lambda one: one.id)


def trouble(one: Schedule, now: Instant) -> str | None:
    """Why it cannot be fired here; None: it can, as far as is seen."""
    try:
        rhythm_of(one).after(now)
        timed_run(one, now)
    except HoldfastError as error:
        return escaped(error, WHY_MAX)
    return None


async def findings(store: Store) -> list[Finding]:
    """What a check-up says of them."""
    now = await store.now()
    late = [one for one in await due(store) if _late(one, now) > LATE_SECONDS]
    lame = [(one, why) for one in late if (why := trouble(one, now)) is not None]
    found = [_unfirable(one, why) for one, why in lame[:SHOWN]]
    if len(lame) > SHOWN:
        found.append(Finding(level="error", what=f"{len(lame) - SHOWN:,} more that cannot be fired here"))
    rest = [one for one in late if one not in [each for each, _ in lame]]
    return found + ([_overdue(rest, now)] if rest else [])


def _late(one: Schedule, now: Instant) -> float:
    return 0.0 if one.next_at is None else (now - instant(one.next_at)) / SECOND


def _named(one: Schedule) -> str:
    return f"{escaped(one.name)} of {escaped(one.tenant)}"


def _unfirable(one: Schedule, why: str) -> Finding:
    return Finding(
        level="error",
        what=f"schedule {_named(one)} is overdue since {one.next_at:%Y-%m-%d %H:%M:%SZ} and cannot be fired "
        f"here: {why}",
        mend="let the app that has made it say it again, rightly, or `holdfast schedule pause NAME`; where "
        "its params are sealed, give workers and this command the keys",
    )


def _overdue(late: Sequence[Schedule], now: Instant) -> Finding:
    named = ", ".join(_named(one) for one in late[:SHOWN]) + ", …" * (len(late) > SHOWN)
    most = max(_late(one, now) for one in late)
    count = f"{len(late):,} schedule{'s' * (len(late) != 1)}"
    return Finding(
        level="warning",
        what=f"{count} overdue, by up to {most:,.0f} s: {named}",
        mend="start a worker, or `holdfast tick --loop` where none is to run; if there is one, its log says "
        "why it cannot fire them",
    )
