"""Turns: so many reads at once, and the tenants take turns. A thousand streams of one hold up no other."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Turns:
    """Like a semaphore, but a free place goes to the owner that has waited longest for its turn."""

    def __init__(self, most: int) -> None:
        self._free = most
        # By owner, those that wait, in order; the owner whose turn is next comes first.
        self._waiting: OrderedDict[str | None, deque[asyncio.Future[None]]] = OrderedDict()

    @asynccontextmanager
    async def of(self, owner: str | None) -> AsyncIterator[None]:
        """Hold a place while the block runs."""
        if self._free > 0:  # then nobody waits
            self._free -= 1
        else:
            await self._turn(owner)
        try:
            yield
        finally:
            self._next()

    async def _turn(self, owner: str | None) -> None:
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue = self._waiting.setdefault(owner, deque())
        queue.append(mine)
        try:
            await mine
        except asyncio.CancelledError:
            if not mine.cancelled():
                self._next()  # it was given a place, and does not need it
            elif mine in queue:
                queue.remove(mine)
                if not queue and self._waiting.get(owner) is queue:
                    del self._waiting[owner]
            raise

    def _next(self) -> None:
        """Pass a place on: to the owner that comes first, which then comes last."""
        while self._waiting:
            owner, queue = self._waiting.popitem(last=False)
            first = queue.popleft()
            if queue:
                self._waiting[owner] = queue
            if not first.done():  # cancelled in this very turn of the loop
                first.set_result(None)
                return
        self._free += 1
