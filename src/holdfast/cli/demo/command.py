"""`holdfast demo`."""

from __future__ import annotations

import asyncio
import shlex
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from types import FrameType

import click

from holdfast.cli.program import program_name, short_path
from holdfast.errors import HoldfastError
from holdfast.shown.text import counted, short

from . import app as order_app_source
from .checks import checks
from .fill import filled
from .scenario import Scenario, ScenarioFailed
from .timeline import timeline


@click.command()
@click.option(
    "--keep", type=click.Path(file_okay=False, path_type=Path), metavar="DIR",
    help="Keep the database, the ledger and the logs in this folder instead of a temporary one.",
)  # fmt: skip
@click.option(
    "--fill", is_flag=True,
    help="Instead, make a store with some hundred runs in all statuses, to look at its pages.",
)  # fmt: skip
def demo(keep: Path | None, *, fill: bool) -> None:
    """See a workflow survive a killed process.

    The demo starts a worker, kills it with SIGKILL in the middle of an order, and starts another one. Then it
    checks, by a ledger outside the store, that no recorded step ran again. It takes about ten seconds. The
    exit code is 0 only if all checks pass.
    """
    folder = _folder(keep)
    if fill:
        _fill(folder)
        return
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupted)
    click.echo("A shop handles an order; the process that executes it is killed in the middle.\n")
    scenario = Scenario(folder)
    try:
        asyncio.run(scenario.execute())
    except (ScenarioFailed, HoldfastError) as error:
        click.echo(
            f"\n{click.style('FAILED', fg='red')}: {error}\nDatabase, ledger and logs are in {folder}",
            err=True,
        )
        sys.exit(1)
    except KeyboardInterrupt:
        if keep is None:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    if not _print_checks(scenario):
        click.echo(f"\nDatabase, ledger and logs are in {folder}", err=True)
        sys.exit(1)
    _print_next(scenario)


def _fill(folder: Path) -> None:
    url, program = f"sqlite:///{folder / 'demo.db'}", program_name()
    click.echo("Some hours of a shop are played; this takes about half a minute.")
    number = asyncio.run(filled(url))
    click.echo(f"{counted(number, 'run')} are in {folder / 'demo.db'}\nTry next:")
    _print_commands(
        url,
        [
            (f"{program} serve", "the pages, at http://127.0.0.1:8080/ui/"),
            (f"{program} ls --status failed", "the runs that failed"),
            (f"{program} dev holdfast.cli.demo.shop:app", "a worker and the pages: open runs go on"),
        ],
    )


def _interrupted(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _folder(keep: Path | None) -> Path:
    if keep is None:
        return Path(tempfile.mkdtemp(prefix="holdfast-demo-"))
    try:
        keep.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise click.UsageError(
            f"the folder {keep} cannot be created: {error.strerror}; choose another one"
        ) from None
    if (keep / "demo.db").exists():
        raise click.UsageError(
            f"{keep} has the files of an earlier demo: choose another folder, or remove it"
        )
    return keep.resolve()


def _print_checks(scenario: Scenario) -> bool:
    """Print the timeline and the checks; return whether all are true."""
    found = list(checks(scenario))
    if scenario.run is not None and scenario.run.finished_at is not None:
        click.echo("")
        click.echo("\n".join(f"  {line}" for line in timeline(scenario)))
    click.echo("\nChecked against a ledger that the steps write outside the store:")
    for check in found:
        mark = (
            click.style("  ok    ", fg="green")
            if check.true
            else click.style("  FALSE ", fg="red", bold=True)
        )
        click.echo(mark + check.text.replace("\n", "\n        "))
        if not check.true:
            click.echo(f"        evidence: {check.evidence}")
    return all(check.true for check in found)


def _print_next(scenario: Scenario) -> None:
    run, program = short(scenario.run_id or ""), program_name()
    click.echo(f"\nThe code: {short_path(Path(order_app_source.__file__))}\nTry next:")
    rows = [
        (f"{program} show {run}", "the run and its recorded steps"),
        (f"{program} trail {run}", "everything that happened to the run"),
        (f"{program} rewind {run} pack", "forget the step pack and all later ones"),
        (f"{program} dev holdfast.cli.demo.app:app", "a worker: watch it execute pack again"),
    ]
    _print_commands(scenario.url, rows)
    click.echo(f"The files are in {scenario.folder}; you may remove that folder.")


def _print_commands(url: str, rows: list[tuple[str, str]]) -> None:
    click.echo(f"  export HOLDFAST_STORE={shlex.quote(url)}")
    width = max(len(command) for command, _ in rows)
    for command, meaning in rows:
        click.echo(f"  {command:<{width}}  {click.style(meaning, dim=True)}")
