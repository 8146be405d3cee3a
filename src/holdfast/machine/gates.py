"""Gates: find the gate that a caller means, check a decision, and write it as text. The move is in
deciding.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar
from uuid import UUID

import msgspec

from holdfast.errors import Conflict
from holdfast.records import Decision, Instant, Json, moment


class Gate(Protocol):
    """A step of kind approval that has been opened."""

    @property
    def key(self) -> str: ...


G = TypeVar("G", bound=Gate)


def meant(run: UUID, gates: Sequence[G], step: str | None) -> G:
    """Return the gate of that name, or the only one so far: a repeated call must not decide the next gate."""
    if step is None and len(gates) == 1:
        return gates[0]
    for gate in gates:
        if gate.key == step:
            return gate
    if not gates:
        raise Conflict(f"run {run} has no open gate: nothing there waits for a decision")
    names = ", ".join(repr(gate.key) for gate in gates)
    if step is None:
        raise Conflict(f"run {run} has had several gates, name the one you mean: {names}")
    raise Conflict(f"gate {step!r} of run {run} is not open; its gates so far: {names}")


def verb(*, approved: bool) -> str:
    """Return the verb of the decision, for messages."""
    return "approve" if approved else "reject"


def check_digest(run: UUID, gate: str, shown: str | None, named: str | None, *, approved: bool) -> None:
    """Refuse a decision that names another digest than the gate shows."""
    if named is not None and named != shown:
        raise Conflict(
            f"cannot {verb(approved=approved)} {gate!r} of run {run}: what it shows has another digest, "
            f"{shown}: look at it again"
        )


def check_same(run: UUID, gate: str, before: Decision, *, approved: bool) -> None:
    """Refuse a decision that differs from the decision before."""
    if before.approved is approved:
        return
    reason = ", for nobody decided in time" if before.timed_out else f" by {before.by}" if before.by else ""
    word = "approved" if before.approved else "rejected"
    raise Conflict(f"cannot {verb(approved=approved)} {gate!r} of run {run}: it has been {word}{reason}")


def decision_json(*, approved: bool, by: str, comment: str, at: Instant, timed_out: bool) -> Json:
    """Return a decision as JSON, the output of the gate."""
    record = {"approved": approved, "by": by, "comment": comment, "at": at, "timed_out": timed_out}
    return msgspec.json.encode(record).decode()


def why_rejected(*, by: str, comment: str, timed_out: bool) -> str:
    """Return the message with which the run of a plan fails. The kind of the error says that it was
    rejected."""
    who = "nobody decided in time" if timed_out else f"by {by}" if by else ""
    return ": ".join(filter(None, (who, comment))) or "no reason given"


def decision(output: Json) -> Decision:
    """Return the decision that the output of a gate holds."""
    found = msgspec.json.decode(output)
    return Decision(
        approved=found["approved"],
        by=found["by"],
        comment=found["comment"],
        at=moment(found["at"]),
        timed_out=found["timed_out"],
    )
