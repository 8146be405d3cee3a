"""The result of a run: printed if it succeeded, else an error that says how to continue."""

from __future__ import annotations

import msgspec

from holdfast.codec import MARK
from holdfast.engine.explain.explain import remedy
from holdfast.errors import RunCancelled, RunFailed
from holdfast.escaping import escaped
from holdfast.lifecycle import Status
from holdfast.records import Error, Run
from holdfast.sealing.envelope import reason
from holdfast.shown.data import raw_value
from holdfast.shown.text import short
from holdfast.transfer.places import cancelled_words

from .terminal import print_json

MESSAGE_MAX = 500


def print_result(run: Run) -> None:
    """Print the result as it is stored; nothing if there is none, or if it is encrypted."""
    if run.status is Status.SUCCEEDED and not (run.result_json or "").startswith(MARK):
        print_json(raw_value(run.result_json))


def raise_unless_succeeded(run: Run) -> None:
    """Raise RunFailed, RunCancelled, or an error that says why the result cannot be decrypted."""
    if run.result_json is not None and run.result_json.startswith(MARK):
        raise reason(run.result_json, f"the result of run {run.id}")
    if run.status is Status.CANCELLED:
        raise RunCancelled(escaped(cancelled_words(run)))
    if run.status is Status.FAILED:
        name = short(run.id)
        hint = f"`holdfast show {name}` shows the details; {remedy(run, name)}"
        raise RunFailed(run.id, _shortened(run.error), hint)


def _shortened(error: Error | None) -> Error | None:
    """The error with a message that is short enough for one line."""
    if error is None:
        return None
    return msgspec.structs.replace(
        error, kind=escaped(error.kind), message=escaped(error.message, MESSAGE_MAX)
    )
