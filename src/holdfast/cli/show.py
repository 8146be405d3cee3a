"""`holdfast show`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Any

import click

from holdfast.bounds import SHOWN_BYTES
from holdfast.engine.client import Client
from holdfast.engine.pages import gathered
from holdfast.lifecycle import SETTLED, Status
from holdfast.records import ANY, DEFAULT_TENANT, PRIORITY, SECOND, Error, Json, Run, RunFilter, Step, moment
from holdfast.records.reading import MARK, UNREADABLE, read_error

from . import session
from .find import find, short
from .ls import progress_words
from .options import json_option, run_argument, store_option
from .outcomes import outcome
from .program import command
from .shape import print_json, raw_text, whole_run_data
from .text import ago, clean, span, stamp, status_word, table
from .words import by_whom, waits

VALUE_MAX = 400  # characters of params and result; --json prints all
TRACE_LINES, TRACE_MAX = 8, 100_000  # lines that are shown, characters that are looked at
_HEADING = "Traceback (most recent call last):"
_ENGINE = re.compile(r"[/\\]holdfast[/\\](engine|threads|world\.py)")
CHILDREN_SHOWN, CHILDREN_MAX = 5, 1000
STEPS_MAX = 200  # the newest of a run of code; of a plan those around the current one


@click.command()
@run_argument
@click.option("--all", "every", is_flag=True, help=f"All steps; without it at most {STEPS_MAX}.")
@json_option
@store_option()
def show(run: str, *, every: bool, as_json: bool) -> None:
    """Show one run: status, waits, error, steps."""
    session.run(lambda client: _show(client, run, every=every, as_json=as_json))


async def _show(client: Client, said: str, *, every: bool, as_json: bool) -> None:
    run = await client.known((await find(client, said)).id)
    steps = list(await client.steps(run.id, largest=None if as_json else SHOWN_BYTES))
    fetch = partial(client.list, RunFilter(parent=run.id, tenant=ANY, values=False))
    children = await gathered(fetch, CHILDREN_MAX, None, lambda child: child.id)
    if as_json:
        print_json(whole_run_data(run, steps, children))
        return
    now = moment(await client.store.now())
    click.echo(f"{click.style(str(run.id), bold=True)}  {clean(run.type)}")
    facts = list(_facts(run, steps, children, now))
    width = max(len(name) for name, _ in facts)
    for name, text in facts:
        click.echo(f"  {name:<{width}}  {text}")
    if run.status is Status.FAILED and run.error is not None:
        _print_trace(_cause(run.error, steps))
    click.echo("")
    shown = steps if every else _near(run, steps)
    numbered = run.kind == "plan"
    rows = _step_table(shown, now, numbered=numbered) if steps else ["  no steps recorded yet"]
    click.echo("\n".join(rows))
    if len(shown) < len(steps):
        left, whole = len(steps) - len(shown), command(f"show {short(run.id)} --all")
        click.echo(click.style(f"{left:,} of {len(steps):,} steps are left out: {whole}", dim=True), err=True)


def _near(run: Run, steps: Sequence[Step]) -> Sequence[Step]:
    """The newest steps of code; of a plan those around the current one."""
    if len(steps) <= STEPS_MAX:
        return steps
    at = next((n for n, step in enumerate(steps) if step.key == run.cursor), 0) if run.kind == "plan" else 0
    first = max(0, min(at - STEPS_MAX // 2, len(steps) - STEPS_MAX))
    return steps[first : first + STEPS_MAX] if run.kind == "plan" else steps[-STEPS_MAX:]


def _facts(
    run: Run, steps: Sequence[Step], children: Sequence[Run], now: datetime
) -> Iterator[tuple[str, str]]:
    yield "status", _status(run, now)
    if run.waiting_on:
        yield "waits on", waits(run, now)
    yield "cursor", _cursor(run, steps)
    yield "attempts", _attempts(run, steps)
    if run.last_error:
        # Of a run that goes on it is history: its step may have succeeded since.
        name = "error" if run.status is Status.FAILED else "last error"
        yield name, clean(run.last_error.removeprefix("error: "))
    if run.progress is not None:
        yield "progress", progress_words(run)
    if run.cost_units or run.budget is not None:
        yield "cost", f"{run.cost:g}" + ("" if run.budget is None else f" of {run.budget:g}")
    yield from _when(run, now)
    yield from _who(run)
    yield from _chain(run)
    yield from _family(run, children)
    yield "params", _value(run.params_json)
    if run.status is Status.SUCCEEDED:
        yield "result", _value(run.result_json)


def _cursor(run: Run, steps: Sequence[Step]) -> str:
    """Of a plan number and name of the current step; of code the last one that is recorded."""
    if run.cursor is None:
        return "no step recorded yet"
    if run.kind == "plan":
        number = next((step.seq for step in steps if step.key == run.cursor), 0)
        return f"{number} {clean(run.cursor)} (of {len(steps)})"
    return f"{clean(run.cursor)} ({sum(step.status in SETTLED for step in steps)} recorded)"


def _attempts(run: Run, steps: Sequence[Step]) -> str:
    """Of a plan those of its current task, of a failed run those of the step that it failed by."""
    tries, most = run.attempt - run.crashes, run.max_attempts  # crashes use none up
    crashed = f", {run.crashes} crashed" if run.crashes else ""
    if run.status is Status.FAILED:
        return f"{tries} of {most}{crashed}"
    if run.kind != "plan":  # tries of its steps are counted on their rows
        return f"{tries} of {most} since its last progress{crashed}"
    step = next((one for one in steps if one.key == run.cursor and one.max_attempts is not None), None)
    return f"{tries} of {most if step is None else step.max_attempts or most}{crashed}"


def _status(run: Run, now: datetime) -> str:
    word = status_word(run.status)
    match run.status:
        case Status.LEASED:
            by = run.pause_asked_by
            asked = "" if by is None else f"; a pause is asked for{by_whom(by)}"
            return f"{word} by {clean(run.leased_by)}, lease ends {ago(run.lease_until, now)}{asked}"
        case Status.PENDING:
            return f"{word}, due {ago(run.run_at, now)}"
        case Status.SUCCEEDED | Status.FAILED | Status.CANCELLED if run.finished_at is not None:
            return f"{word} after {span((run.finished_at - run.created_at).total_seconds())}"
    return word


def _when(run: Run, now: datetime) -> Iterator[tuple[str, str]]:
    yield "started", f"{ago(run.created_at, now)} ({stamp(run.created_at)})"
    if run.finished_at is not None:
        yield "finished", f"{ago(run.finished_at, now)} ({stamp(run.finished_at)})"
    if run.timeout_at is not None and run.finished_at is None:
        yield "times out", f"{ago(run.timeout_at, now)} ({stamp(run.timeout_at)})"


def _who(run: Run) -> Iterator[tuple[str, str]]:
    """What differs from the usual, and nothing else."""
    if run.tenant != DEFAULT_TENANT:
        yield "tenant", clean(run.tenant)
    if run.key is not None:
        yield "key", clean(run.key)
    if run.priority != PRIORITY:
        yield "priority", str(run.priority)
    if run.limit_key is not None:
        yield "limit key", clean(run.limit_key)
    if run.labels:
        yield "labels", clean(_labels(run.labels), VALUE_MAX)


def _labels(labels: dict[str, Any]) -> str:
    if MARK in labels:
        return f"{UNREADABLE} ({labels[MARK]})"
    return " ".join(f"{key}={value}" for key, value in labels.items())


def _chain(run: Run) -> Iterator[tuple[str, str]]:
    if run.chain != run.id:
        yield "chain", f"{run.chain} is its first run"
    if run.present != run.id:
        yield "went on", f"the present run is {run.present}"


def _family(run: Run, children: Sequence[Run]) -> Iterator[tuple[str, str]]:
    if run.parent is not None:
        step = f" ({clean(run.parent_step)})" if run.parent_step else ""
        yield "parent", f"{run.parent}{step}"
    if children:
        shown = ", ".join(f"{short(one.id)} {status_word(one.status)}" for one in children[:CHILDREN_SHOWN])
        left = len(children) - CHILDREN_SHOWN
        many = f"{left} or more" if len(children) == CHILDREN_MAX else str(left)
        yield "children", shown + (f" and {many} others" if left > 0 else "")


def _value(text: Json | None) -> str:
    said = clean(raw_text(text if text is not None else "null"), VALUE_MAX)
    return said if len(said) <= VALUE_MAX else f"{said[:-1]}; --json prints all)"


def _cause(error: Error, steps: Sequence[Step]) -> Error:
    """The error of the step that made the run fail, which knows the place in the user's code."""
    guilty = [step.error for step in steps if step.key == error.step and step.error is not None]
    return read_error(guilty[0]) if guilty else error


def _print_trace(error: Error) -> None:
    for text in trace_lines(error.traceback):
        click.echo(click.style(f"    {clean(text)}", dim=True))


def trace_lines(traceback: str) -> list[str]:
    """The end of a traceback under a heading, without the frames of the engine: they say nothing."""
    kept: list[str] = []
    ours = False
    for text in traceback[-TRACE_MAX:].rstrip().splitlines():
        if text.lstrip().startswith("File "):
            ours = _ENGINE.search(text) is not None
        elif not text.startswith("    "):
            ours = False
        if not ours and text != _HEADING:
            kept.append(text)
    return [_HEADING, *kept[-TRACE_LINES:]] if kept else []


def _step_table(steps: Sequence[Step], now: datetime, *, numbered: bool) -> list[str]:
    """A plan's steps have numbers, from the start to the end; those of code stand as they were recorded."""
    head = ["STEP", "KIND", "STATUS", "TRIES", "TOOK", "WHEN", "OUTCOME"]
    rows = [_step_row(step, now) for step in steps]
    if numbered:
        rows = [[str(step.seq), *row] for step, row in zip(steps, rows, strict=True)]
    return table([*(["#"] if numbered else []), *head], rows, indent="  ")


def _step_row(step: Step, now: datetime) -> list[str]:
    took = (
        # One instant is the worker's, the other the store's: a quick step may seem to end before it began.
        span(max(step.finished_at - step.started_at, 0) / SECOND)
        if step.finished_at and step.started_at
        else "-"
    )
    at = step.finished_at or step.started_at
    when = ago(moment(at), now) if at else "-"
    tries = str(step.attempts) if step.attempts else "-"
    return [clean(step.key), step.kind, status_word(step.status), tries, took, when, outcome(step, now)]
