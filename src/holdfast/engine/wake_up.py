"""The wake-up of loops that look for work: by a hint of the store, at a known time, or by polling."""

from __future__ import annotations

import asyncio

POLL_MIN_SECONDS = 0.02
POLL_MAX_SECONDS = 1.0
LOOK_SECONDS = 0.01  # shortest time between two looks, however many hints come
LOOK_SHARE = 0.1  # at most this share of a loop's time goes into looks


def between_looks(cost_seconds: float, share: float = LOOK_SHARE) -> float:
    """Return the seconds between two looks that hints cause: on a slow store they are further apart."""
    return min(max(LOOK_SECONDS, cost_seconds / share), POLL_MAX_SECONDS)


class WakeUp:
    """The wake-up of a loop that sleeps: by a hint, at a known instant, or after a poll time that grows."""

    def __init__(self, poll_seconds: float = POLL_MAX_SECONDS) -> None:
        self._event = asyncio.Event()
        self._poll = self._overdue = POLL_MIN_SECONDS
        self._poll_max = poll_seconds

    def ring(self) -> None:
        """Wake the loop: there may be news."""
        self._event.set()

    def found(self) -> None:
        """Note that work was found: the next poll comes soon."""
        self._poll = POLL_MIN_SECONDS

    async def wait(self, due_seconds: float | None) -> None:
        """Sleep until woken, until `due_seconds` have passed, or for the current poll time.

        Work that was due and was not found belongs to another worker or is held back by a limit: the loop
        does not poll fast for long. But no hint comes when it is free again, so the poll time stays below its
        maximum.
        """
        if due_seconds == 0:
            delay = self._overdue
            self._overdue = min(self._overdue * 2, self._poll_max, POLL_MAX_SECONDS)
        else:
            delay = min(self._poll, due_seconds) if due_seconds else self._poll
            self._poll, self._overdue = min(self._poll * 2, self._poll_max), POLL_MIN_SECONDS
        try:
            async with asyncio.timeout(delay):
                await self._event.wait()
        except TimeoutError:
            return
        finally:
            self._event.clear()
