"""`holdfast doctor`."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from holdfast.cli import session
from holdfast.cli.options import json_option, store_option
from holdfast.cli.program import pastable
from holdfast.cli.terminal import print_json, wrapped
from holdfast.engine.explain.doctor import SHOWN, Report
from holdfast.errors import SchemaMismatch
from holdfast.records import Finding
from holdfast.shown.text import clean, counted, short

_COLOURS = {"ok": "green", "warning": "yellow", "error": "red"}
_WIDTH = len("warning") + 2


@click.command()
@json_option
@store_option()
def doctor(*, as_json: bool) -> int:
    """Check a store for problems, and say how to fix them.

    A warning goes away once enough workers run; an error does not. The exit code is 1 if there is an error.
    """
    try:
        report = session.run(lambda client: client.doctor())
    except SchemaMismatch as error:
        what = "this version of Holdfast cannot use the store; nothing else was checked"
        report = Report(datetime.now(UTC), (Finding(level="error", what=what, mend=str(error)),))
    _print(report, as_json=as_json)
    return int(report.level == "error")


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
