"""Connections of one event loop: a few, each with several calls under way. One that failed is replaced."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

from redis.exceptions import ConnectionError  # noqa: A004 - the driver's

from .errors import DRIVER
from .link import Link, Node

IDLE_SECONDS = 0.01  # a connection that was not used for so long may have been closed meanwhile
AGAIN_SECONDS, AGAIN_MAX_SECONDS = 0.02, 1.0  # before the next try to connect, doubled each time


class Pool:
    """The connections of one event loop to the node that has the namespace.

    A call takes the connection with the fewest calls under way. While all have some, another one is opened,
    one at a time and at most so many. If none can be opened, the calls share those that there are.
    """

    def __init__(
        self, opened: Callable[[], Awaitable[Link]], aside: Callable[[Node], Awaitable[Link]], most: int
    ) -> None:
        self._opened, self._connected_to, self._most = opened, aside, most
        self._links: list[Link] = []
        self._asides: dict[Node, Link] = {}  # to nodes that get the namespace just now
        self._made: set[Link] = set()  # all that are not over, also those that take no more calls
        self._opening: asyncio.Task[Link] | None = None
        self._failures = 0
        self._is_closed = False

    def ready(self) -> Link | None:
        """Return a connection that a call can use at once, if there is one."""
        best: Link | None = None
        count = 0
        for link in self._links:
            if link.is_usable:
                count += 1
                if best is None or link.load < best.load:
                    best = link
        if best is None:
            return None
        if best.load:
            return best if self._opening is not None or count >= self._most else None
        return best if best.idle_seconds < IDLE_SECONDS else None

    async def link(self) -> Link:
        """Return a connection that is ready for a call."""
        link = self.ready()
        if link is None and (idle := [one for one in self._links if one.is_usable and not one.load]):
            await asyncio.sleep(0)  # let the loop look twice whether the server has closed them:
            await asyncio.sleep(0)  # it runs a task before it runs what it has just found
            link = next((one for one in idle if one.is_usable), None)
        if link is None and (busy := self._least()) is not None:
            return await self._another_or(busy)
        return link or await self._another()

    def _least(self) -> Link | None:
        """Return the connection with the fewest calls under way."""
        usable = (link for link in self._links if link.is_usable)
        return min(usable, key=lambda link: link.load, default=None)

    async def _another_or(self, busy: Link) -> Link:
        """Open a connection beside those that are busy. If that fails, a busy one has to do: a server may
        take no more connections and serve these."""
        opening = self._begin_opening()
        if self._failures:  # it waits before it tries
            return busy
        try:
            return await self._shared(opening)
        except DRIVER:
            if busy.is_usable:
                return busy
            raise

    async def _another(self) -> Link:
        """Open a connection."""
        return await self._shared(self._begin_opening())

    async def _shared(self, opening: asyncio.Task[Link]) -> Link:
        """Wait for a connection. Several callers wait for the same one: a cancel of one does not end it."""
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if opening.cancelled() and not (task is not None and task.cancelling()):
                raise ConnectionError("the store is closed") from None
            raise

    def _begin_opening(self) -> asyncio.Task[Link]:
        if self._opening is None:
            if self._is_closed:
                raise ConnectionError("the store is closed")
            self._opening = asyncio.ensure_future(self._open())
            self._opening.add_done_callback(_looked_at)
        return self._opening

    async def _open(self) -> Link:
        try:
            self._links = [link for link in self._links if link.is_usable]
            if self._failures:
                longest = min(AGAIN_SECONDS * 2**self._failures, AGAIN_MAX_SECONDS)
                await asyncio.sleep(longest * random.uniform(0.5, 1.0))  # noqa: S311 - no secret
            try:
                link = await self._opened()
            except DRIVER:
                self._failures += 1
                raise
            self._failures = 0
            self._links.append(self._kept(link))
            return link
        finally:
            self._opening = None

    async def aside(self, node: Node) -> Link:
        """Return a connection to a node that gets the namespace just now."""
        link = self._asides.get(node)
        if link is None or not link.is_usable:
            link = self._asides[node] = self._kept(await self._connected_to(node))
        return link

    def _kept(self, link: Link) -> Link:
        """Remember a new connection until it is over. One that comes after the end is closed."""
        if self._is_closed:
            link.close()
            raise ConnectionError("the store is closed")
        self._made = {one for one in self._made if not one.is_over}
        self._made.add(link)
        return link

    def leave(self, link: Link) -> bool:
        """Retire all connections, because one has learnt that the namespace is elsewhere. Return False if
        another call has learnt it before."""
        if link not in self._links:
            return False
        links, self._links = [*self._links, *self._asides.values()], []
        self._asides.clear()
        for one in links:
            one.retire()
        return True

    async def close(self) -> None:
        opening = self._opening
        self.end()
        if opening is not None:
            await asyncio.wait({opening})
        await asyncio.sleep(0)  # otherwise their transports may outlive the loop

    def end(self) -> None:
        """Close all connections. What was being opened is closed as soon as it is there."""
        self._is_closed = True
        if self._opening is not None:
            self._opening.cancel()
        made, self._made = self._made, set()
        self._links.clear()
        self._asides.clear()
        for link in made:
            link.close()


def _looked_at(opening: asyncio.Task[Link]) -> None:
    """Read the error of a task that nobody waits for any more."""
    if not opening.cancelled():
        opening.exception()
