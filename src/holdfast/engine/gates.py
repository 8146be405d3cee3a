"""Gates in code: what a person is shown, and what he decided.

No worker executes a gate. What is shown is recorded with a digest, so that a decision can be bound to it:
whoever decides says what he has seen.
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.arguments import check_key, plain_text
from holdfast.clipped import clipped
from holdfast.codec import digest, plain, unwrapped
from holdfast.codec import shown as as_data
from holdfast.errors import UsageError
from holdfast.records import Decision, moment

from .record import Recorded

VERDICTS = {"reject": False, "approve": True}


class _Said(msgspec.Struct):
    """A decision as stores keep it."""

    approved: bool
    by: str = ""
    comment: str = ""
    at: int = 0
    timed_out: bool = False


def shown(name: str, ask: Any, data: Any, on_timeout: str) -> dict[str, str]:
    """The fields of a gate's row: question, data, their digest, and what it says on its own."""
    if not isinstance(ask, str):
        raise UsageError(
            f"approval {clipped(name)}: ask={clipped(ask)}: the question is text; data= is shown with it"
        )
    name, on_timeout = check_key(name), plain_text(on_timeout)
    if on_timeout not in tuple(VERDICTS):
        raise UsageError(f"approval {clipped(name)}: on_timeout={clipped(on_timeout)}: 'reject' or 'approve'")
    what = f"what approval {name!r} shows"
    text = plain.encode({"ask": plain_text(ask), "data": as_data(data, what)}, what)
    return {"ask": text, "digest": digest("approval", text), "on_timeout": on_timeout}


def decision(step: Recorded) -> Decision:
    """The decision on the gate; BadValue when it cannot be read."""
    said = unwrapped(step.output, _Said, f"the decision of step {step.key!r}")
    return Decision(
        approved=said.approved, by=said.by, comment=said.comment, at=moment(said.at), timed_out=said.timed_out
    )
