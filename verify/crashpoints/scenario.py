"""A scenario of crashpoints: workflows, a client that retries, and the expected amounts and log lines."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import msgspec

from holdfast.engine.app.app import App
from verify.environment.ledger import Entry


class MemoryLedger:
    """A ledger in memory: a list of entries."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self.entries: list[Entry] = []

    async def write(self, entry: Entry) -> None:
        self.note(entry)

    def note(self, entry: Entry) -> None:
        self.entries.append(msgspec.structs.replace(entry, at=self._clock()))

    def count(self, kind: str, run: str, step: str) -> int:
        return sum((one.kind, one.run, one.step) == (kind, run, step) for one in self.entries)


# Called with the app, the ledger, and a set for the ids of acknowledged starts.
Client = Callable[[App, MemoryLedger, set[UUID]], Coroutine[Any, Any, None]]


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One scenario."""

    name: str
    workflows: Callable[[App, MemoryLedger], object]
    # The client repeats calls that got no answer; the client that replaces a crashed one does the same.
    client: Client
    amounts: dict[str, Callable[[Any], dict[str, int]]]
    logs: Mapping[str, Callable[[Any], tuple[str, ...]]] = field(default_factory=dict)
