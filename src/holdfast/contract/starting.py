"""Starting runs, and publishing the workflows that they are runs of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from holdfast.errors import HoldfastError
from holdfast.records import Definition, NewRun, Started


class Starting(Protocol):
    """Intents become runs, each once."""

    async def start(self, runs: Sequence[NewRun], connection: Any = None) -> list[Started | HoldfastError]:
        """Record intents; one commit for all; answers in order; an error is the answer for its item
        alone (`KeyReused`, `DuplicateRun`, `UnknownRun`, `UsageError`) and the others are started. Of
        several, one that meets somebody's open transaction may be answered `Unavailable`; alone it waits.

        Same tenant and key: the existing run's id with created=False when the digest is the same
        (two items of one call too), else KeyReused; the key is looked at before the id. Of a chain that is
        its first run. A run that `follows` another: UsageError, see `machine.chains.handed_on`. What a new
        run begins with, a plan's rows included, is written in `machine.starting.start_one`. Trail: created.

        A parent that is unknown, deleted or another tenant's: UnknownRun(parent); key and id are looked at
        first. What becomes of the parent later changes nothing of the child, but for its cancels.

        `connection`: the caller's own, on this store's database, in an open transaction; the runs are
        part of it: rolled back, they never existed; nobody can claim them before it commits. It is
        used on the calling thread. UsageError when it is of a kind this store does not know, is not
        on this database, or has no transaction open (one that begins by itself is begun).
        """

    async def publish(self, definitions: Sequence[Definition]) -> None:
        """Make workflows known by type. The same again writes nothing; a change is taken over. But a plan
        with other steps than those published under its type, or of another kind: Conflict, and none of them
        is written: its version is to be bumped."""
