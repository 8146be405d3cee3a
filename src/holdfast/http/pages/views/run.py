"""The page of one run, the form of a rerun, and the whole trail of a run."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET

from holdfast.http.pages.page import Shown, page
from holdfast.http.pages.pagecall import PageCall
from holdfast.http.pages.run.commands import command, commands, emit_command
from holdfast.http.pages.run.errors import shown_error
from holdfast.http.pages.run.moves import offered
from holdfast.http.pages.run.param_form import fields
from holdfast.http.pages.run.reading import (
    ENTRIES,
    LOGS,
    explained,
    family,
    line,
    marks,
    newest_steps,
    one_run,
    one_step,
    open_gates,
    step_row,
    steps_before,
    trail_lines,
)
from holdfast.http.pages.run.svg import drawn
from holdfast.http.pages.run.timeline import LEGEND, number_of, timeline
from holdfast.lifecycle import FINAL, Status, StepKind
from holdfast.records import Scope
from holdfast.records.unreadable import read_object
from holdfast.shown.shapes import RunValuesData, StepData

FORM_MAX = 100_000  # bytes of params: larger ones are edited as JSON, if at all
LABELS = 50  # that are shown
PLAN_SHOWN = 40  # steps of a plan that are shown in one line


@page("/runs/{run}", title="Run", live=True)
async def run(call: PageCall) -> Shown:
    """Show one run."""
    found = await one_run(call)
    if found is None:
        call.is_gone = True
        return Shown(
            "run_deleted.html", {"id": call.path["run"], "why": await explained(call)}, "Deleted run"
        )
    offers = offered(found, call.can)
    steps = await newest_steps(call)
    shown = [*reversed(steps.items)]
    chosen = call.one("step")
    is_first = steps.next is None and call.one("name") is None
    is_whole = is_first and call.one("before") is None
    lines = timeline(found, shown, await marks(call), call.now, is_first=is_first)
    rows = [step_row(one, found, call.now) for one in shown]
    places = {one.step: one.seq for one in shown}
    is_reversed = steps.next is not None or call.one("before") is not None
    if is_reversed:  # of many steps the newest come first
        rows.reverse()
        lines = lines._replace(rows=lines.rows[::-1])
    labels = [(name, str(value)) for name, value in read_object(bytes(found.labels)).items()]
    data = {
        "run": found,
        "why": await explained(call),
        "offers": offers,
        "steps": rows,
        "is_reversed": is_reversed,
        "total": None if steps.total is UNSET else steps.total,
        "older": steps.next,
        "svg": drawn(lines, lambda step: f"{call.here(step=step, at=places.get(step))}#step"),
        "timeline": lines,
        "legend": LEGEND,
        "plan": await _plan(call, found, shown, is_whole=is_whole) if found.kind == "plan" else None,
        "step": await _step(call, chosen, shown) if chosen else None,
        "gates": await open_gates(call, found) if "approve" in offers else (),
        "gates_open": sum(one.kind is StepKind.APPROVAL for one in found.waiting_on),
        "awaited": [one for one in found.waiting_on if one.topic is not None],
        "error": shown_error(found.error),
        "labels": labels[:LABELS],
        "labels_left": max(0, len(labels) - LABELS),
        "progress": _progress(found),
        "family": await family(call, found),
        "trail": await trail_lines(call),
        "logs": await trail_lines(call, ("log",), LOGS),
        "commands": commands(found, offers),
        "command": command,
        "emit_command": emit_command,
        "is_open": found.status not in FINAL,
        "is_ended": found.status is Status.SUCCEEDED,
        "shown_error": shown_error,
    }
    return Shown("run.html", data, found.type)


async def _step(call: PageCall, key: str, shown: list[StepData]) -> StepData | None:
    near = next((one for one in shown if one.step == key), None)
    return near if near is not None and not near.left_out else await one_step(call, key)


async def _plan(
    call: PageCall, run: RunValuesData, shown: list[StepData], *, is_whole: bool
) -> list[StepData]:
    """Return the steps of a plan around the current one; of a plan that has ended, its end."""
    at = run.current_step_seq
    before = None if at is None else max(at + PLAN_SHOWN // 2, PLAN_SHOWN)
    if is_whole:
        return shown[:before][-PLAN_SHOWN:]
    return await steps_before(call, before, PLAN_SHOWN)


def _progress(found: RunValuesData) -> dict[str, Any]:
    """Return progress as numbers and a note; empty if the run has told none."""
    data = read_object(bytes(found.progress)) if bytes(found.progress) != b"null" else {}
    done, total = number_of(data.get("done")), number_of(data.get("total"))
    if done is None:
        return {}
    return {
        "done": done,
        "total": total if total is not None and total > 0 else None,
        "note": data.get("note"),
    }


@page("/runs/{run}/rerun", title="Rerun", scope=Scope.RUNS_WRITE)
async def rerun(call: PageCall) -> Shown:
    """Show the form of a rerun: fields from the schema of the params, or JSON."""
    found: RunValuesData = await call.ask("get", path=call.path)
    params, made = bytes(found.params), None
    if call.actor.sees_values and len(params) <= FORM_MAX and call.one("as") != "json":
        known = (await call.ask("definitions", query={"schemas": True})).items
        schema = next((bytes(one.params_schema) for one in known if one.type == found.type), b"null")
        made = fields(msgspec.json.decode(schema), params)
    data = {
        "run": found,
        "fields": made,
        "params": params.decode(errors="replace") if len(params) <= FORM_MAX else None,
    }
    return Shown("run_rerun.html", data, f"Rerun {found.type}")


@page("/runs/{run}/trail", title="Trail")
async def trail(call: PageCall) -> Shown:
    """Show the whole trail of a run in pages, oldest first."""
    found = await call.ask("trail", path=call.path, query={"after": call.one("after"), "limit": ENTRIES * 4})
    data = {"id": call.path["run"], "trail": [line(one) for one in found.items], "next": found.next}
    return Shown("run_trail.html", data, "Trail of a run")
