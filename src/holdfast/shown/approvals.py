"""Gates and decisions in words."""

from __future__ import annotations

import msgspec

from holdfast.lifecycle import spoken_status
from holdfast.records import ApprovalRequest, Decided
from holdfast.records.unreadable import MARK, UNREADABLE, read_object

from .text import clean, short


def question(gate: ApprovalRequest) -> str:
    """The question of a gate and its data, safe to print."""
    asked = read_object(gate.ask_json)
    if MARK in asked:
        return clean(f"{UNREADABLE} ({asked[MARK]})")
    data = "" if asked.get("data") is None else msgspec.json.encode(asked["data"]).decode()
    return clean(f"{asked.get('ask') or ''}  {data}".strip())


def decided_sentence(decided: Decided) -> str:
    """The decision of a gate, who made it, and the status of the run after it."""
    made, run = decided.decision, decided.run
    word = "approved" if made.approved else "rejected"
    by = (
        f" by {clean(made.by)}"
        if made.by
        else ", nobody decided before the deadline"
        if made.timed_out
        else ""
    )
    after = (
        "; it was decided before, nothing changed"
        if decided.repeated
        else f"; the run is now {spoken_status(run.status)}"
    )
    return f"{short(run.id)} ({clean(run.type)}): gate {clean(decided.step)!r} {word}{by}{after}"
