"""Gates in code workflows: the fields that a person sees, and the decision that code reads.

No worker executes a gate. The question and its data are recorded with a digest, so that a decision can name
what the person has seen.
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.arguments import exact_text
from holdfast.clipped import clipped
from holdfast.codec import digest, untyped, unwrapped
from holdfast.codec import shown as as_data
from holdfast.errors import UsageError
from holdfast.records import Decision, moment
from holdfast.step_keys import check_call_name

from .record import Recorded

DECISIONS = {"reject": False, "approve": True}


class _RecordedDecision(msgspec.Struct):
    """A decision as the store records it."""

    approved: bool
    by: str = ""
    comment: str = ""
    at: int = 0
    timed_out: bool = False


def shown(name: str, ask: Any, data: Any, on_timeout: str) -> dict[str, str]:
    """Return the fields of a gate's row: question, data, their digest, and the decision at its timeout."""
    if not isinstance(ask, str):
        raise UsageError(
            f"approval {clipped(name)}: ask={clipped(ask)}: give text; other values go into data="
        )
    name, on_timeout = check_call_name(name), exact_text(on_timeout)
    if on_timeout not in tuple(DECISIONS):
        raise UsageError(
            f"approval {clipped(name)}: on_timeout={clipped(on_timeout)}: give 'reject' or 'approve'"
        )
    what = f"what approval {name!r} shows"
    text = untyped.encode({"ask": exact_text(ask), "data": as_data(data, what)}, what)
    return {"ask": text, "digest": digest("approval", text), "on_timeout": on_timeout}


def decision(step: Recorded) -> Decision:
    """Return the decision on a gate; BadValue when it cannot be read."""
    said = unwrapped(step.output, _RecordedDecision, f"the decision of step {step.key!r}")
    return Decision(
        approved=said.approved, by=said.by, comment=said.comment, at=moment(said.at), timed_out=said.timed_out
    )
