"""What every store says of plans: what its holder may not do, and when it may not be published again."""

from __future__ import annotations

from holdfast.errors import Conflict
from holdfast.lifecycle import Move
from holdfast.records import Definition

CODE_MOVES = frozenset({Move.CHECKPOINT, Move.COMPLETE})  # a plan goes on by `advance` alone


def refuse_changed(before: Definition | None, now: Definition) -> None:
    """Runs of a version have its steps: another list of steps is another version."""
    if before is None or (before.kind, before.steps) == (now.kind, now.steps):
        return
    name, _, version = now.type.rpartition(".v")
    what = "other steps" if before.kind == now.kind else f"the kind {before.kind}"
    raise Conflict(
        f"{now.type} has been published with {what}: bump its version, as in {name}.v{int(version) + 1}"
    )
