"""How a run's end is told: its result on stdout, anything else as an error."""

from __future__ import annotations

import click

from holdfast.codec import MARK
from holdfast.errors import RunCancelled, RunFailed
from holdfast.lifecycle import Status
from holdfast.records import Run
from holdfast.sealing.envelope import reason

from .find import short


def print_ending(run: Run) -> None:
    """The result as it is stored, exactly; nothing for a run that has none, or one that is sealed."""
    if run.status is Status.SUCCEEDED and not (run.result_json or "").startswith(MARK):
        click.echo((run.result_json or "null").encode())


def raise_unless_succeeded(run: Run) -> None:
    """RunFailed, RunCancelled, or why its result cannot be opened, in one line that says how to go on."""
    if run.result_json is not None and run.result_json.startswith(MARK):
        raise reason(run.result_json, f"the result of run {run.id}")
    if run.status is Status.CANCELLED:
        raise RunCancelled(f"run {run.id} was cancelled")
    if run.status is Status.FAILED:
        name = short(run.id)
        hint = f"`holdfast show {name}` tells more, `holdfast retry {name}` goes on"
        raise RunFailed(run.id, run.error, hint)
