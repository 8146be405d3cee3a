"""Reads for the page of a run, through operations of the API."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from holdfast.http.api.steps import Steps
from holdfast.http.pages.pagecall import PageCall
from holdfast.http.problems import Code, Refusal
from holdfast.lifecycle import StepKind, StepStatus
from holdfast.records.unreadable import read_object
from holdfast.shown.records import step_of, trail_entry_of
from holdfast.shown.shapes import (
    ApprovalData,
    ChildCountsData,
    ExplanationData,
    ListedRunData,
    RunValuesData,
    StepData,
    TrailEntryData,
)
from holdfast.shown.steps import attempts, duration, kind_word, outcome
from holdfast.shown.times import span
from holdfast.shown.trail import sentence
from holdfast.step_keys import KEY_MAX

from .timeline import MARKS

STEPS, ENTRIES, LOGS, CHILDREN, GATES = 50, 50, 30, 30, 10  # rows of a page
MARKS_MAX = 500
LINE_BYTES = 4_000  # a value of a step that is shown in one line
STEP_BYTES = 256 * 1024  # a value of the step that is looked at
ANCESTORS = 5
PLACE_DIGITS = 10


class StepRow(NamedTuple):
    """A step in the table."""

    step: str
    seq: int
    kind: str
    status: StepStatus
    attempts: str
    began: str
    took: str
    cost: float
    outcome: str
    child: UUID | None
    is_hidden: bool


class Line(NamedTuple):
    """An entry of the trail. level: of a log line."""

    seq: int
    type: str
    at: datetime
    words: str
    level: str


class Family(NamedTuple):
    """The relatives of a run: its ancestors, the farthest first, and its children."""

    ancestors: tuple[RunValuesData, ...]
    children: tuple[ListedRunData, ...]
    counts: ChildCountsData
    next: str | None

    @property
    def cost(self) -> float:
        """The costs of the children that are listed."""
        return sum(one.cost for one in self.children)


async def one_run(call: PageCall) -> RunValuesData | None:
    """Return the run of the address; None if it is deleted. Refusal: there is none."""
    try:
        run: RunValuesData = await call.ask("get", path=call.path)
    except Refusal as refusal:
        if refusal.code is not Code.RUN_NOT_FOUND:
            raise
        await call.ask("explain", path=call.path)
        return None
    return run


async def explained(call: PageCall) -> ExplanationData:
    """Return why the run does not move."""
    found: ExplanationData = await call.ask("explain", path=call.path)
    return found


async def newest_steps(call: PageCall) -> Steps:
    """Return the page of steps that is looked at, the newest first."""
    query = {
        "newest": True,
        "limit": STEPS,
        "largest": LINE_BYTES,
        "before": call.one("before"),
        "name": call.one("name"),
    }
    found: Steps = await call.ask("steps", path=call.path, query=query)
    return found


async def one_step(call: PageCall, key: str) -> StepData | None:
    """Return a step with its values; None if it is not recorded. Its place, if the address names it, saves a
    walk over all steps; a wait that is settled has another place.
    """
    if len(key) > KEY_MAX:
        return None
    query = {"newest": True, "limit": 1, "largest": STEP_BYTES, "step": key}
    at = call.one("at") or ""
    if at.isascii() and at.isdigit() and len(at) < PLACE_DIGITS:
        near = {"newest": True, "limit": 1, "largest": STEP_BYTES, "before": int(at) + 1}
        found: Steps = await call.ask("steps", path=call.path, query=near)
        if found.items and found.items[0].step == key:
            return found.items[0]
    found = await call.ask("steps", path=call.path, query=query)
    return next(iter(found.items), None)


async def steps_before(call: PageCall, before: int | None, limit: int) -> list[StepData]:
    """Return at most so many steps, without values, that end before this place; None: at the last one."""
    query = {"newest": True, "limit": limit, "largest": 0, "before": before}
    found: Steps = await call.ask("steps", path=call.path, query=query)
    return [*reversed(found.items)]


async def open_gates(call: PageCall, run: RunValuesData) -> list[ApprovalData]:
    """Return the open gates of a run, at most GATES. The list is sorted by run, so it begins here."""
    if not call.can("approvals") or not any(one.kind is StepKind.APPROVAL for one in run.waiting_on):
        return []
    before = {"after_run": str(UUID(int=max(0, run.id.int - 1))), "after_step": "-"}
    found = await call.ask("approvals", query={"limit": GATES, **before})
    return [one for one in found.items if one.run == run.id]


async def marks(call: PageCall) -> Sequence[TrailEntryData]:
    """Return the entries of the trail that the timeline needs."""
    query = {"newest": True, "limit": MARKS_MAX, "type": list(MARKS)}
    return (await call.ask("trail", path=call.path, query=query)).items  # type: ignore[no-any-return]


async def trail_lines(call: PageCall, types: Sequence[str] = (), limit: int = ENTRIES) -> list[Line]:
    """Return the end of the trail, the newest entry first."""
    found = await call.ask(
        "trail", path=call.path, query={"newest": True, "limit": limit, "type": list(types)}
    )
    return [line(one) for one in reversed(found.items)]


def line(entry: TrailEntryData) -> Line:
    """Return an entry of the trail in words."""
    level = str(read_object(bytes(entry.data)).get("level") or "info") if entry.type == "log" else ""
    words = sentence(trail_entry_of(entry))
    if level:
        words = words.removeprefix("log ").removeprefix(f"{level}: ")
    return Line(entry.seq, entry.type, entry.at, words, level)


async def family(call: PageCall, run: RunValuesData) -> Family:
    """Return the relatives of a run."""
    counts: ChildCountsData = await call.ask("children", path=call.path)
    children: Any = ()
    more = None
    if counts.total:
        query = {"parent": run.id, "limit": CHILDREN, "children": True}
        page = await call.ask("list", query=query)
        children, more = page.items, page.next if len(page.items) == CHILDREN else None
    ancestors: list[RunValuesData] = []
    parent = run.parent
    while parent is not None and len(ancestors) < ANCESTORS:
        try:
            ancestors.insert(0, await call.ask("get", path={"run": parent}))
        except Refusal as refusal:
            if refusal.code is not Code.RUN_NOT_FOUND:
                raise
            break  # it is deleted or purged
        parent = ancestors[0].parent
    return Family(tuple(ancestors), tuple(children), counts, more)


def step_row(data: StepData, run: RunValuesData, now: datetime) -> StepRow:
    """Return a step as the table shows it."""
    step = step_of(data)
    at = data.started_at or data.finished_at
    return StepRow(
        step=data.step,
        seq=data.seq,
        kind=kind_word(step),
        status=data.status,
        attempts=attempts(step),
        began="" if at is None else f"+{span(max(0.0, (at - run.created_at).total_seconds()))}",
        took=duration(step),
        cost=data.cost,
        outcome="" if data.redacted else outcome(step, now).replace("see it with --json", "open the step"),
        child=data.child,
        is_hidden=data.redacted and data.status != "pending",
    )
