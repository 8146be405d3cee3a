"""The verbs of a move to another store, for the stores that share the machine: each is one commit over a
view."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from holdfast.machine import relocating as machine
from holdfast.machine.relocating import RelocationView
from holdfast.records.transfer import (
    MOVE,
    NO_COPIES,
    Copies,
    Departure,
    Relocated,
    RelocationAnswer,
)

Relocation = Callable[[RelocationView[Any], UUID], Relocated]
Move = Callable[[RelocationView[Any], UUID, int, str], Relocated]
CopyMove = Callable[[RelocationView[Any], UUID, int, str, int], Relocated]


def until_busy(view: RelocationView[Any], move: Relocation) -> Callable[[UUID], Relocated]:
    """Return a function that makes a move with one run after another. After the first run that is busy all
    others are busy too: a child must not stop before its parent."""
    is_busy = False

    def one(run: UUID) -> Relocated:
        nonlocal is_busy
        if is_busy:
            return behind(run)
        answer = move(view, run)
        is_busy = answer.answer is RelocationAnswer.BUSY
        return answer

    return one


def behind(run: UUID) -> Relocated:
    """Return the answer for a run behind one that is busy."""
    return Relocated(run, RelocationAnswer.BUSY, machine.BEHIND)


class Relocating:
    """The verbs, as a mixin of a store."""

    if TYPE_CHECKING:

        async def _relocate(self, runs: Sequence[UUID], move: Relocation) -> list[Relocated]:
            """Make the move with each of these runs, in one commit. Return one answer for each, in order."""

    async def leave(self, runs: Sequence[UUID], to: str, by: str = MOVE) -> list[Relocated]:
        return await self._relocate(runs, lambda view, run: machine.leave(view, run, to, by))

    async def left(
        self, departures: Sequence[Departure], by: str = MOVE, copies: Copies = NO_COPIES
    ) -> list[Relocated]:
        return await self._of_copies(departures, machine.left, by, copies)

    async def went_on(self, departures: Sequence[Departure], by: str = MOVE) -> list[Relocated]:
        return await self._of_departures(departures, machine.went_on, by)

    async def come_back(self, departures: Sequence[Departure], by: str = MOVE) -> list[Relocated]:
        return await self._of_departures(departures, machine.come_back, by)

    async def arrive(
        self, departures: Sequence[Departure], by: str = MOVE, copies: Copies = NO_COPIES
    ) -> list[Relocated]:
        return await self._of_copies(departures, machine.arrive, by, copies)

    async def drop_arrived(
        self, departures: Sequence[Departure], by: str = MOVE, copies: Copies = NO_COPIES
    ) -> list[Relocated]:
        return await self._of_copies(departures, machine.drop_arrived, by, copies)

    async def _of_copies(
        self, departures: Sequence[Departure], move: CopyMove, by: str, copies: Copies
    ) -> list[Relocated]:
        def of_copy(view: RelocationView[Any], run: UUID, departure: int, who: str) -> Relocated:
            return move(view, run, departure, who, copies.get(run, 0))

        return await self._of_departures(departures, of_copy, by)

    async def _of_departures(self, departures: Sequence[Departure], move: Move, by: str) -> list[Relocated]:
        numbers = dict(departures)
        return await self._relocate(list(numbers), lambda view, run: move(view, run, numbers[run], by))
