"""The world, injected: clock, ids, chance, tasks and threads.

The engine asks nothing else for time or luck, so that it can run under a simulator with virtual
time and a seed. `RealWorld` is the one that people run on.
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
from .threads import Errand, Pool, Stragglers, Talk

T = TypeVar("T")

ASIDE = 10_000  # no limit but that of whoever asks: each hook has a few places of its own
# Counts while the machine is suspended, as the store's clock does; that of time.monotonic() may not. On macOS
# the clock with the plain name does.
_SLEEPLESS = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
THREADS = 128  # at most so many for plain workflows, and as many for plain steps


class Dice(Protocol):
    """A sequence of draws."""

    def random(self) -> float:
        """The next number in [0, 1)."""

    def getrandbits(self, k: int, /) -> int:
        """The next `k` bits."""


class Pulse(Protocol):
    """A call repeated at an interval, and at once when asked."""

    def ask(self) -> None:
        """Beat now; askers while a beat is on its way share the next one."""

    async def stop(self) -> None:
        """No beat begins after this returns, and none is under way."""


class World(Protocol):
    """What the engine may know of time, chance and concurrency."""

    def now(self) -> Instant:
        """The wall clock: for what people read; never compared with a store's."""

    def monotonic(self) -> float:
        """Seconds that only grow, also while the machine is suspended: for local limits."""

    def chance(self) -> float:
        """A number in [0, 1)."""

    def dice(self, seed: str) -> Dice:
        """Chance that is the same for the same seed, for ever."""

    def uuid7(self) -> UUID:
        """A fresh id, ordered by time."""

    def place(self) -> str:
        """Where this runs, readable and unique to this process start: host:pid:suffix."""

    def spawn(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """A task of its own."""

    async def thread(
        self, work: Callable[..., T], *args: Any, stragglers: Stragglers | None = None, aside: bool = False
    ) -> T:
        """Run a plain function where it does not block the loop, with the caller's context.

        One that is left behind by a cancel is counted among the stragglers until it returns. `aside`: in
        none of the threads that steps need, however many there are.
        """

    def exhausted(self) -> bool:
        """Whether plain code can begin nowhere before one returns that nobody waits for any more."""

    def talk(self, stragglers: Stragglers) -> Talk:
        """A conversation with a plain function in a thread of its own kind: never one that `thread` uses."""

    def linger(self, delay_seconds: float, then: Callable[[], None]) -> Callable[[], None]:
        """Call `then` in so long, on this loop. Answers the call that takes it back."""

    def pulse(self, beat: Callable[[], None], interval_seconds: float, name: str) -> Pulse:
        """Begin to call `beat` from where a blocked event loop cannot starve it."""


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
            # It ends with its loop, too: nobody would learn what it finds out, but leases would live on.
            if self._stopped or self._loop.is_closed():
                break
            self._beat()
        with suppress(RuntimeError):  # the loop has closed: nobody is left to tell
            self._loop.call_soon_threadsafe(self._ended.set_result, None)

    def ask(self) -> None:
        self._asked.set()

    async def stop(self) -> None:
        # Not by joining it in a thread of the pool: functions that do not return may hold all of those.
        self._stopped = True
        self._asked.set()
        await asyncio.shield(self._ended)


class RealWorld:
    """The machine's own clock, randomness and threads."""

    def __init__(self, threads: int = THREADS) -> None:
        # Two pools: workflows that wait for their plain steps would otherwise hold the threads of these.
        self._steps = Pool(threads, "holdfast-step")
        self._workflows = Pool(threads, "holdfast-workflow")
        self._aside = Pool(ASIDE, "holdfast-hook")
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
        return uuid7(time.time_ns(), secrets.randbits(62))

    def place(self) -> str:
        return f"{socket.gethostname().split('.')[0]}:{os.getpid()}:{self._suffix}"

    def spawn(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        return asyncio.get_running_loop().create_task(work, name=name)

    async def thread(
        self, work: Callable[..., T], *args: Any, stragglers: Stragglers | None = None, aside: bool = False
    ) -> T:
        pool = self._aside if aside else self._steps
        return cast("T", await Errand(pool, partial(work, *args), stragglers).done())

    def exhausted(self) -> bool:
        return self._steps.exhausted or self._workflows.exhausted

    def talk(self, stragglers: Stragglers) -> Talk:
        return Talk(self._workflows, stragglers)

    def linger(self, delay_seconds: float, then: Callable[[], None]) -> Callable[[], None]:
        return asyncio.get_running_loop().call_later(delay_seconds, then).cancel

    def pulse(self, beat: Callable[[], None], interval_seconds: float, name: str) -> Pulse:
        return _ThreadPulse(beat, interval_seconds, name)


def uuid7(nanoseconds: int, chance: int) -> UUID:
    """RFC 9562 version 7: milliseconds, then 12 bits of their fraction, then 62 bits of chance."""
    millis, rest = divmod(nanoseconds, 1_000_000)
    fraction = rest * 4096 // 1_000_000
    return UUID(
        int=(millis & (1 << 48) - 1) << 80 | 7 << 76 | fraction << 64 | 2 << 62 | chance & (1 << 62) - 1
    )
