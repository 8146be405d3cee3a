"""The world that is injected into the engine: clock, ids, chance, tasks and threads.

The engine takes time and chance from nowhere else, so that it can run under a simulator with virtual time
and a seed. Applications run on `RealWorld`.
"""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import socket
import threading
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, Protocol, TypeVar, cast
from uuid import UUID

from .records import Instant
from .threads import Exchange, Pool, Stragglers, ThreadCall

T = TypeVar("T")

# practically no limit: callers have limits of their own, such as a few slots for each hook
SEPARATE_THREADS = 10_000
# This clock counts on while the machine is suspended, as the store's clock does. time.monotonic() may not. On
# macOS CLOCK_MONOTONIC does.
_SLEEPLESS = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
THREADS = 128  # limit for sync workflows, and the same for sync steps


class Dice(Protocol):
    """A sequence of random draws."""

    def random(self) -> float:
        """Return the next number in [0, 1)."""

    def getrandbits(self, k: int, /) -> int:
        """Return the next `k` bits."""


class Pulse(Protocol):
    """A call repeated at an interval, and at once when asked."""

    def ask(self) -> None:
        """Beat now. Requests during a beat share the next one."""

    async def stop(self) -> None:
        """Stop: when this returns, no beat runs and none begins."""


class World(Protocol):
    """Time, chance and concurrency for the engine."""

    def now(self) -> Instant:
        """Return the wall clock, for texts that people read; never compared with a store's clock."""

    def monotonic(self) -> float:
        """Return seconds that only grow, also while the machine is suspended: for local limits."""

    def chance(self) -> float:
        """Return a random number in [0, 1)."""

    def dice(self, seed: str) -> Dice:
        """Return a sequence of draws that is always the same for the same seed."""

    def uuid7(self) -> UUID:
        """Return a new id, ordered by time."""

    def place(self) -> str:
        """Return the name of this process, readable and unique to its start: host:pid:suffix."""

    def spawn(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Start a task."""

    async def thread(
        self, work: Callable[..., T], *args: Any, stragglers: Stragglers | None = None, separate: bool = False
    ) -> T:
        """Run a sync function in a thread, with the caller's context.

        A function that a cancel leaves behind is counted among the stragglers until it returns. `separate`:
        use a pool that steps do not share.
        """

    def exhausted(self) -> bool:
        """Return True when no sync code can start before a straggler returns."""

    def exchange(self, stragglers: Stragglers) -> Exchange:
        """Return an exchange with a sync function in a thread of the workflows' pool, which `thread` never
        uses.
        """

    def linger(self, delay_seconds: float, then: Callable[[], None]) -> Callable[[], None]:
        """Call `then` on this loop after the delay. Return a function that cancels the call."""

    def pulse(self, beat: Callable[[], None], interval_seconds: float, name: str) -> Pulse:
        """Call `beat` at an interval from a thread, which a blocked event loop cannot delay."""


class _ThreadPulse:
    def __init__(self, beat: Callable[[], None], interval_seconds: float, name: str) -> None:
        self._beat, self._interval = beat, interval_seconds
        self._asked, self._stopped = threading.Event(), False
        self._loop = asyncio.get_running_loop()
        self._ended = self._loop.create_future()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def _run(self) -> None:
        while True:
            self._asked.wait(self._interval)
            self._asked.clear()
            # The pulse ends with its loop too. Otherwise leases would be renewed whose runs nobody executes.
            if self._stopped or self._loop.is_closed():
                break
            self._beat()
        with suppress(RuntimeError):  # the loop has closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._ended.set_result, None)

    def ask(self) -> None:
        self._asked.set()

    async def stop(self) -> None:
        # The thread is not joined in a thread of the pool: functions that do not return may hold all of them.
        self._stopped = True
        self._asked.set()
        await asyncio.shield(self._ended)


class RealWorld:
    """The machine's own clock, randomness and threads."""

    def __init__(self, threads: int = THREADS) -> None:
        # Two pools: otherwise workflows that wait for their sync steps would hold the threads of these steps.
        self._steps = Pool(threads, "holdfast-step")
        self._workflows = Pool(threads, "holdfast-workflow")
        self._separate = Pool(SEPARATE_THREADS, "holdfast-hook")
        self._suffix = secrets.token_hex(3)

    def now(self) -> Instant:
        return time.time_ns() // 1000

    def monotonic(self) -> float:
        return time.clock_gettime(_SLEEPLESS)

    def chance(self) -> float:
        return random.random()

    def dice(self, seed: str) -> Dice:
        return random.Random(seed)

    def uuid7(self) -> UUID:
        return uuid7(time.time_ns(), int.from_bytes(os.urandom(8)))

    def place(self) -> str:
        return f"{socket.gethostname().split('.')[0]}:{os.getpid()}:{self._suffix}"

    def spawn(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        return asyncio.get_running_loop().create_task(work, name=name)

    async def thread(
        self, work: Callable[..., T], *args: Any, stragglers: Stragglers | None = None, separate: bool = False
    ) -> T:
        pool = self._separate if separate else self._steps
        return cast("T", await ThreadCall(pool, partial(work, *args), stragglers).done())

    def exhausted(self) -> bool:
        return self._steps.exhausted or self._workflows.exhausted

    def exchange(self, stragglers: Stragglers) -> Exchange:
        return Exchange(self._workflows, stragglers)

    def linger(self, delay_seconds: float, then: Callable[[], None]) -> Callable[[], None]:
        return asyncio.get_running_loop().call_later(delay_seconds, then).cancel

    def pulse(self, beat: Callable[[], None], interval_seconds: float, name: str) -> Pulse:
        return _ThreadPulse(beat, interval_seconds, name)


def uuid7(nanoseconds: int, chance: int) -> UUID:
    """Make a UUID by RFC 9562 version 7: milliseconds, 12 bits of their fraction, 62 random bits."""
    millis, rest = divmod(nanoseconds, 1_000_000)
    fraction = rest * 4096 // 1_000_000
    return UUID(
        int=(millis & (1 << 48) - 1) << 80 | 7 << 76 | fraction << 64 | 2 << 62 | chance & (1 << 62) - 1
    )
