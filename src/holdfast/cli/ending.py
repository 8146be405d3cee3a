"""How a run's end is told: its result on stdout, anything else as an error."""

from __future__ import annotations

import msgspec

from holdfast.codec import MARK
from holdfast.engine.explain import way_on
from holdfast.errors import RunCancelled, RunFailed
from holdfast.escaping import escaped
from holdfast.lifecycle import Status
from holdfast.records import Error, Run
from holdfast.sealing.envelope import reason

from .find import short
from .shape import print_json, raw_value

MESSAGE_MAX = 500


def print_ending(run: Run) -> None:
    """The result as it is stored; nothing for a run that has none, or one that is sealed."""
    if run.status is Status.SUCCEEDED and not (run.result_json or "").startswith(MARK):
        print_json(raw_value(run.result_json))


def raise_unless_succeeded(run: Run) -> None:
    """RunFailed, RunCancelled, or why its result cannot be opened, in one line that says how to go on."""
    if run.result_json is not None and run.result_json.startswith(MARK):
        raise reason(run.result_json, f"the result of run {run.id}")
    if run.status is Status.CANCELLED:
        raise RunCancelled(f"run {run.id} was cancelled")
    if run.status is Status.FAILED:
        name = short(run.id)
        hint = f"`holdfast show {name}` tells more, {way_on(run, name)}"
        raise RunFailed(run.id, _in_short(run.error), hint)


def _in_short(error: Error | None) -> Error | None:
    """With a message that leaves room for the rest of the line."""
    if error is None:
        return None
    return msgspec.structs.replace(
        error, kind=escaped(error.kind), message=escaped(error.message, MESSAGE_MAX)
    )
