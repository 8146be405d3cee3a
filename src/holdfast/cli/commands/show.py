"""`holdfast show`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial

import click
from msgspec.structs import replace

from holdfast.bounds import SHOWN_BYTES
from holdfast.cli import session
from holdfast.cli.clients import Client, everyone
from holdfast.cli.find import find
from holdfast.cli.options import json_option, run_argument, store_option
from holdfast.cli.program import command
from holdfast.cli.terminal import coloured_status, print_facts, print_json, table
from holdfast.engine.pages import gathered
from holdfast.lifecycle import FINAL, Status, StepKind, StepStatus
from holdfast.records import Run, RunFilter, RunningStep, Step, instant, moment
from holdfast.shown.data import whole_run_data
from holdfast.shown.runs import CHILDREN_MAX, facts
from holdfast.shown.steps import attempts, duration, kind_word, outcome
from holdfast.shown.text import clean, short
from holdfast.shown.times import ago
from holdfast.shown.tracebacks import cause, full_lines, trace_lines

STEPS_MAX = 200  # the newest steps of a run of code; of a plan those around the current one


@click.command()
@run_argument
@click.option("--all", "every", is_flag=True, help=f"Show all steps; without it at most {STEPS_MAX}.")
@click.option("--full", is_flag=True, help="Show the whole traceback of an error, with all frames.")
@json_option
@store_option()
def show(run: str, *, every: bool, full: bool, as_json: bool) -> None:
    """Show one run: status, waits, error, steps.

    `executes` names the steps that a worker has executed for 2 s or longer, which have no outcome yet.
    `at step` is the current step of a plan, `last step` the last finished step of code. `attempts` counts the
    executions since the last finished step; an execution whose worker died does not count. When so many
    executions have failed, the run fails. ATTEMPTS in the table counts for each step.
    """
    session.run(lambda client: _show(client, run, every=every, full=full, as_json=as_json))


async def _show(client: Client, run_text: str, *, every: bool, full: bool, as_json: bool) -> None:
    run = await client.known((await find(client, run_text)).id)
    steps = list(await client.steps(run.id, largest=None if as_json else SHOWN_BYTES))
    fetch = partial(client.list, RunFilter(parent=run.id, tenant=everyone(client), values=False))
    children = await gathered(fetch, CHILDREN_MAX, None, lambda child: child.id)
    counts = next(iter(await client.children([run.id])), None)
    if as_json:
        print_json(whole_run_data(run, steps, children, counts))
        return
    now = await client.now()
    click.echo(f"{click.style(str(run.id), bold=True)}  {clean(run.type)}")
    by = await _cancelled_by(client, run) if run.status is Status.CANCELLED else ""
    print_facts(facts(run, steps, children, now, coloured_status, counts, by))
    if run.error is not None and (full or run.status is Status.FAILED):
        trace, error = run.error.traceback, cause(run.error, steps)
        _print_trace(full_lines(trace or error.traceback) if full else trace_lines(error.traceback))
    click.echo("")
    _print_steps(run, steps, now, every=every)


async def _cancelled_by(client: Client, run: Run) -> str:
    """The person who cancelled the run, as one page of its trail tells; else empty."""
    page = await client.trail(run.id, types=("cancelled",), tenant=run.tenant)
    whole = [row.data for row in page if "step" not in row.data]  # others: a wait that the code gave up
    return str(whole[-1].get("by") or "") if whole else ""


def _print_trace(lines: Sequence[str]) -> None:
    for text in lines:
        click.echo(click.style(f"    {clean(text)}", dim=True))


def _print_steps(run: Run, steps: Sequence[Step], now: datetime, *, every: bool) -> None:
    shown = [*(steps if every else _nearest(run, steps))]
    numbered = run.kind == "plan"
    running = {one.step: one for one in run.running}
    shown = [_live(step, running.pop(step.key, None)) for step in shown]
    there = bool(steps or running)
    rows = (
        _step_table(shown, [*running.values()], now, numbered=numbered)
        if there
        else ["  no steps recorded" + " yet" * (run.status not in FINAL)]
    )
    click.echo("\n".join(rows))
    if len(shown) < len(steps):
        left, all_steps = len(steps) - len(shown), command(f"show {short(run.id)} --all")
        text = f"{left:,} of {len(steps):,} steps are not shown; all: {all_steps}"
        click.echo(click.style(text, dim=True), err=True)


def _nearest(run: Run, steps: Sequence[Step]) -> Sequence[Step]:
    """The newest steps of code; of a plan those around the current one."""
    if len(steps) <= STEPS_MAX:
        return steps
    if run.kind != "plan":
        return steps[-STEPS_MAX:]
    at = next((n for n, step in enumerate(steps) if step.key == run.cursor), 0)
    first = max(0, min(at - STEPS_MAX // 2, len(steps) - STEPS_MAX))
    return steps[first : first + STEPS_MAX]


def _live(step: Step, running: RunningStep | None) -> Step:
    """The step as it is executed now: a plan has its row before that, and a retried step that of its last
    try."""
    if running is None:
        return step
    began = instant(running.started_at)
    return replace(step, status=StepStatus.RUNNING, attempts=running.attempt, started_at=began)


def _step_table(
    steps: Sequence[Step], running: Sequence[RunningStep], now: datetime, *, numbered: bool
) -> list[str]:
    """The steps of a plan by their numbers, those of code in the order in which they were recorded; then
    those that run and are not recorded."""
    head = ["STEP", "KIND", "STATUS", "ATTEMPTS", "TOOK", "WHEN", "OUTCOME"]
    rows = [_step_row(step, now) for step in steps]
    rows += [_running_row(one, now) for one in running]
    if numbered:
        rows = [[str(step.seq + 1), *row] for step, row in zip(steps, rows, strict=True)]
    return table([*(["#"] if numbered else []), *head], rows, indent="  ")


def _step_row(step: Step, now: datetime) -> list[str]:
    at = step.finished_at or step.started_at
    return [
        clean(step.key),
        kind_word(step),
        coloured_status(step.status),
        attempts(step),
        duration(step),
        ago(moment(at), now) if at else "-",
        outcome(step, now),
    ]


def _running_row(one: RunningStep, now: datetime) -> list[str]:
    status, since = coloured_status(StepStatus.RUNNING), ago(one.started_at, now)
    return [clean(one.step), StepKind.TASK, status, str(one.attempt), "-", since, ""]
