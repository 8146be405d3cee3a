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

from holdfast.cli.find import short
from holdfast.cli.program import nearest, spoken
from holdfast.errors import HoldfastError

from . import app as order_app_source
from .play import Play, PlayFailed
from .timeline import timeline
from .verdict import claims


@click.command()
@click.option(
    "--keep", type=click.Path(file_okay=False, path_type=Path), metavar="DIR",
    help="Put database, ledger and logs there instead of into a temporary folder.",
)  # fmt: skip
def demo(keep: Path | None) -> None:
    """See a workflow survive a killed process.

    Starts a real worker, kills it with SIGKILL in the middle of an order, starts another, and
    checks by a ledger outside the store that no recorded step ran again. Takes about ten seconds;
    exit 0 only if all it claims is true.
    """
    folder = _folder(keep)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupted)
    click.echo("An order goes through a shop; the process that works on it is killed on the way.\n")
    play = Play(folder)
    try:
        asyncio.run(play.perform())
    except (PlayFailed, HoldfastError) as error:
        click.echo(
            f"\n{click.style('FAILED', fg='red')}: {error}\nWhat there is to look at is in {folder}", err=True
        )
        sys.exit(1)
    except KeyboardInterrupt:
        if keep is None:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    if not _told(play):
        click.echo(f"\nWhat there is to look at is in {folder}", err=True)
        sys.exit(1)
    _print_next(play)


def _interrupted(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _folder(keep: Path | None) -> Path:
    if keep is None:
        return Path(tempfile.mkdtemp(prefix="holdfast-demo-"))
    try:
        keep.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise click.UsageError(f"{keep} cannot be made: {error.strerror}; name another folder") from None
    if (keep / "demo.db").exists():
        raise click.UsageError(f"{keep} holds an earlier demo: name another folder, or remove it")
    return keep.resolve()


def _told(play: Play) -> bool:
    """Print the picture and the claims; whether all are true."""
    found = list(claims(play))
    if play.run is not None and play.run.finished_at is not None:
        click.echo("")
        click.echo("\n".join(f"  {line}" for line in timeline(play)))
    click.echo("\nChecked, by a ledger that the steps write outside the store:")
    for claim in found:
        mark = (
            click.style("  ok    ", fg="green")
            if claim.true
            else click.style("  FALSE ", fg="red", bold=True)
        )
        click.echo(mark + claim.text.replace("\n", "\n        "))
        if not claim.true:
            click.echo(f"        found instead: {claim.evidence}")
    return all(claim.true for claim in found)


def _print_next(play: Play) -> None:
    run, program = short(play.run_id or ""), spoken()
    click.echo(f"\nThe code: {nearest(Path(order_app_source.__file__))}\nWhat to type next:")
    click.echo(f"  export HOLDFAST_STORE={shlex.quote(play.url)}")
    rows = [
        (f"{program} show {run}", "what is recorded of it"),
        (f"{program} trail {run}", "everything that happened to it"),
        (f"{program} rewind {run} pack", "forget that step and what came after"),
        (f"{program} dev holdfast.cli.demo.app:app", "a worker: see how it is packed again"),
    ]
    width = max(len(command) for command, _ in rows)
    for command, meaning in rows:
        click.echo(f"  {command:<{width}}  {click.style(meaning, dim=True)}")
    click.echo(f"All of it is in {play.folder}; remove it when you like.")
