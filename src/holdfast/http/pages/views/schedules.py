"""Schedules: when they fire, in words and as times, and the runs that they have started."""

from __future__ import annotations

from typing import Any

from holdfast.cron import local
from holdfast.errors import UsageError
from holdfast.http.pages.page import Shown, page
from holdfast.http.pages.pagecall import PageCall
from holdfast.records import CatchUp, Overlap, Scope, instant
from holdfast.shown.cron_words import cron_words
from holdfast.shown.times import span

LIMIT = 50
RUNS = 20
OVERLAPS = {
    Overlap.SKIP: "the time is skipped",
    Overlap.ALLOW: "another run starts beside it",
    Overlap.QUEUE: "the time waits until the run has ended",
}
CATCH_UPS = {
    CatchUp.NONE: "none is caught up",
    CatchUp.ONE: "the latest one is caught up",
    CatchUp.ALL: "all are caught up",
}
_CLOCK = "%a %Y-%m-%d %H:%M:%S"


@page("/schedules", title="Schedules", scope=Scope.RUNS_READ, menu="Schedules")
async def schedules(call: PageCall) -> Shown:
    """Show the schedules, by name."""
    found = await call.ask("schedules", query={"limit": LIMIT, "cursor": call.one("cursor")})
    rows = [(one, words(one), _local(one)) for one in found.items]
    return Shown("schedules.html", {"rows": rows, "next": found.next, "limit": LIMIT})


@page("/schedules/{name}", title="Schedule", scope=Scope.RUNS_READ)
async def schedule(call: PageCall) -> Shown:
    """Show one schedule, its next times, and its last runs."""
    one = await call.ask("get_schedule", path={"name": call.path["name"]})
    query = {"label": [f"schedule={one.name}"], "limit": RUNS, "tenant": one.tenant if call.tenant else None}
    runs = (await call.ask("list", query=query)).items
    data = {"one": one, "words": words(one), "times": _local(one), "runs": runs}
    data |= {"overlaps": OVERLAPS, "catch_ups": CATCH_UPS}
    return Shown("schedule.html", data, title=one.name)


def words(one: Any) -> str:
    """Return the rhythm of a schedule in words."""
    jitter = f", up to {span(one.jitter_seconds)} later" if one.jitter_seconds else ""
    if one.every_seconds is not None:
        return f"every {span(one.every_seconds)}{jitter}"
    return f"{cron_words(one.cron or '') or 'by a cron expression'}{jitter}"


def _local(one: Any) -> list[tuple[Any, str]]:
    """Return the next times, each with the clock of the schedule's zone."""
    zone = one.zone or "UTC"
    try:
        return [(at, f"{local(instant(at), zone).strftime(_CLOCK)} {zone}") for at in one.next_times]
    except UsageError:  # a zone that this machine does not know
        return [(at, "") for at in one.next_times]
