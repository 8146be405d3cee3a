"""The leases that workers of this process hold, with the tokens that prove it.

The engine names a lease by its run and its fence. The server wants the token too, and the times of a lease
are counted from its claim.
"""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

import msgspec

from holdfast.records import Instant

Name = tuple[UUID, int]  # run and fence

KEPT_LEASES = 3  # lease times after which a lease is forgotten that the worker does not name any more


class Entry(msgspec.Struct, kw_only=True):
    """One lease. since, used_at: when it was claimed and last named, by the clock of this process."""

    run: UUID
    fence: int
    token: str
    worker: str
    tenant: str
    claimed_at: Instant
    created_at: Instant
    since: float
    used_at: float
    opens: bool = False  # the run has an open wait while its code is executed
    busy_until: float = 0.0  # the server wants no item of this run before: another session has its row
    is_paused: bool = False  # the worker knows that a pause is asked for
    is_told: bool = False  # the worker was told that the lease has ended
    is_stray: bool = False  # no claim has brought it here: all that is done with it is to give it back

    @property
    def name(self) -> Name:
        """Return what the engine calls it."""
        return self.run, self.fence


class Book:
    """The leases of one store. Threads that renew use it too: each call is one operation on a dict."""

    def __init__(self) -> None:
        self._entries: dict[Name, Entry] = {}
        self.ahead: set[Name] = set()  # leases that an open claim has brought, and no worker has taken yet

    def add(self, entry: Entry) -> None:
        """Note a lease."""
        self._entries[entry.name] = entry

    def add_unknown(self, entry: Entry) -> Entry:
        """Note a lease, unless it is known: a claim may bring it at this moment. Return what is known."""
        return self._entries.setdefault(entry.name, entry)

    def find(self, run: UUID, fence: int) -> Entry | None:
        """Return a lease; None when it is not held, or not any more."""
        return self._entries.get((run, fence))

    def of_run(self, run: UUID) -> Entry | None:
        """Return the newest lease of a run."""
        found = [one for one in self.all() if one.run == run]
        return max(found, key=lambda one: one.fence, default=None)

    def drop(self, run: UUID, fence: int) -> None:
        """Forget a lease that has ended."""
        self._entries.pop((run, fence), None)
        self.ahead.discard((run, fence))

    def all(self) -> list[Entry]:
        """Return all leases."""
        return list(self._entries.values())

    def prune(self, worker: str, named: Collection[Name], now: float, lease_seconds: float) -> None:
        """Forget leases of a worker that it has not named for long: it does not hold them any more."""
        for one in self.all():
            is_old = now - one.used_at > KEPT_LEASES * lease_seconds
            if is_old and one.worker == worker and one.name not in named:
                self.drop(*one.name)
