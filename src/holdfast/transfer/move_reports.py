"""Reports of a move."""

from __future__ import annotations

from uuid import UUID

import msgspec

from holdfast.records.transfer import Imported

REFUSED_MAX = 1000  # refused runs that a report names


class MoveReport(msgspec.Struct, kw_only=True):
    """The numbers of a move. `moved`: runs that go on at the target now. `verified`: those of them that were
    read again there, and are what they were. `refused`: runs that stay at the source, with the reason; the
    first REFUSED_MAX. `missing`: runs that an earlier move has recorded as left, and that the target does not
    have, or does not let go on: the first REFUSED_MAX. `elsewhere`: targets of earlier moves that were not
    ended, with the number of runs that are on their way there: they go on nowhere until that move is ended or
    undone."""

    moved: int = 0
    verified: int = 0
    events: int = 0
    schedules: int = 0
    refused_runs: int = 0
    refused: list[Imported] = []
    missing: list[Imported] = []
    elsewhere: dict[str, int] = {}
    notes: list[str] = []  # settings that are otherwise at the target
    seconds: float = 0.0


class UndoneMove(msgspec.Struct, kw_only=True):
    """The runs that came back. `left`: runs that were open, have left for good, and have not gone on at the
    target yet. `note`: what could not be done, because the target cannot be reached."""

    runs: list[UUID]
    left: int = 0
    note: str = ""


class MovePreview(msgspec.Struct, kw_only=True):
    """The runs that a move would take, by status; their families come along. `on_the_way`: runs that an
    earlier move has stopped."""

    by_status: dict[str, int]
    on_the_way: int = 0

    @property
    def runs(self) -> int:
        return sum(self.by_status.values())

    @property
    def total(self) -> int:
        """All runs that a move would work on; their families come along."""
        return self.runs + self.on_the_way
