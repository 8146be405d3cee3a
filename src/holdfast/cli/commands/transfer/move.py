"""`holdfast move`: runs from one store into another, while workers run at both ends."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from holdfast.cli import session
from holdfast.cli.commands.ls import filter_of, ls
from holdfast.cli.options import json_option
from holdfast.cli.questions import at_a_terminal, confirm, counter, yes_option
from holdfast.cli.terminal import print_json
from holdfast.engine.app.client import StoreClient
from holdfast.errors import Conflict
from holdfast.lifecycle import spoken_status
from holdfast.records import RunFilter
from holdfast.sealing.encrypt import ENVIRONMENT
from holdfast.shown.text import clean, counted
from holdfast.stores import shown
from holdfast.transfer.move_reports import MovePreview, MoveReport, UndoneMove

from .files import FILTERS, SHOWN
from .stopping import AGAIN, on_the_way, told_when_stopped


@click.command()
@click.option("--from", "source", metavar="URL", required=True, help="The store that the runs leave.")
@click.option("--to", "target", metavar="URL", required=True, help="The store that they go to.")
@click.option("--preview", is_flag=True, help="Count the runs that would move, and change nothing.")
@click.option("--pace", type=click.FloatRange(min=0, min_open=True), help="At most so many runs a second.")
@click.option(
    "--reseal", is_flag=True, help="Open encrypted values, and encrypt them anew for the other store."
)
@click.option(
    "--from-keys",
    metavar="VARIABLE",
    default=ENVIRONMENT,
    help=f"The variable with the keys of --from, instead of {ENVIRONMENT}; none: it is not encrypted.",
)
@click.option(
    "--to-keys", metavar="VARIABLE", default=ENVIRONMENT, help="The variable with the keys of --to; or none."
)
@click.option(
    "--undo", is_flag=True, help="Let runs that are on their way go on at --from, if --to has not got them."
)
@click.option("--lost", is_flag=True, help="With --undo, if --to is gone for good: do not ask it.")
@yes_option
@json_option
def move(
    source: str,
    target: str,
    *,
    preview: bool,
    pace: float | None,
    reseal: bool,
    from_keys: str,
    to_keys: str,
    undo: bool,
    lost: bool,
    yes: bool,
    as_json: bool,
    **_filters: Any,
) -> None:
    """Move runs from one store into another.

    No step is executed at both. Workers may run at both ends. Each run is stopped at --from, written and
    compared at --to, and goes on there. If the command is stopped or killed, start it again: it continues.
    Without filters all runs move, with definitions, limits and schedules; with filters those that match,
    with their parents and children.
    """
    _check_options(preview=preview, undo=undo, lost=lost, other_keys=from_keys != to_keys, reseal=reseal)
    context = click.get_current_context()
    typed = any(
        context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE for name in FILTERS
    )
    if not (preview or undo or yes):
        confirm(f"runs leave {shown(source)} and go on at {shown(target)}")

    async def work(here: StoreClient, there: StoreClient) -> Any:
        where: RunFilter | None = await filter_of(here, context.params) if typed else None
        if preview:
            return await here.preview_move(there, where)
        who = session.operator(None)
        if undo:
            with told_when_stopped(AGAIN):
                return await here.undo_move(there, where, lost=lost, by=who)
        total = (await here.preview_move(there, where)).total if at_a_terminal() else None
        how = f"{AGAIN}; `--undo` brings runs back that have not left"
        with told_when_stopped(how), counter("moved", total) as update:
            return await here.move(there, where, pace=pace, reseal=reseal, by=who, progress=update)

    report = session.run_on_two(
        source, target, work, create=not undo, touch=not (preview or undo), keys=(from_keys, to_keys)
    )
    if as_json:
        print_json(msgspec.to_builtins(report))
    else:
        click.echo("\n".join(_told(report)))
    if isinstance(report, MoveReport) and report.refused_runs:
        raise Conflict(
            f"{counted(report.refused_runs, 'run')} refused. Runs that have not left continue at the old "
            "store. A run that has left and has not arrived continues nowhere: start the move again"
        )


move.params[2:2] = [one for one in ls.params if one.name in FILTERS]


def _check_options(*, preview: bool, undo: bool, lost: bool, other_keys: bool, reseal: bool) -> None:
    if lost and not undo:
        raise click.UsageError("--lost goes with --undo")
    if preview and undo:
        raise click.UsageError("--preview counts what would move: give it without --undo")
    if other_keys and not (reseal or undo or preview):
        raise click.UsageError("the two stores have other keys: add --reseal, which encrypts values anew")


def _told(report: MovePreview | MoveReport | UndoneMove) -> list[str]:
    if isinstance(report, MovePreview):
        return _preview(report)
    if isinstance(report, MoveReport):
        return _moved(report)
    lines = [f"{counted(len(report.runs), 'run')} came back"]
    if report.left:
        lines.append(f"{counted(report.left, 'run')} left for good before: start the move again to end it")
    return [*lines, clean(report.note)] if report.note else lines


def _preview(found: MovePreview) -> list[str]:
    more = ", with their parents, children and chains" if found.runs else ""
    lines = [f"{counted(found.runs, 'run')} would move{more}"]
    lines += [f"  {spoken_status(status)}: {number:,}" for status, number in sorted(found.by_status.items())]
    if found.on_the_way:
        lines.append(f"{counted(found.on_the_way, 'run')} on the way already")
    return lines


def _moved(report: MoveReport) -> list[str]:
    rate = f", {report.moved / report.seconds:,.0f} a second" if report.seconds and report.moved else ""
    carried = f"{counted(report.events, 'event')}, {counted(report.schedules, 'schedule')}"
    lines = [f"{counted(report.moved, 'run')} moved, {report.verified:,} compared, {carried}{rate}"]
    lines += [
        f"run {one.run}: {clean(one.reason)}" for one in (*report.refused[:SHOWN], *report.missing[:SHOWN])
    ]
    lines += on_the_way(report.elsewhere)
    lines += [f"not changed there: {clean(one)}" for one in report.notes[:SHOWN]]
    return lines
