"""Workflows: the published types, their versions, the registry, and how long their runs take."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from holdfast.engine.definitions import RESERVED, bare
from holdfast.http.pages.page import Shown, page
from holdfast.http.pages.pagecall import PageCall
from holdfast.http.pages.run.param_form import bare_params, fields
from holdfast.http.problems import Code, Refusal
from holdfast.lifecycle import OPEN, Status
from holdfast.records import Counted, RunFilter, RunOutline, Scope
from holdfast.shown.counts import CountsData, RateData, ScaleData
from holdfast.shown.stats import happened

from .reading import outlines, outlines_at_once, rates_since

LIMIT = 50
MINUTES = 60
LAST_RUNS, LIST_CALLS = 1_000, 30
PASSED = 100_000  # runs of all types among which those of one type are looked for
SAMPLE = 100  # newest runs that say how close together runs are
UNSERVED = 10  # types without a worker that are named
SCOPES = (Scope.RUNS_READ, Scope.OPERATOR)


class Served(NamedTuple):
    """Facts of registry and live workers about a type. entry: its own, or that of all versions."""

    entry: Any
    workers: tuple[str, ...]
    is_known: bool  # False: the visitor may not see workers

    @property
    def is_off(self) -> bool:
        """True for a type that is switched off."""
        return self.entry is not None and not self.entry.is_enabled


class Spread(NamedTuple):
    """Seconds that runs took, or waited: the half of them took at most p50."""

    runs: int
    p50: float
    p99: float


@page("/workflows", title="Workflows", scope=SCOPES, menu="Workflows")
async def workflows(call: PageCall) -> Shown:
    """Show all types that are published or have runs, by name."""
    published = call.ask("definitions", query={"schemas": False})
    asked = published, call.ask("counts"), _rates(call), call.ask("scale"), _workers(call), registry_of(call)
    definitions, counts, (rates, is_cut), scale, workers, registry = await asyncio.gather(*asked)
    defined = {one.type: one for one in definitions.items}
    due = {one.type: one for one in scale.items}
    after = call.one("after") or ""
    names = sorted(name for name in {*defined, *counts.by_type} if name > after)
    shown = names[:LIMIT]
    hour, minutes = happened(rates), _by_minute(rates, call.now)
    data = {
        "rows": [
            {
                "type": name,
                "definition": defined.get(name),
                "open": _open(counts.by_type.get(name, {})),
                "due": due.get(name),
                "hour": hour.get(name, {}),
                "minutes": minutes.get(name, [0] * MINUTES),
                "served": served(name, workers, registry),
            }
            for name in shown
        ],
        "after": shown[-1] if len(names) > LIMIT else None,
        "more": counts.more or is_cut,
    }
    return Shown("workflows.html", data)


@page("/workflows/{type}", title="Workflow", scope=SCOPES)
async def workflow(call: PageCall) -> Shown:
    """Show one type: its plan, its versions, its switch, its rates, and how long its last runs took."""
    type_ = call.path["type"]
    asked = (
        call.ask("definitions"), call.ask("counts"), _rates(call), call.ask("scale"), _workers(call),
        registry_of(call), _newest(call),
    )  # fmt: skip
    definitions, counts, (rates, is_cut), scale, workers, registry, newest = await asyncio.gather(*asked)
    defined = {one.type: one for one in definitions.items}
    if type_ not in defined and type_ not in counts.by_type:
        raise Refusal(Code.WORKFLOW_NOT_FOUND, "no worker has published this type, and it has no runs")
    runs, since = await _last_runs(call, type_, counts, newest) if call.can("list") else ([], None)
    columns = _columns(rates, type_, call.now)
    data = {
        "type": type_,
        "bare": bare(type_),
        "definition": defined.get(type_),
        "versions": sorted(one for one in {*defined, *counts.by_type} if bare(one) == bare(type_)),
        "counts": {one: number for one in Status if (number := counts.by_type.get(type_, {}).get(one))},
        "totals": counts.totals.get(type_, {}),
        "hour": happened(rates).get(type_, {}),
        "columns": columns,
        "peak": round(max(sum(number for _, number in parts) for _, parts in columns)),
        "served": served(type_, workers, registry),
        "due": next((one for one in scale.items if one.type == type_), None),
        "is_cut": is_cut,
        **_form(call, defined.get(type_)),
        "runs": len(runs),
        "since": since,
        "took": spread(_seconds(runs, "started_at", "finished_at")),
        "waited": spread(_seconds(runs, "created_at", "started_at")),
    }
    return Shown("workflow.html", data, title=type_)


def _form(call: PageCall, definition: Any) -> dict[str, Any]:
    """Return the fields of the form that starts a run, and the params that it begins with; without fields it
    takes JSON.
    """
    if definition is None or not call.can("start") or call.one("as") == "json":
        return {"fields": None, "base": ""}
    schema = msgspec.json.decode(bytes(definition.params_schema))
    made = fields(schema)
    return {"fields": made, "base": bare_params(schema) if made else ""}


async def _newest(call: PageCall) -> Sequence[RunOutline]:
    """Return the newest runs of all types, if the visitor may see them."""
    return await outlines(call, RunFilter(), SAMPLE) if call.can("list") else ()


async def _last_runs(
    call: PageCall, type_: str, counts: CountsData, newest: Sequence[RunOutline]
) -> tuple[list[RunOutline], datetime | None]:
    """Return the newest runs of a type, at most LAST_RUNS, and since when they were looked for; None: ever.

    Stores have no index by type. In a large store the list looks at some PASSED runs of all types: from how
    close together the newest ones are, their time is estimated.
    """
    since = None
    if sum(counts.by_status.values()) > PASSED and newest:
        span = newest[0].created_at - newest[-1].created_at
        since = newest[0].created_at - span * (PASSED // len(newest))
    where = RunFilter(type=type_, created_since=since)
    return await outlines_at_once(call, where, LAST_RUNS, LIST_CALLS), since


def _seconds(runs: Iterable[RunOutline], start: str, end: str) -> list[float]:
    spans = ((getattr(run, start), getattr(run, end)) for run in runs)
    return [(end - start).total_seconds() for start, end in spans if start is not None and end is not None]


def spread(seconds: Sequence[float]) -> Spread | None:
    """Return the median and the 99th percentile (nearest rank); None without numbers."""
    if not seconds:
        return None
    ordered = sorted(seconds)
    ranks = [ordered[max(0, -(-len(ordered) * percent // 100) - 1)] for percent in (50, 99)]
    return Spread(len(ordered), *ranks)


async def _workers(call: PageCall) -> Sequence[Any] | None:
    return (await call.ask("workers")).items if call.can("workers") else None


async def registry_of(call: PageCall) -> Mapping[str, Any]:
    """Return the entries of the registry by name, as far as the visitor may see them."""
    if not call.can("registry"):
        return {}
    return {one.workflow_name: one for one in (await call.ask("registry")).items}


def served(
    type_: str, workers: Sequence[Any] | None, registry: Mapping[str, Any], tenant: str | None = None
) -> Served:
    """Return which workers execute a type. tenant: only workers for it count."""
    entry = registry.get(type_) or registry.get(bare(type_))
    if workers is None:
        return Served(entry, (), is_known=False)
    able = (
        one.worker
        for one in workers
        if type_ in one.types
        and (entry is None or entry.runtime == one.runtime)
        and (tenant is None or one.tenants is None or tenant in one.tenants)
    )
    return Served(entry, tuple(able), is_known=True)


def unserved(scale: ScaleData, workers: Sequence[Any], registry: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Return the types that have due runs and no worker, with the number of these runs; the most first."""
    found: Counter[str] = Counter()
    for one in scale.items:
        if one.due and not served(one.type, workers, registry, one.tenant).workers:
            found[one.type] += one.due
    return found.most_common(UNSERVED)


def executes(worker: Any) -> bool:
    """Return True for a worker with workflows of users. A server has one for bulk operations alone."""
    return any(not one.startswith(RESERVED) for one in worker.types)


def _open(numbers: Mapping[str, int]) -> int:
    return sum(number for status, number in numbers.items() if status in OPEN)


async def _rates(call: PageCall) -> tuple[list[RateData], bool]:
    return await rates_since(call, call.now - timedelta(minutes=MINUTES - 1))


def _place(minute: datetime, now: datetime) -> int:
    """Return the place of a minute among the last MINUTES, of which the present one is the last."""
    passed = int(now.timestamp() // 60 - minute.timestamp() // 60)
    return MINUTES - 1 - min(max(passed, 0), MINUTES - 1)


def _by_minute(items: Iterable[Any], now: datetime) -> dict[str, list[int]]:
    """Return the runs that were started in each of the last minutes, by type."""
    found: dict[str, list[int]] = {}
    for one in items:
        if one.what is Counted.STARTED:
            found.setdefault(one.type, [0] * MINUTES)[_place(one.minute, now)] += one.number
    return found


def _columns(items: Iterable[Any], type_: str, now: datetime) -> list[tuple[str, list[tuple[str, float]]]]:
    """Return the bars of the last hour: runs that succeeded, failed and were cancelled, by minute."""
    ends = (Counted.SUCCEEDED, Counted.FAILED, Counted.CANCELLED)
    numbers = [dict.fromkeys(ends, 0) for _ in range(MINUTES)]
    for one in items:
        if one.type == type_ and one.what in ends:
            numbers[_place(one.minute, now)][one.what] += one.number
    columns: list[tuple[str, list[tuple[str, float]]]] = []
    for index, number in enumerate(numbers):
        at = (now - timedelta(minutes=MINUTES - 1 - index)).strftime("%H:%M")
        words = ", ".join(f"{count} {what.value}" for what, count in number.items())
        columns.append(
            (f"{at} UTC: {words}", [(f"s-{what.value}", float(count)) for what, count in number.items()])
        )
    return columns
