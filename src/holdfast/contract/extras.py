"""Verbs that only some stores have, beside the contract. Callers ask for them by `isinstance`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from holdfast.records import Finding, HeldRecord, Lease


@runtime_checkable
class HasSets(Protocol):
    """A store that keeps sets beside its rows, by which runs are found. Commits change both together."""

    async def check_sets(self, *, repair: bool = False) -> Sequence[Finding]:
        """Compare the sets with the rows of all runs, in pages, and say what differs; repair: rebuild it as
        the rows say. It reads all runs, so it takes time, and delays no other verb. A run that moves
        meanwhile is no difference.
        """


@runtime_checkable
class HasDurability(Protocol):
    """A store whose server decides what a commit survives."""

    async def durability(self) -> str:
        """The name of what the server keeps, and what it means after a power cut: one line for people."""


@runtime_checkable
class ReadsHeldRuns(Protocol):
    """A store that shows a worker the record of a run by its lease alone, where `get` needs more rights."""

    async def held_record(self, lease: Lease) -> HeldRecord | None:
        """The fields of a held run that its worker needs; None when the run is not held any more."""
