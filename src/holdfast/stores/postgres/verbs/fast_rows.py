"""The fast path of `commit`: the common writes of holders as short rows, many in one statement.

Fast are: a checkpoint of one new step; a complete without steps, or with all the steps that the run has; a
task of a plan that is done. A checkpoint and a complete may bring log rows. Every other item takes the
general path, unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import msgspec

from holdfast.lifecycle import StepKind, StepStatus
from holdfast.records import Instant, Item, Json, StepWrite, TrailWrite, moves


class Checkpoint(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """One outcome of a new key."""

    run: UUID
    fence: int
    number: int
    lasts: float
    key: str
    kind: StepKind
    attempts: int
    output: Json | None = None
    started_at: Instant | None = None
    begun_at: Instant | None = None
    logs: tuple[TrailWrite, ...] = ()


BARE = len(Checkpoint.__struct_fields__) - 2  # fields of a checkpoint that begins nothing and has no log rows


class Complete(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """A run that succeeds. `whole`: the item brings all steps of the run."""

    run: UUID
    fence: int
    number: int
    result: Json | None
    begun_at: Instant | None
    whole: bool
    logs: tuple[TrailWrite, ...] = ()


class Part(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """One step of a run that comes whole."""

    run: UUID
    fence: int
    number: int
    seq: int
    key: str
    kind: StepKind
    attempts: int
    output: Json | None = None
    started_at: Instant | None = None


class Advance(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """The current task of a plan that has succeeded. `differs`: the run's result is not the task's output."""

    run: UUID
    fence: int
    number: int
    lasts: float
    key: str
    attempts: int
    output: Json | None = None
    result: Json | None = None
    differs: bool = False
    started_at: Instant | None = None
    begun_at: Instant | None = None
    in_place: bool = False


class Sorted:
    """A batch, sorted into fast rows and other items, with the places of its answers."""

    __slots__ = ("advances", "checkpoints", "completes", "long", "parts", "places")

    def __init__(self) -> None:
        self.checkpoints: list[Checkpoint] = []
        self.completes: list[Complete] = []
        self.parts: list[Part] = []
        self.advances: list[Advance] = []
        self.long: list[Item] = []
        self.places = Places()


class Places:
    """The places of the items of each list in the batch."""

    __slots__ = ("advances", "checkpoints", "completes", "long")

    def __init__(self) -> None:
        self.checkpoints: list[int] = []
        self.completes: list[int] = []
        self.advances: list[int] = []
        self.long: list[int] = []


def sort(batch: Sequence[Item]) -> Sorted:
    """Sort the items of the fast path apart from the others."""
    found = Sorted()
    places = found.places
    for place, item in enumerate(batch):
        move = item.move
        if item.known is not None or item.progress is not None or item.shares or item.events or item.outbox:
            pass
        elif type(move) is moves.Checkpoint:
            if len(item.steps) == 1 and _is_plain(write := item.steps[0]):
                places.checkpoints.append(place)
                found.checkpoints.append(
                    Checkpoint(
                        item.run, item.fence, item.number, item.lease_seconds, write.key, write.kind,
                        write.attempts, write.output, write.started_at, item.started_at, item.trail,
                    )
                )  # fmt: skip
                continue
        elif type(move) is moves.Complete and not move.starts and (not item.steps or _is_whole(item.steps)):
            places.completes.append(place)
            found.completes.append(
                Complete(
                    item.run,
                    item.fence,
                    item.number,
                    move.result,
                    item.started_at,
                    bool(item.steps),
                    item.trail,
                )
            )
            found.parts += [_part(item, seq, write) for seq, write in enumerate(item.steps, 1)]
            continue
        elif type(move) is moves.Advance and len(item.steps) == 1 and not item.trail:
            write = item.steps[0]
            if _is_plain(write) and write.kind is StepKind.TASK:
                places.advances.append(place)
                found.advances.append(_advance(item, move, write))
                continue
        places.long.append(place)
        found.long.append(item)
    return found


def is_bare(row: Checkpoint) -> bool:
    """Return True when the checkpoint brings nothing but its step."""
    return row.begun_at is None and not row.logs


def _is_plain(write: StepWrite) -> bool:
    return (
        write.status is StepStatus.SUCCEEDED
        and not write.cost
        and write.error is None
        and write.child is None
    )


def _is_whole(steps: Sequence[StepWrite]) -> bool:
    return all(map(_is_plain, steps)) and len({one.key for one in steps}) == len(steps)


def _part(item: Item, seq: int, write: StepWrite) -> Part:
    return Part(
        item.run, item.fence, item.number, seq, write.key, write.kind, write.attempts, write.output,
        write.started_at,
    )  # fmt: skip


def _advance(item: Item, move: moves.Advance, write: StepWrite) -> Advance:
    differs = move.result != write.output
    return Advance(
        item.run, item.fence, item.number, item.lease_seconds, write.key, write.attempts, write.output,
        move.result if differs else None, differs, write.started_at, item.started_at, move.in_place,
    )  # fmt: skip
