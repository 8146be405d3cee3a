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
from holdfast.shown.text import short

from . import app as order_app_source
from .checks import checks
from .scenario import Scenario, ScenarioFailed
from .timeline import timeline


@click.command()
@click.option(
    "--keep", type=click.Path(file_okay=False, path_type=Path), metavar="DIR",
    help="Keep the database, the ledger and the logs in this folder instead of a temporary one.",
)  # fmt: skip
def demo(keep: Path | None) -> None:
    """See a workflow survive a killed process.

    The demo starts a worker, kills it with SIGKILL in the middle of an order, and starts another one. Then it
    checks, by a ledger outside the store, that no recorded step ran again. It takes about ten seconds. The
    exit code is 0 only if all checks pass.
    """
    folder = _folder(keep)
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
    click.echo(f"  export HOLDFAST_STORE={shlex.quote(scenario.url)}")
    rows = [
        (f"{program} show {run}", "the run and its recorded steps"),
        (f"{program} trail {run}", "everything that happened to the run"),
        (f"{program} rewind {run} pack", "forget the step pack and all later ones"),
        (f"{program} dev holdfast.cli.demo.app:app", "a worker: watch it execute pack again"),
    ]
    width = max(len(command) for command, _ in rows)
    for command, meaning in rows:
        click.echo(f"  {command:<{width}}  {click.style(meaning, dim=True)}")
    click.echo(f"The files are in {scenario.folder}; you may remove that folder.")
