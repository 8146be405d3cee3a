"""How a run's end is told: its result on stdout, anything else as an error."""

from __future__ import annotations

import click

from holdfast.errors import RunCancelled, RunFailed
from holdfast.lifecycle import Status
from holdfast.records import Run

from .find import short


def print_ending(run: Run) -> None:
    """The result as it is stored, exactly; nothing for a run that has none."""
    if run.status is Status.SUCCEEDED:
        click.echo((run.result_json or "null").encode())


def raise_unless_succeeded(run: Run) -> None:
    """RunFailed or RunCancelled, in one line that says how to go on."""
    if run.status is Status.CANCELLED:
        raise RunCancelled(f"run {run.id} was cancelled")
    if run.status is Status.FAILED:
        name = short(run.id)
        hint = f"`holdfast show {name}` tells more, `holdfast retry {name}` goes on"
        raise RunFailed(run.id, run.error, hint)
