"""Virtual time: when nothing is ready to run, the clock jumps to the next timer at once.

Only answers of threads are waited for in real time, and the virtual clock stands still meanwhile.

The seed and the order of calls decide everything, so the same test runs the same way every time. A world
simulates one process: it can be frozen, as by kill -9 or SIGSTOP, so that none of its code runs any more, and
thawed again as a zombie.
"""

from __future__ import annotations

import asyncio
import math
import random
import selectors
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from functools import partial
from typing import Any, TypeVar, TypeVarTuple, Unpack, cast
from uuid import UUID

from holdfast.arguments import Seconds, to_seconds
from holdfast.records import SECOND, Instant
from holdfast.threads import CallResult, Exchange, LockstepExchange, Pool, Stragglers
from holdfast.world import Dice, Pulse, uuid7

from .real_timers import IN_REAL_TIME, RealTimers

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

EPOCH: Instant = 1_767_225_600 * SECOND  # 2026-01-01T00:00:00Z
GRACE_TURNS = 100  # turns of the loop in which leftover tasks may end
RESOLUTION_SECONDS = 1e-7  # well below the microseconds that clocks here count in
PATIENCE_SECONDS = 60.0  # of real time, for a thread to answer

_THREADS = Pool(10_000, "holdfast-virtual")

_OWNER: ContextVar[VirtualWorld | None] = ContextVar("holdfast_process", default=None)


def process() -> VirtualWorld | None:
    """Return the simulated process that runs this code, also in one of its threads; None outside of any."""
    return _OWNER.get()


def disowned(context: Context) -> Context:
    """Return the same context, but outside of any simulated process."""
    context.run(_OWNER.set, None)
    return context


class Deadlock(Exception):
    """Nothing is ready and nothing is scheduled: the awaited result can never come."""


class _Selector(selectors.DefaultSelector):
    """A selector that turns the clock instead of waiting."""

    elapsed = 0  # microseconds
    rest: Callable[[], None] | None = None  # called instead of turning the clock
    wait: float | None = None  # seconds to the next timer, when `rest` was called
    awaited = 0  # answers of threads that have not come yet
    timers: RealTimers | None = None
    # ends a lingering call that is due before the clock would be turned so far
    linger: Callable[[float | None], bool] | None = None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout != 0 and self.awaited:
            assert self.timers is not None
            ready = super().select(seconds := self.timers.seconds(PATIENCE_SECONDS))
            if not self.timers.fire() and not ready and seconds == PATIENCE_SECONDS:
                raise Deadlock(f"a thread has not answered for {PATIENCE_SECONDS:g} s of real time")
            return ready
        if not ready and timeout != 0 and self.linger is not None and self.linger(timeout):
            return ready
        if not ready and timeout != 0 and self.rest is not None:
            self.wait = timeout
            self.rest()
            return ready
        if not ready and timeout is None:
            raise Deadlock("nothing is ready and nothing is scheduled, but the coroutine has not ended")
        if not ready and timeout:
            # Round up to the next microsecond: a store that counts in microseconds must find the timer due.
            # Round to nanoseconds first, or float noise would make each jump a microsecond too long.
            self.elapsed += math.ceil(round(timeout * SECOND, 3))
        return ready


class _Owned:
    """A callback of a simulated process: it is kept while the process is frozen."""

    __slots__ = ("callback", "context", "handle", "world")

    def __init__(self, callback: Callable[..., Any], context: Context, world: VirtualWorld) -> None:
        self.callback, self.context, self.world = callback, context, world
        self.handle: asyncio.Handle | None = None

    def __call__(self, *args: Any) -> None:
        if self.handle is not None and self.handle.cancelled():
            return  # it became due while the process was frozen, and was cancelled after the thaw
        if self.world.frozen:
            self.world.missed.append((self, args))
        else:
            self.callback(*args)


class _Lingering:
    """A function to call later, unless it is taken back."""

    __slots__ = ("context", "then", "until")

    def __init__(self, until: float, then: Callable[[], None]) -> None:
        self.until, self.context = until, copy_context()
        self.then: Callable[[], None] | None = then

    def take_back(self) -> None:
        self.then = None

    def __call__(self) -> None:
        if self.then is not None:
            self.then()


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop that never waits."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)
        self._virtual.linger = self._end_lingering
        self._virtual.timers = self._timers = RealTimers(self.call_soon)
        self._lingering: list[_Lingering] = []
        # asyncio runs timers that are due before now + this resolution. After half a year a nanosecond more
        # is the same float as now itself: a timer that is due at this very instant would then never run.
        self._clock_resolution = RESOLUTION_SECONDS
        self.faults: list[dict[str, Any]] = []
        self.frozen: set[VirtualWorld] = set()
        self.set_exception_handler(lambda _, fault: self.faults.append(fault))

    def check(self) -> None:
        """Raise an error that a callback or a forgotten task has raised."""
        for fault in self.faults:
            raise fault.get("exception") or RuntimeError(fault["message"])

    def time(self) -> float:
        """Return the seconds since the loop was made."""
        return self._virtual.elapsed / SECOND

    @property
    def elapsed(self) -> int:
        """Return the microseconds since the loop was made."""
        return self._virtual.elapsed

    def leap(self, delay: float) -> None:
        """Turn the clock as if everything had stood still meanwhile: timers fire late, once."""
        self._virtual.elapsed += round(delay * SECOND)

    def leap_to(self, elapsed: int) -> None:
        """Turn the clock to an instant; never back."""
        self._virtual.elapsed = max(self._virtual.elapsed, elapsed)

    def settle(self) -> float | None:
        """Run everything that can run without time; return the seconds to the next timer, if any."""
        self._virtual.rest = self.stop
        try:
            self.run_forever()
        finally:
            self._virtual.rest = None
        return self._virtual.wait

    def really_wait(self, answer: asyncio.Future[Any]) -> None:
        """Stop the clock until this answer is there: it is made outside of virtual time."""
        self._virtual.awaited += 1
        # In an empty context: a frozen process may get the answer, and the clock must still go on.
        answer.add_done_callback(self._answered, context=Context())

    def _answered(self, _: asyncio.Future[Any]) -> None:
        self._virtual.awaited -= 1

    def linger(self, delay: float, then: Callable[[], None]) -> Callable[[], None]:
        """Call `then` when nothing is ready, no thread has to answer and no timer fires within `delay`. The
        call comes at once: the clock is not turned for it. Return a function that takes it back."""
        self._lingering.append(one := _Lingering(self.time() + delay, then))
        return one.take_back

    def _end_lingering(self, timeout: float | None) -> bool:
        self._lingering = [one for one in self._lingering if one.then is not None]
        first = min(self._lingering, key=lambda one: one.until, default=None)
        if first is None or (timeout is not None and self.time() + timeout < first.until):
            return False
        self._lingering.remove(first)
        self.call_soon(first, context=first.context)
        return True

    def run_in_executor(
        self, executor: Any, func: Callable[[Unpack[Ts]], T], *args: *Ts
    ) -> asyncio.Future[T]:
        answer = super().run_in_executor(executor, func, *args)
        self.really_wait(answer)
        return answer

    def call_soon(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        context = copy_context() if context is None else context
        return _own(
            callback, context, lambda one: super(VirtualLoop, self).call_soon(one, *args, context=context)
        )

    def call_soon_threadsafe(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        context = copy_context() if context is None else context
        return _own(
            callback,
            context,
            lambda one: super(VirtualLoop, self).call_soon_threadsafe(one, *args, context=context),
        )

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        context = copy_context() if context is None else context
        if context.get(IN_REAL_TIME):
            return self._timers.add(when - self.time(), callback, args, context, self)
        return _own(
            callback, context, lambda one: super(VirtualLoop, self).call_at(when, one, *args, context=context)
        )


F = TypeVar("F", bound=Callable[..., object])
H = TypeVar("H", bound=asyncio.Handle)


def _own(callback: F, context: Context, schedule: Callable[[F], H]) -> H:
    world = context.get(_OWNER)
    if world is None:
        return schedule(callback)
    owned = _Owned(callback, context, world)
    owned.handle = handle = schedule(cast("F", owned))
    return handle


class _TaskPulse:
    def __init__(
        self, beat: Callable[[], None], interval_seconds: float, world: VirtualWorld, name: str
    ) -> None:
        self._beat, self._interval = beat, interval_seconds
        self._asked = asyncio.Event()
        self._task = world.spawn(self._run(), name)

    async def _run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._interval):
                    await self._asked.wait()
            except TimeoutError:
                pass
            self._asked.clear()
            self._beat()

    def ask(self) -> None:
        self._asked.set()

    async def stop(self) -> None:
        self._task.cancel()


class VirtualWorld:
    """A simulated process in virtual time, with seeded random numbers. Several may share one loop."""

    def __init__(self, seed: int = 0, begins_at: Instant = EPOCH) -> None:
        self._seed, self._begins_at = seed, begins_at
        self._random = random.Random(seed)  # noqa: S311 - a test is repeated by its seed
        self._ids = 0
        self._loop: asyncio.AbstractEventLoop | None = None  # the first loop that it is used on
        self.frozen = False
        self.missed: list[tuple[_Owned, tuple[Any, ...]]] = []

    def now(self) -> Instant:
        return self._begins_at + round(self.monotonic() * SECOND)

    def monotonic(self) -> float:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop.time()

    def chance(self) -> float:
        return self._random.random()

    def dice(self, seed: str) -> Dice:
        return random.Random(seed)  # noqa: S311 - the same seed must give the same numbers

    def uuid7(self) -> UUID:
        # The count comes before the random bits, so that ids of the same instant are in order too.
        self._ids += 1
        return uuid7(self.now() * 1000, self._ids << 32 | self._random.getrandbits(32))

    def place(self) -> str:
        return f"virtual:{self._seed}:{self._random.getrandbits(24):06x}"

    def spawn(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        context = copy_context()
        context.run(_OWNER.set, self)
        return asyncio.get_running_loop().create_task(work, name=name, context=context)

    async def thread(
        self, work: Callable[..., T], *args: Any, stragglers: Stragglers | None = None, separate: bool = False
    ) -> T:
        """Run the work in this thread, after other tasks had a turn; work that blocks stops everything."""
        await asyncio.sleep(0)
        return cast("T", copy_context().run(CallResult.of, partial(work, *args)).value())

    def exhausted(self) -> bool:
        return _THREADS.exhausted

    def exchange(self, stragglers: Stragglers) -> Exchange:
        """Return a talk with a real thread: sync code blocks there. No time passes and nothing else runs
        then.
        """
        return LockstepExchange(_THREADS, stragglers)

    def linger(self, delay_seconds: float, then: Callable[[], None]) -> Callable[[], None]:
        return _loop().linger(delay_seconds, then)

    def pulse(self, beat: Callable[[], None], interval_seconds: float, name: str) -> Pulse:
        return _TaskPulse(beat, interval_seconds, self, name)

    def freeze(self) -> None:
        """Crash the process: none of its tasks runs any more, not even a `finally`."""
        self.frozen = True
        loop = self._loop or _loop()  # its own loop: the caller may be a sync function in a thread
        assert isinstance(loop, VirtualLoop)
        loop.frozen.add(self)

    def thaw(self) -> None:
        """Let a frozen process go on; callbacks that became due meanwhile run now."""
        self.frozen = False
        _loop().frozen.discard(self)
        missed, self.missed = self.missed, []
        for owned, args in missed:
            # In its own context, or tasks that it spawns later would belong to no process.
            asyncio.SelectorEventLoop.call_soon(_loop(), owned, *args, context=owned.context)

    def leap(self, duration: Seconds = 0) -> None:
        """Turn the clock, past all polls: a month of waiting in one step."""
        _loop().leap(to_seconds(duration))


def _loop() -> VirtualLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop


def play(scene: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine in virtual time to its end, and cancel the tasks that it leaves behind.

    Raise `Deadlock` when it can never end, and an error that a callback or a forgotten task has raised.
    """
    loop = VirtualLoop()
    asyncio.set_event_loop(loop)
    try:
        ended = loop.run_until_complete(_raising(scene, loop))
    finally:
        sweep(loop)
        asyncio.set_event_loop(None)
        loop.close()
    return ended


async def _raising(scene: Callable[[], Coroutine[Any, Any, T]], loop: VirtualLoop) -> T:
    ended = await scene()
    loop.check()
    return ended


def sweep(loop: VirtualLoop) -> None:
    """Cancel all tasks that are left on a loop."""
    for _ in range(GRACE_TURNS):
        left = asyncio.all_tasks(loop)
        if not left:
            return
        for world in loop.frozen:
            loop.call_soon(world.thaw)  # a frozen task could not be cancelled
        for task in left:
            task.cancel()
        loop.call_later(1.0, loop.stop)
        loop.run_forever()
