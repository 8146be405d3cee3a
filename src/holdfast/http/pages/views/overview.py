"""The overview: what runs, what waits, what failed. It costs the same however many runs there are."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from holdfast.http.pages.drawing import Column
from holdfast.http.pages.latency import Latency
from holdfast.http.pages.page import Shown, page
from holdfast.http.pages.pagecall import PageCall
from holdfast.http.pages.run.errors import caused
from holdfast.lifecycle import OPEN, Status
from holdfast.records import Counted, Scope
from holdfast.shown.counts import CountsData, DueRunsData, RateData, ScaleData
from holdfast.shown.shapes import ListedRunData
from holdfast.shown.times import span

from .reading import rates_since
from .workflows import executes, registry_of, unserved

MINUTES = 60  # that are shown
TYPES = 30  # rows of the table of types
FAILURES, GROUPS = 100, 10  # failed runs that are read, groups of them that are shown
SCOPES = (Scope.RUNS_READ, Scope.METRICS, Scope.OPERATOR)
ENDS = (Counted.SUCCEEDED, Counted.FAILED, Counted.CANCELLED)


class ErrorGroup(NamedTuple):
    """Failed runs with equal errors. fingerprint: the filter that finds them; None: it is not shown."""

    number: int
    type: str
    step: str
    message: str
    fingerprint: str | None
    last: UUID
    last_at: datetime | None


class TypeRow(NamedTuple):
    """The numbers of one type. started: by minute, oldest first."""

    type: str
    by_status: Mapping[str, int]
    due: int
    more: bool
    oldest_seconds: float
    started: Sequence[int]
    ended: int
    failed: int


@page("/", title="Overview", scope=SCOPES, menu="Overview", live=True)
async def overview(call: PageCall) -> Shown:
    """Show the numbers of the last hour, of all types, and groups of equal errors."""
    asked = call.ask("counts"), call.ask("scale"), _serving(call), _failed(call), _resumed(call)
    counts, scale, serving, failed, resumed = await asyncio.gather(*asked)
    now = counts.now.replace(second=0, microsecond=0)
    since = now - timedelta(minutes=MINUTES - 1)
    rates, is_cut = await rates_since(call, since)
    minutes = _columns(rates, since)
    data: dict[str, Any] = {
        "counts": counts,
        "open": [one for one in Status if one in OPEN],
        "scale": scale,
        "oldest": span(round(scale.oldest_due_seconds)) if scale.due else "",
        "minutes": minutes,
        "peaks": [round(max(sum(number for _, number in parts) for _, parts in one)) for one in minutes],
        "since": since,
        "hour": _sums(rates),
        "types": _types(counts, scale, rates, since),
        "is_cut": is_cut,
        "workers": None,
    }
    if serving is not None:
        workers, registry = serving
        data["workers"] = [one for one in workers if executes(one)]
        data["unserved"] = unserved(scale, workers, registry)
    if failed is not None:
        data |= {"groups": groups(failed), "read": len(failed), "resumed": resumed}
    return Shown("overview.html", data)


async def _serving(call: PageCall) -> tuple[Sequence[Any], Mapping[str, Any]] | None:
    """Return the live workers and the registry, if the visitor may see them."""
    if not call.can("workers"):
        return None
    return (await call.ask("workers")).items, await registry_of(call)


async def _failed(call: PageCall) -> Sequence[ListedRunData] | None:
    """Return the last failed runs, if the visitor may see them."""
    if not call.can("list"):
        return None
    query = {"status": ["failed"], "limit": FAILURES}
    return (await call.ask("list", query=query)).items  # type: ignore[no-any-return]


async def _resumed(call: PageCall) -> Latency | None:
    return await call.latencies.read(call.scope) if call.can("list") else None


def groups(failed: Sequence[ListedRunData]) -> list[ErrorGroup]:
    """Group failed runs by their fingerprints (type, step, message); the largest group first."""
    found: dict[Any, list[ListedRunData]] = {}
    for run in failed:
        error = run.error
        key = run.fingerprint or (None if error is None else (error.type, error.step))
        if key is not None:
            found.setdefault(key, []).append(run)
    made = [
        ErrorGroup(
            number=len(runs),
            type=caused(runs[0].error)[0],
            step=(runs[0].error.step or "") if runs[0].error else "",
            message=caused(runs[0].error)[1],
            fingerprint=runs[0].fingerprint,
            last=runs[0].id,
            last_at=runs[0].finished_at,
        )
        for runs in found.values()
    ]
    return sorted(made, key=lambda one: -one.number)[:GROUPS]


def _columns(rates: Sequence[RateData], since: datetime) -> tuple[list[Column], list[Column]]:
    """Return the bars of starts and of ends, by minute."""
    numbers: Counter[tuple[int, Counted]] = Counter()
    for one in rates:
        numbers[_minute(one, since), one.what] += one.number
    started, ended = list[Column](), list[Column]()
    for index in range(MINUTES):
        at = (since + timedelta(minutes=index)).strftime("%H:%MZ")
        begun = numbers[index, Counted.STARTED]
        started.append((f"{at}: {begun:,} started", [("started", begun)]))
        parts = [(f"s-{what.value}", float(numbers[index, what])) for what in ENDS]
        words = ", ".join(f"{number:,.0f} {name.removeprefix('s-')}" for name, number in parts if number)
        ended.append((f"{at}: {words or 'none ended'}", parts))
    return started, ended


def _minute(rate: RateData, since: datetime) -> int:
    return int((rate.minute - since).total_seconds() // 60)


def _sums(rates: Sequence[RateData]) -> dict[str, Any]:
    sums = Counter[Counted]()
    for one in rates:
        sums[one.what] += one.number
    ended = sums[Counted.SUCCEEDED] + sums[Counted.FAILED]
    return {
        **{one.value: sums[one] for one in Counted},
        "share": sums[Counted.FAILED] / ended if ended else None,
    }


def _types(
    counts: CountsData, scale: ScaleData, rates: Sequence[RateData], since: datetime
) -> tuple[list[TypeRow], int]:
    """Return the rows of the busiest types, and how many there are."""
    started: dict[str, list[int]] = {}
    sums: dict[str, Counter[Counted]] = {}
    for one in rates:
        sums.setdefault(one.type, Counter())[one.what] += one.number
        index = _minute(one, since)
        if one.what is Counted.STARTED and 0 <= index < MINUTES:
            started.setdefault(one.type, [0] * MINUTES)[index] += one.number
    due_of: dict[str, list[DueRunsData]] = {}
    for queued in scale.items:
        due_of.setdefault(queued.type, []).append(queued)
    rows = []
    for type_ in {*counts.by_type, *sums}:
        due, sum_ = due_of.get(type_, []), sums.get(type_, Counter())
        rows.append(
            TypeRow(
                type=type_,
                by_status=counts.by_type.get(type_, {}),
                due=sum(one.due for one in due),
                more=any(one.more for one in due),
                oldest_seconds=round(max((one.oldest_due_seconds for one in due), default=0.0)),
                started=started.get(type_, [0] * MINUTES),
                ended=sum(sum_[what] for what in ENDS),
                failed=sum_[Counted.FAILED],
            )
        )
    rows.sort(key=lambda row: (-row.due, -sum(row.started), -_open(row), row.type))
    return rows[:TYPES], len(rows)


def _open(row: TypeRow) -> int:
    return sum(number for status, number in row.by_status.items() if status in OPEN)
