"""Limits: how many runs are executed and queued under each of them, and their pauses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from holdfast.http.pages.page import Shown, page
from holdfast.http.pages.pagecall import PageCall
from holdfast.records import Scope
from holdfast.shown.counts import ScaleData
from holdfast.shown.limits import rate_words

from .reading import runs_with, scale_of_all

LIMIT = 50
RUNS_MAX = 500  # runs that are looked at for the numbers of keys
NAMES_MAX = 8  # names under one prefix that are shown
PAUSES = {"1 min": 60, "5 min": 300, "1 h": 3600, "1 d": 86400}


class Use(NamedTuple):
    """Runs of one name. more: there may be more of them than were counted."""

    name: str
    running: int
    queued: int
    more: bool


class Numbers:
    """Running and queued runs by the name of a type, a tenant or a key."""

    def __init__(self, running: Mapping[str, int], queued: Mapping[str, int], *, more: bool) -> None:
        self.running, self.queued, self.more = running, queued, more

    def of(self, name: str) -> list[Use]:
        """Return the numbers of a limit: of one name, or of each name with its prefix that has runs."""
        if not name.endswith("%"):
            return [self._use(name)]
        names = {one for one in (*self.running, *self.queued) if one.startswith(name[:-1])}
        found = sorted(
            (self._use(one) for one in names), key=lambda use: (-use.running - use.queued, use.name)
        )
        return found[:NAMES_MAX]

    def _use(self, name: str) -> Use:
        return Use(name, self.running.get(name, 0), self.queued.get(name, 0), self.more)


@page("/limits", title="Limits", scope=Scope.OPERATOR, menu="Limits")
async def limits(call: PageCall) -> Shown:
    """Show limits and paused keys, by scope and name."""
    every, after = (await call.ask("limits")).items, call.one("after") or ""
    rest = sorted((one for one in every if _place(one) > after), key=_place)
    found = rest[:LIMIT]
    scale = await scale_of_all(call)
    numbers = {
        "type": _due(scale, "type"),
        "tenant": _due(scale, "tenant"),
        "key": await _keys(call, scale) if any(one.scope == "key" for one in found) else None,
    }
    rows = [(one, rate_words(one), _uses(numbers[one.scope], one.name)) for one in found]
    data = {"rows": rows, "pauses": PAUSES, "runs_max": RUNS_MAX}
    return Shown("limits.html", {**data, "after": _place(found[-1]) if len(rest) > LIMIT else None})


def _place(one: Any) -> str:
    """Return the place of a limit in the list."""
    return f"{one.scope} {one.name}"


def _uses(numbers: Numbers | None, name: str) -> list[Use] | None:
    return None if numbers is None else numbers.of(name)


def _due(scale: Any, field: str) -> Numbers:
    running: Counter[str] = Counter()
    queued: Counter[str] = Counter()
    for one in scale.items:
        running[getattr(one, field)] += one.leased
        queued[getattr(one, field)] += one.due
    return Numbers(running, queued, more=scale.more)


async def _keys(call: PageCall, scale: ScaleData) -> Numbers | None:
    """Count due and leased runs by their limit key: no store keeps these numbers, so runs are looked at."""
    if not call.can("list"):
        return None
    running, more_running = await runs_with(call, scale, "leased", RUNS_MAX)
    queued, more_queued = await runs_with(call, scale, "pending", RUNS_MAX)
    due = (run for run in queued if run.run_at <= call.now)
    return Numbers(_by_key(running), _by_key(due), more=more_running or more_queued)


def _by_key(runs: Iterable[Any]) -> Counter[str]:
    return Counter(run.limit_key for run in runs if run.limit_key is not None)
