"""The watch over held leases: a long poll tells that a run was cancelled or paused, within milliseconds.

Nothing depends on it: heartbeats bring the same news later. Runs that have just been claimed are not asked
about: most of them end soon. While runs with open waits are executed, the worker is woken every second: the
next heartbeat brings outcomes of their waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from holdfast.errors import HoldfastError, NotAllowed
from holdfast.records import Answer, LeaseState
from holdfast.world import World

from .book import Book, Entry, Name

YOUNG_SECONDS = 0.25  # a lease of this age is asked about
WAIT_MIN_SECONDS, WAIT_MAX_SECONDS = 0.25, 25.0  # of one poll: it grows while the leases stay the same
LEASES_MAX = 10_000  # in one poll
LEASES_A_SECOND = 2_000  # by so many leases the polls come less often
OPEN_SECONDS = 1.0  # between two wake-ups for runs with open waits
TROUBLE_SECONDS = 1.0

States = Callable[[Sequence[Entry], float], Awaitable[list[LeaseState]]]


class Watch:
    """The watch over the leases of a book. `holders` and `hint`: called as by every store."""

    def __init__(
        self,
        world: World,
        book: Book,
        states: States,
        holders: Callable[[], None],
        hint: Callable[[], None],
    ) -> None:
        self._world, self._book, self._states = world, book, states
        self._holders, self._hint = holders, hint
        self._claimed, self._holds = asyncio.Event(), asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def begin(self) -> None:
        """Watch until `end`."""
        self._tasks = [
            self._world.spawn(self._watch(), "holdfast-watch"),
            self._world.spawn(self._wake(), "holdfast-watch-waits"),
        ]

    def end(self) -> None:
        """Watch no more."""
        for one in self._tasks:
            one.cancel()

    def claimed(self) -> None:
        """Note that there are new leases."""
        self._claimed.set()
        self._holds.set()

    async def _watch(self) -> None:
        wait, covered = WAIT_MIN_SECONDS, set[Name]()
        while True:
            asked = await self._old_enough()
            names = {one.name for one in asked}
            wait = min(2 * wait, WAIT_MAX_SECONDS) if names == covered else WAIT_MIN_SECONDS
            covered = names
            began = self._world.monotonic()
            try:
                await self._ask(asked, wait)
            except NotAllowed:
                return  # the claim loop says so
            except HoldfastError:
                await asyncio.sleep(TROUBLE_SECONDS)
            least = max(WAIT_MIN_SECONDS, len(asked) / LEASES_A_SECOND)
            await asyncio.sleep(max(0.0, began + least - self._world.monotonic()))

    async def _old_enough(self) -> list[Entry]:
        """Return the leases to ask about, as soon as there are any."""
        while True:
            self._claimed.clear()
            now, held = self._world.monotonic(), self._held()
            found = [one for one in held if now - one.since >= YOUNG_SECONDS]
            if found:
                return found[:LEASES_MAX]
            if held:
                await asyncio.sleep(YOUNG_SECONDS)
            else:
                await self._claimed.wait()

    def _held(self) -> list[Entry]:
        return [one for one in self._book.all() if not one.is_told and not one.is_stray]

    async def _ask(self, asked: Sequence[Entry], wait: float) -> None:
        """Poll once. A poll that is to wait for long is broken off for leases that it does not cover."""
        polling = asyncio.ensure_future(self._states(asked, wait))
        try:
            if wait > 2 * WAIT_MIN_SECONDS:
                claimed = asyncio.ensure_future(self._claimed.wait())
                await asyncio.wait([polling, claimed], return_when=asyncio.FIRST_COMPLETED)
                claimed.cancel()
                await asyncio.wait([polling], timeout=YOUNG_SECONDS)
                if not polling.done():
                    return
            states = await polling
        finally:
            polling.cancel()
        if self._learn(asked, states):
            self._holders()

    def _learn(self, asked: Sequence[Entry], states: Sequence[LeaseState]) -> bool:
        """Return True when a run was moved by somebody else. Runs that have ended here are no news."""
        is_news = False
        for one, state in zip(asked, states, strict=True):
            if self._book.find(*one.name) is None:
                continue
            moved = state.answer is not Answer.APPLIED
            if moved or state.pause_asked != one.is_paused:
                one.is_told, one.is_paused = moved, state.pause_asked
                is_news = True
        return is_news

    async def _wake(self) -> None:
        while True:
            if not self._book.all():
                self._holds.clear()
                await self._holds.wait()
            await asyncio.sleep(OPEN_SECONDS)
            if any(one.opens for one in self._book.all()):
                self._hint()
