"""counts, rates, scale and recount: runs are counted when they are asked for, happenings when they happen.

Nothing is kept that could differ from the rows, so there is nothing to fold or to repair.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.contract import DUE_COUNTED, RATE_SECONDS, RATES_MAX, SCALE_MAX
from holdfast.lifecycle import Status
from holdfast.machine.durations import micros
from holdfast.records import (
    Counted,
    Counts,
    DueRuns,
    Instant,
    Miscount,
    Rate,
    Scale,
    Tenant,
    tenant_name,
)
from holdfast.stores.counting import counts_of, minute_of

if TYPE_CHECKING:
    from .rows import RunRow, State

# By the word of the trail.
COUNTED = {
    "created": Counted.STARTED,
    "succeeded": Counted.SUCCEEDED,
    "failed": Counted.FAILED,
    "cancelled": Counted.CANCELLED,
    "retried": Counted.RETRIED,
    "lease_expired": Counted.EXPIRED,
}


@dataclass(slots=True)
class Happenings:
    """Numbers by tenant, type and `Counted`, in all and per minute."""

    totals: Counter[tuple[str, str, Counted]] = field(default_factory=Counter)
    minutes: Counter[tuple[Instant, str, Counted, str]] = field(default_factory=Counter)
    newest: Instant = 0  # the newest minute

    def add(self, row: RunRow, word: str, now: Instant) -> None:
        """Count an entry of the trail, if it is one that is counted. The caller leaves out given-up waits."""
        what = COUNTED.get(word)
        if what is not None:
            self.totals[row.tenant, row.type, what] += 1
            self._forget_old(minute_of(now))
            self.minutes[minute_of(now), row.type, what, row.tenant] += 1

    def _forget_old(self, minute: Instant) -> None:
        if minute > self.newest:
            self.newest, until = minute, minute - micros(RATE_SECONDS)
            self.minutes = Counter({one: number for one, number in self.minutes.items() if one[0] >= until})


class CountVerbs:
    """The verbs, as a mixin of the store."""

    _clock: Callable[[], Instant]
    _lock: threading.RLock
    _state: State

    async def counts(self, tenant: Tenant) -> Counts:
        with self._lock:
            return counts(self._state, self._clock(), tenant_name(tenant))

    async def rates(
        self, tenant: Tenant, since: Instant, until: Instant | None = None, limit: int = RATES_MAX
    ) -> Sequence[Rate]:
        with self._lock:
            return rates(self._state, tenant_name(tenant), since, until)[: max(0, min(limit, RATES_MAX))]

    async def scale(self, tenant: Tenant, limit: int = SCALE_MAX) -> Scale:
        with self._lock:
            return scale(self._state, self._clock(), tenant_name(tenant), max(0, min(limit, SCALE_MAX)))

    async def recount(self, *, repair: bool = False) -> Sequence[Miscount]:
        return ()


def _seen(state: State, tenant: str | None) -> list[RunRow]:
    rows = (row for row in state.runs.values() if row.deleted_at is None)
    return [row for row in rows if tenant in {None, row.tenant}]


def counts(state: State, now: Instant, tenant: str | None) -> Counts:
    runs = ((row.type, row.status.value, 1) for row in _seen(state, tenant))
    totals = state.happenings.totals.items()
    happened = ((kind, what.value, n) for (whose, kind, what), n in totals if tenant in {None, whose})
    return counts_of(now, runs, happened)


def rates(state: State, tenant: str | None, since: Instant, until: Instant | None) -> list[Rate]:
    found: Counter[tuple[Instant, str, Counted]] = Counter()
    for (minute, kind, what, whose), number in state.happenings.minutes.items():
        asked = minute_of(since) <= minute and (until is None or minute <= until)
        if asked and tenant in {None, whose}:
            found[minute, kind, what] += number
    return [
        Rate(minute=minute, type=kind, what=what, number=number)
        for (minute, kind, what), number in sorted(found.items())
    ]


def scale(state: State, now: Instant, tenant: str | None, limit: int) -> Scale:
    due: dict[tuple[str, str], list[Instant]] = {}
    leased: Counter[tuple[str, str]] = Counter()
    for row in _seen(state, tenant):
        if row.status is Status.LEASED:
            leased[row.type, row.tenant] += 1
        elif row.status is Status.PENDING and row.run_at <= now:
            due.setdefault((row.type, row.tenant), []).append(row.run_at)
    items = [
        DueRuns(
            type=kind, tenant=whose, due=min(len(times), DUE_COUNTED), more=len(times) > DUE_COUNTED,
            oldest_due_at=min(times, default=None), leased=leased[kind, whose],
        )
        for kind, whose in sorted({*due, *leased}) for times in (due.get((kind, whose), []),)
    ]  # fmt: skip
    return Scale(now=now, items=tuple(items[:limit]), more=len(items) > limit)
