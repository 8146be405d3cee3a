"""`holdfast doctor` and `holdfast explain`: what is wrong with a store, and why a run is not moving."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from holdfast.cli import session
from holdfast.cli.clients import Client
from holdfast.cli.find import find
from holdfast.cli.options import json_option, run_argument, store_option
from holdfast.cli.program import pastable
from holdfast.cli.terminal import print_json, wrapped
from holdfast.engine.app.client import StoreClient
from holdfast.engine.explain.doctor import SHOWN, Report
from holdfast.engine.explain.recounting import rebuilt, recounted
from holdfast.errors import SchemaMismatch
from holdfast.records import Finding
from holdfast.shown.data import explanation_data
from holdfast.shown.text import clean, counted, short

_COLOURS = {"ok": "green", "warning": "yellow", "error": "red"}
_WIDTH = len("warning") + 2
TEXT_MAX = 10_000  # characters of an explanation


@click.command()
@click.option(
    "--recount", is_flag=True, help="Also compare kept counts and sets with all runs; this takes time."
)
@click.option("--repair", is_flag=True, help="The same, and correct what differs.")
@json_option
@store_option()
def doctor(*, recount: bool, repair: bool, as_json: bool) -> int:
    """Check a store for problems, and say how to fix them.

    A warning goes away once enough workers run; an error does not. The exit code is 1 if there is an error.
    """
    try:
        if recount or repair:
            report = session.run_on_store(lambda client: _with_recount(client, repair=repair))
        else:
            report = session.run(lambda client: client.doctor())
    except SchemaMismatch as error:
        what = "this version of Holdfast cannot use the store; nothing else was checked"
        report = Report(datetime.now(UTC), (Finding(level="error", what=what, mend=str(error)),))
    _print(report, as_json=as_json)
    return int(report.level == "error")


async def _with_recount(client: StoreClient, *, repair: bool) -> Report:
    # Sets first: runs are counted by one of them.
    sets = await rebuilt(client.store, repair=repair)
    report, counts = await client.doctor(), await recounted(client.store, repair=repair)
    return Report(report.at, (*report.findings, *sets, counts))


def _print(report: Report, *, as_json: bool) -> None:
    if as_json:
        print_json({"level": report.level, "at": report.at, "findings": report.findings})
    else:
        click.echo("\n".join(line for one in report.findings for line in _lines(one)))
        click.echo(_summary(report))


def _lines(finding: Finding) -> list[str]:
    mark = click.style(finding.level, fg=_COLOURS.get(finding.level)) + " " * (_WIDTH - len(finding.level))
    more = ["…"] if len(finding.runs) == SHOWN else []
    runs = f" ({', '.join([*map(short, finding.runs), *more])})" if finding.runs else ""
    lines = [f"{mark}{clean(finding.what)}{runs}"]
    if finding.mend:
        fix = f"to fix: {pastable(clean(finding.mend))}"
        lines += [click.style(line, dim=True) for line in wrapped(fix, _WIDTH)]
    return lines


def _summary(report: Report) -> str:
    levels = [one.level for one in report.findings]
    counts = [(levels.count(level), level) for level in ("error", "warning")]
    return " and ".join(counted(count, level) for count, level in counts if count) or "no problems found"


@click.command()
@run_argument
@json_option
@store_option()
def explain(run: str, *, as_json: bool) -> None:
    """Say why a run is not moving.

    The text names what the run waits for, and the command that helps.
    """
    session.run(lambda client: _explain(client, run, as_json=as_json))


async def _explain(client: Client, run_text: str, *, as_json: bool) -> None:
    run = await find(client, run_text, deleted=True)
    if run.deleted_at is None:
        run = await client.present(run.id)
    explanation = await client.explain(run.id)
    if as_json:
        print_json(explanation_data(run, explanation))
    else:
        click.echo(pastable(clean(explanation.text, TEXT_MAX)))
