"""The order in which user code learns things, and the moment at which it can learn no more.

A run whose code uses one task only is answered at once. With several branches, answers are given
one at a time, in the order in which they were committed, each after the code has come to rest: so
a later execution wakes the same branch first, and `asyncio.wait(FIRST_COMPLETED)` picks the same
winner. At rest with nothing left but waits, the run parks; with branches, a moment later.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sized
from heapq import heappop, heappush
from inspect import CORO_CREATED, getcoroutinestate
from sys import getrefcount
from typing import Any

from .signals import Parked

# Loop turns without a call that count as rest. A result passes from future to task to gather to
# the awaiting code in three turns a level; nested groups take more. Where a loop shows that nothing at all
# waits for its turn, that is rest: with thousands of branches, the turns would be all that it does.
REST_ALONE = 3
REST_BRANCHED = 32
# How long a run with branches that has only waits left is given before it parks: one of them may await
# something of its own, a thread, a socket or a timer, which no loop shows.
PARK_SECONDS = 0.005
REFUSED_MAX = 100
SHOWN = 10  # keys that a complaint names


def _references() -> int:
    one = object()
    return getrefcount(one)


UNUSED = _references()  # of a context that nothing but a local variable holds

_UNSEEN = (None,)  # there may always be something

Linger = Callable[[float, Callable[[], None]], Callable[[], None]]


class Stage:
    """One execution's answers. `at_rest` is called when only waits are left."""

    __slots__ = (
        "_armed",
        "_asked",
        "_at_rest",
        "_held",
        "_late",
        "_linger",
        "_lingered",
        "_loop",
        "_order",
        "_queue",
        "_rank",
        "_ready",
        "_refused",
        "_stay",
        "_turns",
        "_unreleased",
        "alone",
        "closed",
        "going_on",
        "main",
        "promised",
        "returned",
        "running",
        "tasks",
        "waits",
    )

    def __init__(
        self, rank: dict[str, int], recorded: list[str], at_rest: Callable[[], None], linger: Linger
    ) -> None:
        self._loop = asyncio.get_running_loop()
        # asyncio's own loop lets its callbacks be seen; uvloop does not, and counts turns much faster.
        self._queue: Sized = getattr(self._loop, "_ready", _UNSEEN)
        self._rank, self._at_rest, self._linger = rank, at_rest, linger
        self._order, self._unreleased = deque(recorded), set(recorded)
        self._asked: list[tuple[int, int, asyncio.Future[Any]]] = []  # a heap, by rank
        self._ready: deque[tuple[asyncio.Future[Any], Any]] = deque()
        self._held: list[asyncio.Future[None]] = []
        self._stay: Callable[[], None] | None = None  # it is about to park, unless this is called
        self._turns, self._armed, self._refused, self._lingered = 0, False, 0, False
        self.main = asyncio.current_task()
        self.alone, self.closed, self.returned = True, False, False
        self.going_on = False  # the body has ended by continue_as
        self.tasks: dict[asyncio.Task[Any], str] = {}  # branches, with the key that each asked for last
        self._late: set[str] = set()  # asked for by a branch after the body has returned
        self.promised: dict[str, Coroutine[Any, Any, Any]] = {}  # asked for and not begun yet, by key
        self.running = 0  # steps whose function runs or whose commit is on its way
        self.waits: dict[str, asyncio.Future[Any]] = {}

    def leave(self) -> None:
        """This execution is over."""
        self.closed = True
        self._at_rest = _nothing
        for call in self.promised.values():
            if getcoroutinestate(call) == CORO_CREATED:
                call.close()  # what was forgotten is told already: Python need not complain of it too
        self.promised.clear()
        if self._stay is not None:
            self._stay()

    def enter(self, key: str) -> None:
        """Every awaited call of the context passes here."""
        task = asyncio.current_task()
        if task is not self.main and task is not None:
            self.alone = False
            self.tasks[task] = key
        if not self.alone or self.waits:
            self.arm()

    async def left_behind(self, *, used: bool) -> str:
        """Complain of what the body has left behind when it returned; empty: nothing.

        A call that was never awaited, and a branch that is still open and was not cancelled: what they asked
        for would vanish in silence. `used`: something holds the context still, perhaps a branch that has not
        begun. It has its turn now, in which it is refused.
        """
        if not (used or self.promised or self._open()):
            return ""
        self.returned = True
        await asyncio.sleep(0)
        for _ in range(REST_BRANCHED):  # each of nested task groups needs a turn to hand a cancel on
            if not self._open():
                break
            await asyncio.sleep(0)
        if forgotten := self._forgotten():
            return f"{_listed(forgotten)} was asked for and never awaited: write `await ctx.…`"
        if open_ := {*self._open(), *self._late}:
            return (
                f"{_listed(open_)} was begun in a task that is still open at the end of the workflow: "
                f"await that task, or cancel it (when one of its tasks fails, a TaskGroup cancels the rest; "
                f"gather does not)"
            )
        return ""

    async def give_way(self) -> None:
        """Let branches begin that have not: they are refused, or find themselves cancelled."""
        if self.promised:
            await asyncio.sleep(0)

    def _open(self) -> set[str]:
        return {key for task, key in self.tasks.items() if not task.done() and not task.cancelling()}

    def _forgotten(self) -> set[str]:
        return {key for key, call in self.promised.items() if getcoroutinestate(call) == CORO_CREATED}

    def check(self) -> None:
        """Once the run parks or stops, nothing that is asked for may happen in this execution."""
        if self.closed:
            raise Parked if asyncio.current_task() is self.main else asyncio.CancelledError

    async def refuse(self, key: str) -> None:
        """As `check`; but code that catches even this and asks again and again is held here until it is
        abandoned: raising for ever would never let the event loop have its turn."""
        self._refused += 1
        task = asyncio.current_task()
        if self.returned and task is not self.main and task is not None and not task.cancelling():
            self._late.add(key)
        if self._refused > REFUSED_MAX:
            await self._loop.create_future()
        self.check()

    async def replayed(self, key: str, value: Any) -> Any:
        """Hand on a recorded value when its turn has come."""
        first = self._first(key)
        if first and self.alone and not self._asked:
            return value
        future = self._loop.create_future()
        heappush(self._asked, (self._rank[key], id(future), future))
        self.arm()
        await future
        return value

    def _first(self, key: str) -> bool:
        """Whether all that was recorded before it has been asked for. If not, a branch will: the code that
        began it need not have given way to it yet."""
        order, unreleased = self._order, self._unreleased
        while order and order[0] != key and order[0] not in unreleased:
            order.popleft()
        unreleased.discard(key)
        return not order or order[0] == key

    async def live(self) -> None:
        """Wait until everything recorded that was asked for has been handed on."""
        if self.alone or not (self._asked or self._unreleased):
            return
        future: asyncio.Future[None] = self._loop.create_future()
        self._held.append(future)
        self.arm()
        await future

    def publish(self, future: asyncio.Future[Any], value: Any) -> None:
        """A live result is committed: hand it on, in order."""
        if self.alone and not self.waits:
            _give(future, value)
        else:
            self._ready.append((future, value))
            self.arm()

    def wait(self, key: str) -> asyncio.Future[Any]:
        """What a wait, or a step that backs off, is blocked on."""
        future = self.waits[key] = self._loop.create_future()
        self.arm()
        return future

    def settle(self, key: str, value: Any) -> None:
        """A wait has its outcome while the run is held."""
        future = self.waits.pop(key, None)
        if future is not None:
            self._ready.append((future, value))
            self.arm()

    def arm(self) -> None:
        """Something happened: count the quiet turns anew."""
        self._turns, self._lingered = 0, False
        if not self._armed:
            self._armed = True
            if self._stay is not None:
                self._stay()
                self._stay = None
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._turns += 1
        if self.closed:
            self._armed = False
        elif self._queue and self._turns < (REST_ALONE if self.alone else REST_BRANCHED):
            self._loop.call_soon(self._turn)
        else:
            self._armed = False
            self._rest()

    def _rest(self) -> None:
        if self._asked:
            _give(heappop(self._asked)[2], None)
            self.arm()
        elif self._ready:
            _give(*self._ready.popleft())
            self.arm()
        elif self._held:
            # What is recorded and was not asked for by now belongs to code that has changed.
            self._unreleased.clear()
            self._order.clear()
            held, self._held = self._held, []
            for future in held:
                _give(future, None)
            self.arm()
        else:
            # A wait whose branch was cancelled has nobody left to wake: it must not make the run park.
            self.waits = {key: future for key, future in self.waits.items() if not future.done()}
            if not self.waits:
                return
            if self.alone or self.running or self._lingered:
                self._at_rest()
            else:
                self._stay = self._linger(PARK_SECONDS, self._still)

    def _still(self) -> None:
        """What a branch awaited may have come in this very turn: it is heard first, if it calls."""
        self.arm()
        self._lingered = True


def _nothing() -> None:
    return


def _listed(keys: set[str]) -> str:
    """The first few, quoted."""
    shown = ", ".join(repr(key) for key in sorted(keys)[:SHOWN])
    return shown if len(keys) <= SHOWN else f"{shown} and {len(keys) - SHOWN} more"


def _give(future: asyncio.Future[Any], value: Any) -> None:
    if not future.done():  # a branch that was cancelled has stopped listening
        future.set_result(value)
