"""What every store says of the items of holders before it looks at any row."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast import bounds
from holdfast.errors import TooLarge, UsageError
from holdfast.lifecycle import HOLDER_MOVES, SETTLED, WAITS, Move, StepKind, StepStatus
from holdfast.records import Item, StepWrite
from holdfast.records.sizes import item_bytes

_WRITABLE = SETTLED | {StepStatus.READY, StepStatus.WAITING}
_OF_WAITS = frozenset({StepStatus.WAITING, StepStatus.CANCELLED})
_KINDS = frozenset(StepKind)


def refuse_bad(batch: Sequence[Item]) -> None:
    """Find bad content before it is queued: one batch is one commit."""
    if len(batch) > 1 and len({item.run for item in batch}) != len(batch):
        raise UsageError("a batch holds at most one item of a run: send the next one after the answer")
    for item in batch:
        if item.move not in HOLDER_MOVES:
            raise UsageError(f"{item.move!r} is no move of a holder: {', '.join(sorted(HOLDER_MOVES))}")
        if item.move is Move.CHECKPOINT and not item.steps:
            raise UsageError(f"a checkpoint of run {item.run} records no step: it needs at least one")
        for write in item.steps:
            _refuse_bad_step(item.move, write)


def refuse_large(item: Item) -> None:
    """Find an item that is too large for one commit. Its fields have been checked."""
    if (size := item_bytes(item)) > bounds.ITEM_BYTES:
        said = f"what run {item.run} writes at once is {size:,} bytes as JSON"
        raise TooLarge(f"{said}, the limit is {bounds.ITEM_BYTES:,}: write it in several commits")


def _refuse_bad_step(move: Move, write: StepWrite) -> None:
    if write.status is StepStatus.READY and move is not Move.RETRY:
        raise UsageError(f"step {write.key!r} is to be tried again: only a retry may say so, no {move}")
    if write.kind not in _KINDS:
        raise UsageError(f"step {write.key!r} is of no known kind: {write.kind!r}")
    if write.status not in _WRITABLE:
        raise UsageError(f"step {write.key!r} cannot be written as {write.status!r}")
    if write.status in _OF_WAITS and write.kind not in WAITS and not _waits_in_a_plan(move, write):
        raise UsageError(f"step {write.key!r} of kind {write.kind!r} cannot wait")


def _waits_in_a_plan(move: Move, write: StepWrite) -> bool:
    return (move, write.kind, write.status) == (Move.PARK, StepKind.TASK, StepStatus.WAITING)


def brings_news(batch: Sequence[Item]) -> bool:
    """Whether anyone else may care: plain checkpoints are nobody's business.

    One that opens a wait is: its look may leave something that a keeper carries out.
    """
    return any(
        item.move is not Move.CHECKPOINT
        or item.events
        or item.starts
        or item.outbox
        or any(write.status is StepStatus.WAITING for write in item.steps)
        for item in batch
    )
