"""The report of the conformance kit: a line for each case, sentences for mistakes, or JSON."""

from __future__ import annotations

from collections.abc import Sequence

import click
import msgspec

from holdfast.cli.terminal import print_json, table, wrapped
from holdfast.conformance.running import Outcome
from holdfast.shown.text import clean, counted

SENTENCE_MAX = 2_000
PASSED, FAILED, NOT_RUN = "passed", "failed", "not run"
COLOURS = {PASSED: "green", FAILED: "red", NOT_RUN: "yellow"}


def print_report(outcomes: Sequence[Outcome], *, as_json: bool) -> None:
    """Print all outcomes."""
    if not as_json:
        print_table(outcomes)
        return
    rows = [msgspec.to_builtins(one) for one in outcomes]
    cases = [{name: value for name, value in row.items() if name != "traffic"} for row in rows]
    print_json({"passed": all(one.verdict == PASSED for one in outcomes), "cases": cases})


def print_cases(titles: dict[str, str], *, as_json: bool) -> None:
    """Print the names of the cases, and what a right worker does in each."""
    if as_json:
        print_json([{"case": name, "title": title} for name, title in titles.items()])
        return
    for line in table(["CASE", "A RIGHT WORKER"], list(titles.items())):
        click.echo(line)


def print_table(outcomes: Sequence[Outcome]) -> None:
    """Print one line for each case, then a sentence for each mistake."""
    rows = [[_coloured(one.verdict), f"{one.seconds:.1f} s", one.case, one.title] for one in outcomes]
    for line in table(["VERDICT", "TIME", "CASE", "A RIGHT WORKER"], rows):
        click.echo(line)
    failed = [one for one in outcomes if one.verdict == FAILED]
    for one in failed:
        click.echo(f"\n{click.style(one.case, bold=True)}: {one.mistake}")
        for line in wrapped(clean(one.says, SENTENCE_MAX), 2):
            click.echo(line)
        click.echo(f"  see {one.see}")
    passed = sum(one.verdict == PASSED for one in outcomes)
    not_run = len(outcomes) - passed - len(failed)
    click.echo(f"\n{counted(passed, 'case')} passed, {len(failed)} failed, {not_run} not run")


def progress_line(outcome: Outcome) -> str:
    """Return the line that is printed when a case has ended."""
    pad = " " * (len(NOT_RUN) - len(outcome.verdict))
    return f"{_coloured(outcome.verdict)}{pad}  {outcome.case} ({outcome.seconds:.1f} s)"


def _coloured(verdict: str) -> str:
    return click.style(verdict, fg=COLOURS[verdict])
