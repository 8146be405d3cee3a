"""The wait for moves of leased runs: a worker that asks learns at once that a run was cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from uuid import UUID

from holdfast.contract import Store
from holdfast.engine.wake_up import POLL_MAX_SECONDS
from holdfast.records import Answer, LeaseState
from holdfast.world import World

CHECK_SECONDS = 0.2  # the shortest time between two reads for one worker
LOOK_SECONDS = 5.0  # a read although no hint came
READ_AT_ONCE = 8  # reads of all workers that the store gets at the same time: a move wakes all of them

Pair = tuple[UUID, int]


class Moved:
    """Reads the states of leases, at once or as soon as one of them has changed."""

    def __init__(self, store: Store, world: World) -> None:
        self._store, self._world = store, world
        self._turns = asyncio.Semaphore(READ_AT_ONCE)
        self._waiting: set[asyncio.Event] = set()
        self._unlisten: Callable[[], None] | None = None
        self._is_closed = False

    async def states(
        self, leases: Sequence[Pair], paused: Sequence[bool], wait_seconds: float
    ) -> list[LeaseState]:
        """Return the states; wait until one is no longer held, or a pause differs from what is known."""
        clock = self._world.monotonic
        until, event = clock() + wait_seconds, asyncio.Event()
        self._enter(event)
        try:
            while True:
                async with self._turns:
                    event.clear()
                    read_at = clock()
                    found = await self._store.lease_states(leases) if leases else []
                changed = any(
                    one.answer is not Answer.APPLIED or one.pause_asked != known
                    for one, known in zip(found, paused, strict=True)
                )
                if changed or clock() >= until or self._is_closed:
                    return found
                await _waited(event, min(until - clock(), self._look_seconds()))
                await asyncio.sleep(max(0.0, min(read_at + CHECK_SECONDS, until) - clock()))
        finally:
            self._leave(event)

    def _look_seconds(self) -> float:
        return LOOK_SECONDS if self._store.hears() else POLL_MAX_SECONDS

    def _enter(self, event: asyncio.Event) -> None:
        if self._unlisten is None:
            self._unlisten = self._store.listen(_ignore, self._ring)
        self._waiting.add(event)

    def _leave(self, event: asyncio.Event) -> None:
        self._waiting.discard(event)
        if not self._waiting and self._unlisten is not None:
            self._unlisten()
            self._unlisten = None

    def _ring(self) -> None:
        for event in self._waiting:
            event.set()

    def close(self) -> None:
        """Answer all that wait, at once: the server stops."""
        self._is_closed = True
        self._ring()


async def _waited(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(max(0.0, seconds)):
            await event.wait()
    except TimeoutError:
        pass


def _ignore() -> None:
    return
