"""The wake-up of loops that look for work: by a hint of the store, at a known time, or by polling.

The loops of a worker share the looks that no hint asks for: one look tells all of them when they have to do
something.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from holdfast.contract import Store
from holdfast.records import SECOND, Due, Instant

POLL_MIN_SECONDS = 0.02
POLL_MAX_SECONDS = 1.0
LOOK_SECONDS = 0.01  # shortest time between two looks, however many hints come
LOOK_SHARE = 0.1  # at most this share of a loop's time goes into looks


def between_looks(cost_seconds: float, share: float = LOOK_SHARE) -> float:
    """Return the seconds between two looks that hints cause: on a slow store they are further apart."""
    return min(max(LOOK_SECONDS, cost_seconds / share), POLL_MAX_SECONDS)


def poll_of(
    store: Store, most_seconds: float = math.inf, *, chosen: float | None = None
) -> Callable[[], float]:
    """Return a function that says the longest sleep without a wake-up: short while no hints come. chosen: in
    place of what the store asks for.
    """

    def poll_seconds() -> float:
        seconds = min(store.traits.poll_seconds, most_seconds) if chosen is None else chosen
        return seconds if store.hears() else min(seconds, POLL_MAX_SECONDS)

    return poll_seconds


def seconds_until(at: Instant | None, now: Instant, age_seconds: float = 0.0) -> float | None:
    """Return the seconds until an instant; `now`: what the store's clock said so many seconds ago."""
    return None if at is None else max(0.0, (at - now) / SECOND - age_seconds)


class Look(NamedTuple):
    """The answer of the store, and when it was asked and came, by the clock of the event loop."""

    due: Due
    asked_at: float
    came_at: float

    def seconds_until(self, at: Instant | None) -> float | None:
        """Return the seconds from now until an instant of the answer."""
        return seconds_until(at, self.due.now, asyncio.get_running_loop().time() - self.came_at)


class Looks:
    """The looks that the loops of a worker share: one of them asks, for all."""

    def __init__(self, ask: Callable[[], Awaitable[Due]]) -> None:
        self._ask, self._turn = ask, asyncio.Lock()
        self._last: Look | None = None
        self._changes = 0

    def expire(self) -> None:
        """Note that something may have changed: a look that has begun is no answer to those who ask now.

        Times cannot tell: the clock of an event loop may be as coarse as a millisecond.
        """
        self._changes += 1
        self._last = None

    async def since(self, at: float) -> Look:
        """Return a look that began at this time or later, and after the last change."""
        clock = asyncio.get_running_loop().time
        async with self._turn:
            look = self._last
            if look is None or look.asked_at < at:
                asked_at, changes = clock(), self._changes
                look = Look(await self._ask(), asked_at, clock())
                self._last = look if changes == self._changes else None
            return look


class WakeUp:
    """The wake-up of a loop that sleeps: by a hint, at a known instant, or after a poll time that grows."""

    def __init__(self, poll_seconds: float | Callable[[], float] = POLL_MAX_SECONDS) -> None:
        self._event = asyncio.Event()
        self._poll = self._overdue = POLL_MIN_SECONDS
        self._poll_seconds = poll_seconds
        self._rung = self._changed = False

    def ring(self) -> None:
        """Wake the loop: there may be news."""
        self._rung = True
        self._event.set()

    def ring_for_change(self) -> None:
        """Wake the loop: something has changed, which may be no news. A look tells, also one of others."""
        self._changed = True
        self._event.set()

    def found(self) -> None:
        """Note that work was found: the next poll comes soon."""
        self._poll = POLL_MIN_SECONDS

    async def wait(self, due_seconds: float | None, looked_at: float | None = None) -> float | None:
        """Sleep until woken, until `due_seconds` have passed, or for the current poll time since `looked_at`,
        which is now if it is left out.

        Return None when there may be work. After a poll, or a change, return a time: a look that began then
        or later, for whichever loop, is good enough if nothing has changed since.

        Work that was due and was not found belongs to another worker or is held back by a limit: the loop
        does not poll fast for long. But no hint comes when it is free again, so the poll time stays below its
        maximum.
        """
        clock, polls = asyncio.get_running_loop().time, False
        most = self._poll_seconds() if callable(self._poll_seconds) else self._poll_seconds
        if due_seconds == 0:
            delay = min(self._overdue, most)
            self._overdue = min(self._overdue * 2, most, POLL_MAX_SECONDS)
        else:
            poll = delay = min(self._poll, most)
            if looked_at is not None:
                delay = max(0.0, looked_at + poll - clock())
            polls = due_seconds is None or due_seconds > delay
            delay = delay if polls or due_seconds is None else due_seconds
            self._poll, self._overdue = min(poll * 2, most), POLL_MIN_SECONDS
        try:
            async with asyncio.timeout(delay):
                await self._event.wait()
        except TimeoutError:
            pass
        finally:
            rung, changed = self._rung, self._changed
            self._rung = self._changed = False
            self._event.clear()
        if rung or changed:
            return None if rung else -math.inf
        return clock() - delay / 2 if polls else None
