"""export and import: whole runs and events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec
from msgspec.json import Decoder
from msgspec.structs import asdict, replace

from holdfast.bounds import BATCH_BYTES
from holdfast.machine.carrying import (
    BEING_PURGED,
    OTHER_CONTENT,
    first_is_open,
    key_taken,
    no_first,
    of_other_tenant,
)
from holdfast.machine.relocating import (
    AWAY,
    BEHIND,
    HAS_LEFT,
    LEAVES,
    NOT_LEAVING,
    NOT_LEFT,
    OTHER_COPY,
    OTHER_DEPARTURE,
    OWES,
    WAITS,
    WAITS_NOT,
    leaves_for,
)
from holdfast.records.transfer import (
    IMPORT,
    MOVE,
    NO_COPIES,
    CarriedEvent,
    CarriedRun,
    Copies,
    Departure,
    Exported,
    ImportAnswer,
    Imported,
    Place,
    Relocated,
    RelocationAnswer,
)
from holdfast.stores.carrying import at_rest, on_hold

from .calls import Calls, json_text


class _Said(msgspec.Struct, gc=False, frozen=True):
    answer: ImportAnswer
    why: str = ""
    run: UUID | None = None


_IDS = Decoder(list[UUID])
_EXPORTED = Decoder(list[Exported])
_EVENTS = Decoder(list[CarriedEvent])
_NUMBERS = Decoder(list[int])
_SAID = Decoder(list[_Said])


class _Where(msgspec.Struct, gc=False, frozen=True):
    answer: RelocationAnswer
    why: str = ""
    departure: int | None = None
    to: str | None = None
    copy: int = 0


_WHERE = Decoder(list[_Where])
_REASONS = {
    "": "",
    "waits": WAITS,
    "owes": OWES,
    "messages": "its messages change at this moment",
    "not leaving": NOT_LEAVING,
    "left": HAS_LEFT,
    "away": AWAY,
    "leaves": LEAVES,
    "no wait": WAITS_NOT,
    "departure": OTHER_DEPARTURE,
    "copy": OTHER_COPY,
    "not left": NOT_LEFT,
    "behind": BEHIND,
}


class TransferVerbs(Calls):
    """The verbs of export and import."""

    async def run_ids(self, limit: int = 1000, after: UUID | None = None) -> list[UUID]:
        return await self._ask(_IDS, "run_ids", after, limit)

    async def export_runs(
        self, runs: Sequence[UUID], place: Place | None = None, bytes: int = BATCH_BYTES
    ) -> list[Exported]:
        section, after = (None, None) if place is None else place
        found = await self._ask(_EXPORTED, "export_runs", list(runs), section, after, bytes)
        return [_given_back(one, is_first=place is None) for one in found]

    async def export_events(
        self, limit: int = 1000, after: int = 0, *, chain: UUID | None = None, addressed: bool = True
    ) -> list[CarriedEvent]:
        return await self._ask(_EVENTS, "export_events", limit, after, chain, addressed, BATCH_BYTES)

    async def import_events(self, events: Sequence[CarriedEvent]) -> list[int]:
        return await self._ask(_NUMBERS, "import_events", json_text([asdict(one) for one in events]))

    async def import_runs(
        self, parts: Sequence[CarriedRun], by: str = IMPORT, *, hold: bool = True
    ) -> list[Imported]:
        given = [on_hold(part) for part in parts] if hold else parts
        said = await self._ask(_SAID, "import_runs", json_text([_part_json(one) for one in given]), by)
        return [_answer(part, one) for part, one in zip(parts, said, strict=True)]

    async def leave(self, runs: Sequence[UUID], to: str, by: str = MOVE) -> list[Relocated]:
        return await self._relocate("leave", [(run, 0) for run in runs], by, to)

    async def left(
        self, departures: Sequence[Departure], by: str = MOVE, copies: Copies = NO_COPIES
    ) -> list[Relocated]:
        return await self._relocate("left", departures, by, copies=copies)

    async def went_on(self, departures: Sequence[Departure], by: str = MOVE) -> list[Relocated]:
        return await self._relocate("went_on", departures, by)

    async def come_back(self, departures: Sequence[Departure], by: str = MOVE) -> list[Relocated]:
        return await self._relocate("come_back", departures, by)

    async def arrive(
        self, departures: Sequence[Departure], by: str = MOVE, copies: Copies = NO_COPIES
    ) -> list[Relocated]:
        return await self._relocate("arrive", departures, by, copies=copies)

    async def drop_arrived(
        self, departures: Sequence[Departure], by: str = MOVE, copies: Copies = NO_COPIES
    ) -> list[Relocated]:
        return await self._relocate("drop_arrived", departures, by, copies=copies)

    async def _relocate(
        self,
        verb: str,
        departures: Sequence[Departure],
        by: str,
        to: str = "",
        copies: Copies = NO_COPIES,
    ) -> list[Relocated]:
        runs, numbers = [run for run, _ in departures], [number for _, number in departures]
        chosen = [copies.get(run, 0) for run in runs]
        said = await self._ask(_WHERE, "relocate", verb, runs, numbers, to, by, chosen)
        return [_where(run, one) for run, one in zip(runs, said, strict=True)]


def _where(run: UUID, said: _Where) -> Relocated:
    reason = leaves_for(said.to or "") if said.why == "target" else _REASONS[said.why]
    if said.answer is RelocationAnswer.REFUSED:
        return Relocated(run, said.answer, reason)
    return Relocated(run, said.answer, reason, said.departure or 0, said.to or "", said.copy)


def _given_back(one: Exported, *, is_first: bool) -> Exported:
    row = one.part.row
    part = replace(one.part, is_first=is_first, row=None if row is None else at_rest(row))
    return replace(one, part=part)


def _part_json(part: CarriedRun) -> dict[str, Any]:
    """Return a part with all its fields: those that have their default value are left out elsewhere."""
    return {
        **asdict(part),
        "row": None if part.row is None else asdict(part.row),
        "steps": [asdict(one) for one in part.steps],
        "notes": [asdict(one) for one in part.notes],
        "messages": [asdict(one) for one in part.messages],
    }


def _answer(part: CarriedRun, said: _Said) -> Imported:
    reason = ""
    if said.why == "content":
        reason = OTHER_CONTENT
    elif said.why == "purge":
        reason = BEING_PURGED
    elif said.why == "key":
        reason = key_taken(part.row.key or "" if part.row else "", str(said.run))
    elif said.why == "chain":
        reason = no_first(str(part.chain))
    elif said.why == "open":
        reason = first_is_open(str(part.chain))
    elif said.why == "tenant":
        reason = of_other_tenant(str(said.run))
    return Imported(part.id, said.answer, reason)
