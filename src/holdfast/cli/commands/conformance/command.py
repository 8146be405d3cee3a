"""`holdfast conformance`: judge a worker program by the worker protocol."""

from __future__ import annotations

import asyncio
import difflib
import signal
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

import click

from holdfast.cli.options import json_option
from holdfast.http import extra_installed
from holdfast.shown.text import clean

if TYPE_CHECKING:
    from holdfast.conformance.running import Outcome

T = TypeVar("T")

TRAFFIC_MAX = 2_000  # characters of one line of traffic


@click.command()
@click.argument("command", nargs=-1, metavar="[--] COMMAND…")
@click.option("--only", "only", multiple=True, metavar="CASE", help="Only this case; may be repeated.")
@click.option("--list", "as_list", is_flag=True, help="List the cases, and run none.")
@click.option(
    "--lease-ms",
    type=click.IntRange(500, 30_000),
    default=1_000,
    metavar="N",
    help="The lease time of the worker, in milliseconds; 1000 by default.",
)
@click.option(
    "--limit",
    type=click.FloatRange(1, 600),
    default=20.0,
    metavar="SECONDS",
    help="The time of one case; 20 by default.",
)
@click.option(
    "--jobs",
    type=click.IntRange(1, 32),
    default=1,
    metavar="N",
    help="Run so many cases at once, each with a worker of its own; 1 by default.",
)
@click.option("--show-output", is_flag=True, help="Show what the program prints.")
@click.option("--show-traffic", is_flag=True, help="Show the requests of each case that fails.")
@json_option
def conformance(
    command: tuple[str, ...],
    only: tuple[str, ...],
    *,
    as_list: bool,
    lease_ms: int,
    limit: float,
    jobs: int,
    show_output: bool,
    show_traffic: bool,
    as_json: bool,
) -> None:
    """Judge a worker program by the worker protocol.

    COMMAND starts the program, in any language. It needs one workflow, which docs/conformance.md describes.
    The kit starts a server of its own on this machine, gives the program runs, loses and doubles answers,
    refuses requests, kills the program, and says in words what it gets wrong. The exit code is 0 when every
    case has passed, else 1.
    """
    with extra_installed():
        from holdfast.conformance.case import CASES
        from holdfast.conformance.running import run_cases
        from holdfast.conformance.stage import Options

        from . import report
    if as_list:
        report.print_cases({one.name: one.title for one in CASES.values()}, as_json=as_json)
        return
    if not command:
        raise click.UsageError("give the command of the worker, as in `holdfast conformance -- ./my-worker`")
    names = [name for name in CASES if name in only] if only else list(CASES)
    for name in only:
        if name not in CASES:
            near = difflib.get_close_matches(name, CASES, n=1)
            hint = f"did you mean {near[0]}?" if near else "`holdfast conformance --list` lists them"
            raise click.UsageError(f"there is no case {name!r}; {hint}")

    def told(outcome: Outcome) -> None:
        _say(report.progress_line(outcome))
        if show_traffic:
            for line in outcome.traffic:
                _say(f"    {clean(line, TRAFFIC_MAX)}")

    options = Options(
        command=command, lease_ms=lease_ms, case_seconds=limit, show=_say if show_output else _drop
    )
    outcomes = asyncio.run(_ended_by_signal(run_cases(options, names, told, jobs)))
    report.print_report(outcomes, as_json=as_json)
    if any(one.verdict != report.PASSED for one in outcomes):
        raise click.exceptions.Exit(1)


async def _ended_by_signal(work: Coroutine[Any, Any, T]) -> T:
    """Do the work; SIGTERM ends it as Ctrl-C does, so that no worker is left behind."""
    task = asyncio.ensure_future(work)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        raise click.Abort from None


def _say(line: str) -> None:
    click.echo(line, err=True)


def _drop(_line: str) -> None:
    pass
