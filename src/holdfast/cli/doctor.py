"""`holdfast doctor`."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from holdfast.engine.doctor import SHOWN, Report
from holdfast.errors import SchemaMismatch
from holdfast.records import Finding

from . import session
from .find import short
from .options import json_option, store_option
from .program import pastable
from .shape import print_json
from .text import clean, wrapped

_COLOURS = {"ok": "green", "warning": "yellow", "error": "red"}
_WIDTH = len("warning") + 2


@click.command()
@json_option
@store_option()
def doctor(*, as_json: bool) -> int:
    """Look for what is wrong with a store, and say how to mend it.

    Exit code 1 when there is an error; warnings go away once workers and keepers are there.
    """
    try:
        report = session.run(lambda client: client.doctor())
    except SchemaMismatch as error:
        what = "this library cannot use the store as it is: nothing else was looked at"
        report = Report(datetime.now(UTC), (Finding(level="error", what=what, mend=str(error)),))
    return _tell(report, as_json=as_json)


def _tell(report: Report, *, as_json: bool) -> int:
    if as_json:
        print_json({"level": report.level, "at": report.at, "findings": report.findings})
    else:
        click.echo("\n".join(line for one in report.findings for line in _lines(one)))
        click.echo(_summary(report))
    return int(report.level == "error")


def _lines(one: Finding) -> list[str]:
    mark = click.style(one.level, fg=_COLOURS.get(one.level)) + " " * (_WIDTH - len(one.level))
    more = ["…"] if len(one.runs) == SHOWN else []
    runs = f" ({', '.join([*map(short, one.runs), *more])})" if one.runs else ""
    lines = [f"{mark}{clean(one.what)}{runs}"]
    if one.mend:
        mend = f"to mend it: {pastable(clean(one.mend))}"
        lines += [click.style(line, dim=True) for line in wrapped(mend, _WIDTH)]
    return lines


def _summary(report: Report) -> str:
    levels = [one.level for one in report.findings]
    counts = [(levels.count(level), level) for level in ("error", "warning")]
    said = [f"{count} {level}{'s' * (count != 1)}" for count, level in counts if count]
    return " and ".join(said) or "all is well"
