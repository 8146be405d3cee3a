"""The chores of a server whose workers have no store: leases expire, timers end, events and messages are
delivered, although no worker of the library is there.

They begin with the first request of a worker. They are those of `holdfast tick --loop`: nothing is purged,
because only an app knows how long its runs are kept. A program that has a keeper of its own, as `holdfast
serve --worker` does, only wants to know of leases: no hint of the store comes with a claim, and a short lease
must not expire unnoticed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from uuid import UUID

from holdfast.contract import Store
from holdfast.engine.outbox.relay import Relay
from holdfast.engine.run_log import failed_by_keeper
from holdfast.engine.worker.keeper import Keeper
from holdfast.world import World

Ring = Callable[[], None]

GRACE_SECONDS = 5.0  # for messages that are being sent when the server stops


class Keeping:
    """Rings the keeper when a lease that was given here may have expired. ring: the keeper of the program;
    None: the server has one of its own.
    """

    def __init__(self, store: Store, world: World, ring: Ring | None) -> None:
        self._store, self._world, self._ring = store, world, ring
        self._own: _OwnKeeper | None = None
        self._rings_at = 0.0
        self._cancel: Ring | None = None

    def begin(self) -> None:
        """Begin the chores, if nobody else does them."""
        if self._ring is None:
            self._own = _OwnKeeper(self._store, self._world)
            self._ring = self._own.ring

    def leased(self, lease_seconds: float) -> None:
        """Note that a lease was given, or extended, for so long."""
        self.begin()
        at = self._world.monotonic() + lease_seconds
        if self._cancel is None or at < self._rings_at:
            if self._cancel is not None:
                self._cancel()
            self._rings_at = at
            self._cancel = self._world.linger(lease_seconds, self._over)

    def _over(self) -> None:
        # The keeper then looks for the next lease that ends, and needs no further ring for it.
        self._cancel = None
        if self._ring is not None:
            self._ring()

    async def close(self) -> None:
        """End the chores."""
        if self._cancel is not None:
            self._cancel()
        if self._own is not None:
            await self._own.close()


class _OwnKeeper:
    """The keeper and the relay of a server."""

    def __init__(self, store: Store, world: World) -> None:
        self._store, self._world = store, world
        self._reading: set[asyncio.Task[None]] = set()
        self._keeper = Keeper(store, failed=self._failed)
        self._relay = Relay(store, world, f"serve:{world.place()}")
        self._relay.begin()
        self._unlisten = store.listen(self._hint, None, self._changed)
        self._keeping = world.spawn(self._keeper.run(world.spawn), "holdfast-http-keeper")

    def ring(self) -> None:
        """Wake the keeper."""
        self._keeper.wake_up.ring()

    def _hint(self) -> None:
        self._keeper.wake_up.ring()
        self._relay.wake_up.ring()

    def _changed(self) -> None:
        self._keeper.wake_up.ring_for_change()
        self._relay.wake_up.ring_for_change()

    def _failed(self, runs: Sequence[UUID]) -> None:
        task = self._world.spawn(self._log_failed(runs), "holdfast-http-failed")
        self._reading.add(task)
        task.add_done_callback(self._reading.discard)

    async def _log_failed(self, runs: Sequence[UUID]) -> None:
        async for _ in failed_by_keeper(self._store, runs):
            pass

    async def close(self) -> None:
        """End the chores."""
        self._unlisten()
        self._keeping.cancel()
        with suppress(asyncio.CancelledError):
            await self._keeping
        await self._relay.end(GRACE_SECONDS)
