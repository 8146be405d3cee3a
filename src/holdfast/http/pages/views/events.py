"""Events: send one, and see which runs wait for a topic."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from holdfast.http.pages.page import SAID, Shown, page
from holdfast.http.pages.pagecall import PageCall
from holdfast.lifecycle import StepKind
from holdfast.records import Scope
from holdfast.shown.text import counted

from .reading import gathered

WAITING_MAX = 500  # runs that wait for an event and are looked at
RUNS_EACH = 10


@page("/events", title="Events", scope=(Scope.RUNS_READ, Scope.RUNS_WRITE), menu="Events")
async def events(call: PageCall) -> Shown:
    """Show the topics that runs wait for, and a form that sends an event."""
    topic, waiting, more = call.one("topic"), {}, False
    if call.can("list"):
        query = {"waiting_on": StepKind.EVENT.value}  # with a status, stores would take its index
        runs, more = await gathered(call, query, WAITING_MAX)
        waiting = by_topic(runs, topic)
    rows = sorted(waiting.items(), key=lambda one: (-len(one[1]), one[0]))
    data = {"rows": rows, "topic": topic or "", "more": more, "most": WAITING_MAX, "each": RUNS_EACH}
    return Shown("events.html", data)


def by_topic(runs: Iterable[Any], only: str | None) -> dict[str, list[tuple[Any, Any]]]:
    """Return the runs and waits of each topic; only: of this topic."""
    found: dict[str, list[tuple[Any, Any]]] = {}
    for run in runs:
        for wait in run.waiting_on:
            if wait.topic is not None and only in {None, wait.topic}:
                found.setdefault(wait.topic, []).append((run, wait))
    return found


def _emitted(answer: Any) -> str:
    if answer.duplicate:
        return "this event was sent before: nothing changed"
    if not answer.woken:
        return f"the event {answer.topic} is sent; no run waited for it yet"
    return f"the event {answer.topic} is sent to {counted(answer.woken, 'run')}"


SAID["emit"] = _emitted
