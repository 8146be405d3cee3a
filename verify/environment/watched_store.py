"""A store that writes its refusals to the ledger: a zombie must be told that its late write changed
nothing.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Any

from holdfast.records import Ask, Claim, Item, Lease, Renewal, Verdict

from .ledger import Entry, Ledger


class Watched:
    """A wrapper that notes refused commits and renewals, and on request claims; all else is the store's."""

    def __init__(self, store: Any, ledger: Ledger, *, notes_claims: bool = False) -> None:
        self._store, self._ledger, self._notes_claims = store, ledger, notes_claims

    def __getattr__(self, name: str) -> Any:
        """Return any other verb of the store."""
        return getattr(self._store, name)

    async def claim(self, ask: Ask) -> list[Claim]:
        claims: list[Claim] = await self._store.claim(ask)
        if self._notes_claims:
            told = (
                Entry(kind="claimed", run=str(one.id), fence=one.fence, pid=os.getpid()) for one in claims
            )
            await asyncio.gather(*map(self._ledger.write, told))
        return claims

    async def commit(self, batch: Sequence[Item]) -> list[Verdict]:
        verdicts: list[Verdict] = await self._store.commit(batch)
        for item, verdict in zip(batch, verdicts, strict=True):
            if verdict.answer == "lost":
                keys = " ".join(step.key for step in item.steps)
                await self._ledger.write(_refused(item.run, item.fence, item.move.verb, keys))
        return verdicts

    def renew(self, worker: str, leases: Sequence[Lease], lease_seconds: float) -> Renewal:
        renewal: Renewal = self._store.renew(worker, leases, lease_seconds)
        for lease, held in zip(leases, renewal.held, strict=True):
            if held.answer == "lost":
                self._ledger.write_blocking(_refused(lease.run, lease.fence, "renew"))
        return renewal


def _refused(run: Any, fence: int, what: str, keys: str = "") -> Entry:
    return Entry(kind="refused", run=str(run), step=str(what), fence=fence, pid=os.getpid(), nonce=keys)
