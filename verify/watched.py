"""A store whose refusals go to the ledger: a zombie's late write must be told that it changed nothing."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from holdfast.records import Item, Lease, Renewal, Verdict

from .ledger import Entry, Ledger


class Watched:
    """Everything is the store's own; commits and renewals are listened to."""

    def __init__(self, store: Any, ledger: Ledger) -> None:
        self._store, self._ledger = store, ledger

    def __getattr__(self, name: str) -> Any:
        """All other verbs."""
        return getattr(self._store, name)

    async def commit(self, batch: Sequence[Item]) -> list[Verdict]:
        verdicts: list[Verdict] = await self._store.commit(batch)
        for item, verdict in zip(batch, verdicts, strict=True):
            if verdict.answer == "lost":
                keys = " ".join(step.key for step in item.steps)
                await self._ledger.tell(_refused(item.run, item.fence, item.move.verb, keys))
        return verdicts

    def renew(self, worker: str, leases: Sequence[Lease], lease_seconds: float) -> Renewal:
        renewal: Renewal = self._store.renew(worker, leases, lease_seconds)
        for lease, held in zip(leases, renewal.held, strict=True):
            if held.answer == "lost":
                self._ledger.tell_now(_refused(lease.run, lease.fence, "renew"))
        return renewal


def _refused(run: Any, fence: int, what: str, keys: str = "") -> Entry:
    return Entry(kind="refused", run=str(run), step=str(what), fence=fence, pid=os.getpid(), nonce=keys)
