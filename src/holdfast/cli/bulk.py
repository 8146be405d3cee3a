"""Verbs on many runs: the options, the preview with its question, and the progress of the operation."""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar
from uuid import UUID

import click

from holdfast.cli.clients import Client
from holdfast.engine.app.bulk import BulkPreview
from holdfast.engine.app.handle import Handle
from holdfast.engine.bulk.asked import RATE, RATE_MAX, BulkReport
from holdfast.engine.bulk.workflow import BULK
from holdfast.engine.explain.explanation import Explanation
from holdfast.errors import RunCancelled, RunFailed
from holdfast.lifecycle import Status
from holdfast.records import ANY, Run, RunFilter
from holdfast.shown.data import run_data
from holdfast.shown.runs import news
from holdfast.shown.text import clean, counted, short
from holdfast.shown.times import ago

from . import session
from .follow import WORKER_CHECK_SECONDS, say
from .program import command
from .questions import confirm
from .terminal import coloured_status, cut, print_json, table
from .where import asked_filter, typed_filter

F = TypeVar("F", bound=Callable[..., Any])
Start = Callable[[Client, RunFilter, dict[str, Any]], Awaitable[Handle[Any]]]

LOOK_SECONDS, LINE_SECONDS = 0.5, 5.0  # between looks at the operation; between lines without a terminal
BAR = 30  # columns


def run_or_where(command_: F) -> F:
    """A RUN that may be left out, and the options of a bulk operation."""
    options = [
        click.argument("run", metavar="[RUN]", required=False),
        click.option(
            "--where",
            "texts",
            multiple=True,
            metavar="FILTER",
            help="Instead of RUN: all runs that match, as in --where status=failed; may be repeated. The "
            "filters are the options of `ls`.",
        ),
        click.option(
            "--all-tenants", is_flag=True, help="With --where: runs of all tenants, not of default."
        ),
        click.option(
            "--rate",
            type=click.IntRange(1, RATE_MAX),
            metavar="N",
            help=f"With --where: at most so many runs a second; {RATE} by default.",
        ),
        click.option("--no-wait", is_flag=True, help="With --where: start it, print its id, and return."),
    ]
    for option in reversed(options):
        command_ = option(command_)
    return command_


def is_bulk(run: str | None, texts: Sequence[str], **others: object) -> bool:
    """Return True for --where. Refuse both a RUN and --where, none of them, and options of the other form."""
    if run is not None and texts:
        raise click.UsageError("give a RUN, or --where to choose many runs, not both")
    if run is None and not texts:
        raise click.UsageError("name a RUN, or choose many runs with --where, as in --where status=failed")
    given = [name for name, value in others.items() if value]
    if run is not None and given:
        raise click.UsageError(f"--{given[0].replace('_', '-')} belongs to --where, which is not given")
    return run is None


def operate_on_many(
    verb: str,
    texts: Sequence[str],
    start: Start,
    *,
    by: str | None,
    rate: int | None,
    yes: bool,
    no_wait: bool,
    all_tenants: bool,
    as_json: bool,
) -> None:
    """Show which runs match, ask, start the operation, and watch it to its end. Exit with 1 when it was
    stopped, or has refused runs.
    """
    typed = typed_filter(texts)

    async def work(client: Client) -> bool:
        await session.refuse_plain(client, plain=False, hint="")
        where = await asked_filter(client, typed, all_tenants=all_tenants)
        preview = await client.bulk.preview(where, verb)
        if not preview.count and not preview.more:
            click.echo(f"no run {_of(where)} matches that `{verb}` could change", err=True)
            if as_json:
                print_json({"count": 0})
            return True
        if not yes:
            await _show(client, preview)
            confirm(f"{verb} {preview.shown} {'run' if preview.shown == '1' else 'runs'} {_of(where)}")
        options = {"rate": RATE if rate is None else rate, "by": session.operator(by)}
        handle = await start(client, where, options)
        if no_wait:
            await _started(client, handle, as_json=as_json)
            return True
        return await _watched(client, handle, as_json=as_json)

    if not session.run(work):
        sys.exit(1)


def _of(where: RunFilter) -> str:
    return "of all tenants" if where.tenant is ANY else f"of tenant {clean(where.tenant)}"


async def _show(client: Client, preview: BulkPreview) -> None:
    now = await client.now()
    rows = [
        [
            short(run.id),
            coloured_status(run.status),
            clean(run.type),
            ago(run.created_at, now),
            news(run, now),
        ]
        for run in preview.sample
    ]
    click.echo("\n".join(table(["RUN", "STATUS", "TYPE", "STARTED", "NEWS"], rows)), err=True)
    left = preview.count - len(preview.sample)
    if left > 0:
        click.echo(f"… and {left:,}{'+' if preview.more else ''} more", err=True)


async def _started(client: Client, handle: Handle[Any], *, as_json: bool) -> None:
    if as_json:
        print_json(run_data(await client.known(handle.id)))
    else:
        click.echo(str(handle.id))
        click.echo(f"started; `{command(f'bulk show {short(handle.id)}')}` shows how far it is", err=True)


async def _watched(client: Client, handle: Handle[Any], *, as_json: bool) -> bool:
    """Watch the operation and print its report; return False when it was stopped, or has refused runs."""
    try:
        run = await _until_end(client, handle.id)
    except asyncio.CancelledError:
        say(f"stopped watching; it goes on, and `holdfast bulk stop {short(handle.id)}` stops it")
        raise
    if as_json:
        print_json(run_data(run))
    elif run.status is Status.PAUSED:
        click.echo(
            f"{short(handle.id)} is stopped; `{command(f'bulk resume {short(handle.id)}')}` continues it"
        )
    if run.status is Status.FAILED:
        raise RunFailed(run.id, run.error)
    if run.status is Status.CANCELLED:
        raise RunCancelled(f"run {run.id} was cancelled")
    if run.status is not Status.SUCCEEDED:
        return False
    report = report_of(run)
    if not as_json:
        click.echo("\n".join(report_lines(report)))
    return not report.refused


async def _until_end(client: Client, run: UUID) -> Run:
    """Return the operation when it has ended, or was stopped; show its progress meanwhile."""
    line, looked_at, said = _Line(), time.monotonic(), ""
    try:
        while True:
            found = await client.present(run)
            line.show(found)
            if found.finished_at is not None or found.status is Status.PAUSED:
                return found
            if found.status is not Status.PENDING:
                looked_at = time.monotonic()
            elif time.monotonic() - looked_at > WORKER_CHECK_SECONDS / 2:
                looked_at, explanation = time.monotonic(), await client.explain(found.id)
                if explanation.reason != said:
                    line.clear()
                    say(_why(explanation))
                said = explanation.reason
            await asyncio.sleep(LOOK_SECONDS)
    finally:
        line.clear()


def _why(explanation: Explanation) -> str:
    """The reason why the operation waits. `tick` has slots of its own, but the same limits."""
    helps = explanation.reason in {"no_worker", "queued"}
    return clean(explanation.text) + (" `holdfast tick` executes it too." if helps else "")


class _Line:
    """The progress: a bar on a terminal, and a plain line now and then elsewhere."""

    def __init__(self) -> None:
        self._said, self._at = "", time.monotonic()

    def show(self, run: Run) -> None:
        words = progress_line(run.progress, bar=sys.stderr.isatty())
        if sys.stderr.isatty():
            columns = shutil.get_terminal_size().columns - 1
            click.echo("\r\x1b[K" + cut(words, columns), err=True, nl=False)
        elif words and words != self._said and time.monotonic() - self._at >= LINE_SECONDS:
            self._said, self._at = words, time.monotonic()
            click.echo(words, err=True)

    def clear(self) -> None:
        if sys.stderr.isatty():
            click.echo("\r\x1b[K", err=True, nl=False)


def progress_line(progress: Any, *, bar: bool) -> str:
    """`[#####-----] 1,200 of 5,000 runs (24%): 1,190 done, 10 refused`."""
    done = progress.get("done") if isinstance(progress, dict) else None
    if not isinstance(done, int):
        return "waiting for a worker …" if bar else ""
    total, note = progress.get("total"), clean(progress.get("note") or "")
    if not isinstance(total, int) or total <= 0:
        return f"{counted(done, 'run')}: {note}"
    share = min(1.0, done / total)
    filled = round(BAR * share)
    drawn = f"[{'#' * filled}{'-' * (BAR - filled)}] " if bar else ""
    return f"{drawn}{done:,} of {counted(total, 'run')} ({share:.0%}): {note}"


def report_of(run: Run) -> BulkReport:
    """The report of an operation that has ended."""
    report: BulkReport = BULK.result.decode(run.result_json or "null", f"the result of run {run.id}")
    return report


def report_lines(report: BulkReport) -> list[str]:
    """The report in words: one line for the count, one for each reason."""
    lines = [f"{counted(report.done, 'run')} done"]
    for word, counts in (("refused", report.refused), ("left out", report.left_out)):
        for reason, count in counts.items():
            ids = ", ".join(short(one) for one in report.sample.get(reason, ()))
            lines.append(
                f"{counted(count, 'run')} {word}: {clean(reason)}{f' (such as {ids})' if ids else ''}"
            )
    return lines
