"""`holdfast export` and `holdfast import`: runs into a file, and from a file into any store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec

from holdfast.cli import session
from holdfast.cli.commands.ls import filter_of, ls
from holdfast.cli.options import by_option, json_option, store_option
from holdfast.cli.program import command
from holdfast.cli.questions import at_a_terminal, confirm, counter, yes_option
from holdfast.cli.terminal import print_json
from holdfast.engine.app.client import StoreClient
from holdfast.errors import Conflict, UsageError
from holdfast.records.transfer import IMPORT
from holdfast.shown.text import clean, counted
from holdfast.transfer.exporting import ExportReport
from holdfast.transfer.families import number_of
from holdfast.transfer.importing import ImportReport
from holdfast.transfer.lines import runs_in
from holdfast.transfer.receipts import HandOver

from .stopping import AGAIN, on_the_way, told_when_stopped


class _File(click.Path):
    """The name of a file. Other programs take `-` for standard output; here it would be a file."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value in {"", "-"}:
            self.fail(f"give the name of a file, not {value!r}", param, ctx)
        return super().convert(value, param, ctx)


FILE = _File(dir_okay=False, path_type=Path)
SHOWN = 10  # refused runs and damaged lines that are printed
# The filters of `ls` that choose what is exported.
FILTERS = ("statuses", "type_", "tenant", "key", "parent", "roots", "label", "error", "since", "until", "by",
           "deleted")  # fmt: skip


@click.command()
@click.argument("file", type=FILE)
@click.option("--move", is_flag=True, help="The runs leave this store: stop each before it is written.")
@click.option(
    "--confirm",
    is_flag=True,
    help="Record that the runs of FILE have left, after the target has imported it.",
)
@click.option("--undo", is_flag=True, help="Let the runs of FILE go on here that have not left for good.")
@click.option(
    "--lost", is_flag=True, help="With --undo, if FILE is lost: do it for all runs that left for a file."
)
@click.option("--mask", is_flag=True, help="Hide params, results and payloads, in a copy for debugging.")
@click.option("--resume", is_flag=True, help="Go on with a file whose export was ended.")
@json_option
@store_option()
def export(
    file: Path,
    *,
    move: bool,
    confirm: bool,
    undo: bool,
    lost: bool,
    mask: bool,
    resume: bool,
    as_json: bool,
    **_filters: Any,
) -> None:
    """Write runs into a new FILE, which `import` reads into any store.

    Without filters all runs are written, deleted ones too; with filters those that match. The runs are not
    changed, and workers may go on. Events that are kept, definitions, registry, limits and schedules come
    along; API keys, signing keys and webhooks do not. Values of an encrypted store stay encrypted.

    Runs move by four commands: `export FILE --move` here, `import FILE` at the target, `export FILE
    --confirm` here, `import FILE --release` there. FILE.taken and FILE.left go along with FILE.
    """
    if lost and not undo:
        raise click.UsageError("--lost goes with --undo")
    context = click.get_current_context()
    typed = any(
        context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE for name in FILTERS
    )
    if confirm or undo:
        if move or resume or mask or typed or (confirm and undo):
            raise click.UsageError("--confirm and --undo stand alone: they are for all runs of FILE")
        _hand_over(file, undo=undo, lost=lost, as_json=as_json)
        return
    name = clean(str(file))
    stopped = f"{name} is not complete: continue it by the same command with --resume"
    if move:
        stopped += "; its runs are stopped until then, or until `--undo`"

    async def work(client: StoreClient) -> None:
        where = await filter_of(client, context.params) if typed else None
        total = await number_of(client.store, where) if at_a_terminal() else None
        with told_when_stopped(stopped), counter("exported", total) as update:
            report = await client.export(
                file, where, move=move, mask=mask, resume=resume, by=session.operator(None), progress=update
            )
        if as_json:
            print_json(msgspec.to_builtins(report))
        else:
            click.echo(_exported(report, file))
            for line in on_the_way(report.elsewhere):
                click.echo(line)
            if move:
                click.echo(
                    f"now bring {name} to the target; there: holdfast import {name}; "
                    f"then, here: holdfast export {name} --confirm"
                )

    session.run_on_store(work)


def _hand_over(file: Path, *, undo: bool, lost: bool, as_json: bool) -> None:
    async def work(client: StoreClient) -> Any:
        by = session.operator(None)
        with told_when_stopped(AGAIN):
            if undo:
                return await client.undo_export(file, lost=lost, by=by)
            return await client.confirm_export(file, by=by)

    done = session.run_on_store(work)
    if as_json:
        print_json(msgspec.to_builtins(done))
    elif undo:
        click.echo(f"{counted(len(done), 'run')} came back")
    else:
        click.echo(f"{counted(done.runs, 'run')} left, {done.back:,} came back")
        if done.events:
            click.echo(f"{counted(done.events, 'event')} that came since: in {clean(str(file))}.left")
        name = clean(str(file))
        click.echo(f"now bring {name}.left to the target; there: holdfast import {name} --release")


export.params[1:1] = [one for one in ls.params if one.name in FILTERS]


def _exported(report: ExportReport, file: Path) -> str:
    size = f"{report.bytes:,} bytes"
    return (
        f"{counted(report.runs, 'run')} and {counted(report.events, 'event')} in {clean(str(file))}, {size}"
    )


@click.command("import")
@click.argument("file", type=FILE)
@click.option(
    "--skip-damaged", is_flag=True, help="Leave out damaged lines; without it the first one ends it."
)
@click.option(
    "--no-hold",
    is_flag=True,
    help="Let open runs go on at once, and send their messages: only if the old store has stopped for good.",
)
@click.option(
    "--release", is_flag=True, help="Let runs that moved go on here: their source has written FILE.left."
)
@by_option
@yes_option
@json_option
@store_option()
def import_(
    file: Path, *, skip_damaged: bool, no_hold: bool, release: bool, by: str, yes: bool, as_json: bool
) -> None:
    """Read a FILE of `export` into the store.

    Open runs are paused: `holdfast resume RUN` lets one go on where it was, `holdfast resume --where
    status=paused` all. Their messages that are not sent are dead, and schedules are paused. A run that is
    there already is not written again, so an import that was ended is simply started again.

    Runs of `export --move` wait here, as cancelled ones, until `import FILE --release`.
    """
    if not _is_there(file):  # or the store would be made for nothing
        raise UsageError(f"{file} cannot be read: there is no such file")
    if release:
        if skip_damaged or no_hold:
            raise click.UsageError("--release stands alone: it imports nothing")
        _release(file, by, as_json=as_json)
        return
    if no_hold and not yes:
        confirm(
            "open runs go on here at once; if workers of the old store execute them too, steps are executed "
            "twice"
        )

    async def work(client: StoreClient) -> ImportReport:
        total = runs_in(file) if at_a_terminal() else None
        with told_when_stopped(AGAIN), counter("imported", total) as update:
            return await client.import_(
                file, hold=not no_hold, skip_damaged=skip_damaged, by=by or IMPORT, progress=update
            )

    report = session.run_on_store(work, create=True)
    if as_json:
        print_json(msgspec.to_builtins(report))
    else:
        click.echo("\n".join(_imported(report, file, hold=not no_hold)))
    if report.refused_runs:
        raise Conflict(f"{counted(report.refused_runs, 'run')} refused")


def _is_there(file: Path) -> bool:
    try:
        return file.exists()
    except OSError:
        return False  # its folder cannot be read


def _release(file: Path, by: str, *, as_json: bool) -> None:
    async def work(client: StoreClient) -> HandOver:
        with told_when_stopped(AGAIN):
            return await client.release_import(file, by=session.operator(by))

    done = session.run_on_store(work)
    if as_json:
        print_json(msgspec.to_builtins(done))
    else:
        late = f", {counted(done.events, 'event')} that came late" if done.events else ""
        click.echo(f"{counted(done.runs, 'run')} released{late}")
    if done.missing:
        raise Conflict(
            f"{counted(len(done.missing), 'run')} left the source and cannot go on here, among them "
            f"{done.missing[0]}: were they deleted, or did they end and were purged?"
        )


def _imported(report: ImportReport, file: Path, *, hold: bool) -> list[str]:
    first = f"{counted(report.imported, 'run')} imported"
    if report.there:
        first += f", {report.there:,} there already"
    if report.gone:
        first += f", {report.gone:,} imported before and purged since"
    lines = [f"{first}, {counted(report.events, 'event')}"]
    if report.waits:
        name = clean(str(file))
        lines.append(
            f"they wait; now bring {name}.taken to the source; there: holdfast export {name} --confirm"
        )
    elif hold and report.imported:
        lines.append(f"open ones are paused: `{command('resume RUN')}` lets one go on")
    if report.schedules:
        resumes = command("schedule resume NAME")
        lines.append(f"{counted(report.schedules, 'schedule')} paused: `{resumes}` resumes one")
    lines += [f"run {one.run}: {clean(one.reason)}" for one in report.refused[:SHOWN]]
    lines += [f"skipped: {clean(one)}" for one in report.damaged[:SHOWN]]
    if report.missing:
        lines.append(clean(report.missing))
    lines += [f"not changed here: {clean(one)}" for one in report.notes[:SHOWN]]
    return lines
