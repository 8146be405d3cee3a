"""The claim that waits at the server: it is open while a worker has free slots and nothing is due.

The claim loop of a worker asks the server, and finds less than it has slots for. Then one claim stays open
here. When it is answered, the runs are kept for a moment, the worker is woken, and its next claim gets them.
The server gives back what it has claimed for a worker that hangs up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from msgspec.structs import replace

from holdfast.errors import HoldfastError
from holdfast.records import Ask, Claim
from holdfast.world import World

WAIT_SECONDS = 25.0  # the longest wait of one request
AGAIN_SECONDS = 0.05  # before the next request, when the server is stopping or could not be reached

Key = tuple[Any, ...]


class Leases(NamedTuple):
    """The answer to a claim. since: when the leases began at the earliest; answered_at: when the answer came;
    both by the clock of this process.
    """

    claims: list[Claim]
    since: float
    answered_at: float
    drains: bool


Asks = Callable[[Ask, int, float], Awaitable[Leases]]


class OpenClaim:
    """The open claim of one worker."""

    def __init__(
        self, world: World, asks: Asks, hint: Callable[[], None], give_back: Callable[[list[Claim]], None]
    ) -> None:
        self._world, self._asks, self._hint, self._give_back = world, asks, hint, give_back
        self._key: Key = ()
        self.types: frozenset[str] = frozenset()  # that the worker has asked for last
        self._waiting: asyncio.Task[None] | None = None
        self._found: Leases | None = None
        self._owner: asyncio.Task[Any] | None = None

    def take(self, ask: Ask) -> list[Claim]:
        """Return the runs that the open claim has brought, for this claim of the worker. Runs for which no
        slot is free any more are given back.
        """
        self.types = frozenset(ask.types)
        found, self._found = self._found, None
        if found is None:
            return []
        now = self._world.monotonic()
        ahead, kept = max(0.0, now - found.since), max(0.0, now - found.answered_at)
        if found.claims[ask.limit :]:
            self._give_back(found.claims[ask.limit :])
        return [replace(one, ahead_seconds=ahead, kept_seconds=kept) for one in found.claims[: ask.limit]]

    @property
    def waits(self) -> bool:
        """True while a claim is open."""
        return self._waiting is not None

    def covers(self, ask: Ask) -> bool:
        """Return True while an open claim waits for the same: nothing is due."""
        return self.waits and _key(ask) == self._key

    def open(self, ask: Ask, slots: int) -> None:
        """Wait for the next runs. It ends with the claim loop of the worker, in whose task this is called."""
        self._hang_up()
        owner = asyncio.current_task()
        if owner is not None and owner is not self._owner:
            self._owner = owner
            owner.add_done_callback(lambda _: self.end())
        self._key = _key(ask)
        self._waiting = self._world.spawn(self._wait(ask, slots), "holdfast-open-claim")

    def end(self) -> None:
        """Wait no more, and give back what nobody has taken."""
        self._hang_up()
        found, self._found = self._found, None
        if found is not None and found.claims:
            self._give_back(found.claims)

    def _hang_up(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    async def _wait(self, ask: Ask, slots: int) -> None:
        try:
            while not (found := await self._asks(ask, slots, WAIT_SECONDS)).claims:
                if found.drains:
                    await asyncio.sleep(AGAIN_SECONDS)
            self._found = found
        except HoldfastError:
            # The claim loop asks itself, meets the same error, and says so.
            await asyncio.sleep(AGAIN_SECONDS)
        self._waiting = None
        self._hint()


def _key(ask: Ask) -> Key:
    return ask.types, ask.tenants, ask.runtime, ask.crashed, ask.lease_seconds, ask.worker
