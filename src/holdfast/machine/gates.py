"""Gates in words: which one is meant, what a decision reads as, why it is refused. The move is in
deciding.py.
"""

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
    """The only one there has been, or the one of that name: a repeated call must not decide the next gate."""
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
    """The word for what is tried."""
    return "approve" if approved else "reject"


def check_digest(run: UUID, gate: str, shown: str | None, named: str | None, *, approved: bool) -> None:
    """A decision may name what it was shown."""
    if named is not None and named != shown:
        raise Conflict(
            f"cannot {verb(approved=approved)} {gate!r} of run {run}: what it shows has another digest, "
            f"{shown}: look at it again"
        )


def check_same(run: UUID, gate: str, before: Decision, *, approved: bool) -> None:
    """The same verdict again is answered as the first time; the other one is refused."""
    if before.approved is approved:
        return
    whose = ", for nobody decided in time" if before.timed_out else f" by {before.by}" if before.by else ""
    word = "approved" if before.approved else "rejected"
    raise Conflict(f"cannot {verb(approved=approved)} {gate!r} of run {run}: it has been {word}{whose}")


def said(*, approved: bool, by: str, comment: str, at: Instant, timed_out: bool) -> Json:
    """A decision, as the gate's output."""
    record = {"approved": approved, "by": by, "comment": comment, "at": at, "timed_out": timed_out}
    return msgspec.json.encode(record).decode()


def why_rejected(*, by: str, comment: str, timed_out: bool) -> str:
    """What the run of a plan fails with; that it was rejected says the kind of the error."""
    who = "nobody decided in time" if timed_out else f"by {by}" if by else ""
    return ": ".join(filter(None, (who, comment))) or "no reason given"


def decision(output: Json) -> Decision:
    """A gate's output, as people read it."""
    found = msgspec.json.decode(output)
    return Decision(
        approved=found["approved"],
        by=found["by"],
        comment=found["comment"],
        at=moment(found["at"]),
        timed_out=found["timed_out"],
    )
