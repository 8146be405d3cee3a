"""What is played at the crash points: workflows, a client who asks again, and what must come of them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import msgspec

from holdfast.engine.app import App

from .ledger import Entry


class Pages:
    """A ledger within the simulation: a list, in order."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self.entries: list[Entry] = []

    async def tell(self, entry: Entry) -> None:
        self.note(entry)

    def note(self, entry: Entry) -> None:
        self.entries.append(msgspec.structs.replace(entry, at=self._clock()))

    def count(self, kind: str, run: str, step: str) -> int:
        return sum((one.kind, one.run, one.step) == (kind, run, step) for one in self.entries)


# Given the app, the ledger, and where to put down which starts were acknowledged.
Client = Callable[[App, Pages, set[UUID]], Coroutine[Any, Any, None]]


@dataclass(frozen=True, kw_only=True)
class Act:
    """One thing to be played."""

    name: str
    workflows: Callable[[App, Pages], object]
    # Knows no more than a caller does: what got no answer is asked again, also by whoever takes its place.
    client: Client
    amounts: dict[str, Callable[[Any], dict[str, int]]]
    logs: Mapping[str, Callable[[Any], tuple[str, ...]]] = field(default_factory=dict)
