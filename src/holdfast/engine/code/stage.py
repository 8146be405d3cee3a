"""The stage of one execution: it decides in which order user code gets its answers, and when the run parks.

A run whose code uses only one task is answered at once. With several branches (tasks), answers are given
one at a time, in the order in which they were committed, each after the code has come to rest. So a later
execution wakes the same branch first, and `asyncio.wait(FIRST_COMPLETED)` picks the same winner. When the
code is at rest and only waits are left, the run parks; with branches, a moment later.
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

# The number of loop turns without a call that counts as rest. A result passes from future to task to gather
# to the awaiting code in three turns a level; nested groups take more. Where a loop shows that nothing at all
# waits for its turn, that is rest: with thousands of branches, the turns would be all that it does.
REST_ALONE = 3
REST_BRANCHED = 32
# The time before a run with branches parks when only waits are left: a branch may await something of its
# own, such as a thread, a socket or a timer, which the loop does not show.
PARK_SECONDS = 0.005
REFUSED_MAX = 100
SHOWN = 10  # at most so many keys are named in a complaint


def _references() -> int:
    one = object()
    return getrefcount(one)


UNUSED = _references()  # the reference count of a context that only a local variable holds

_UNSEEN = (None,)  # without the loop's list, assume that something may be ready

Linger = Callable[[float, Callable[[], None]], Callable[[], None]]


class Stage:
    """The answers of one execution. `at_rest` is called when only waits are left."""

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
        # the timer after which the run parks, unless a call comes
        self._stay: Callable[[], None] | None = None
        self._turns, self._armed, self._refused, self._lingered = 0, False, 0, False
        self.main = asyncio.current_task()
        self.alone, self.closed, self.returned = True, False, False
        self.going_on = False  # the body has ended by continue_as
        self.tasks: dict[asyncio.Task[Any], str] = {}  # branches, each with the key of its last call
        self._late: set[str] = set()  # keys that a branch asked for after the body returned
        self.promised: dict[str, Coroutine[Any, Any, Any]] = {}  # calls that have not begun, by key
        self.running = 0  # steps whose function runs or whose commit is on its way
        self.waits: dict[str, asyncio.Future[Any]] = {}

    def leave(self) -> None:
        """End this execution."""
        self.closed = True
        self._at_rest = _ignore
        for call in self.promised.values():
            if getcoroutinestate(call) == CORO_CREATED:
                call.close()  # a forgotten call is reported already: Python's own warning is not needed
        self.promised.clear()
        if self._stay is not None:
            self._stay()

    def enter(self, key: str) -> None:
        """Register an awaited call of the context; each one passes here."""
        task = asyncio.current_task()
        if task is not self.main and task is not None:
            self.alone = False
            self.tasks[task] = key
        if not self.alone or self.waits:
            self.arm()

    async def left_behind(self, *, used: bool) -> str:
        """Return a complaint about calls and branches that the body left open when it returned; empty: none.

        A call that was never awaited, and a branch that is open and was not cancelled, would be lost
        silently. `used`: something still holds the context, perhaps a branch that has not begun. It gets a
        turn now and is refused.
        """
        if not (used or self.promised or self._open()):
            return ""
        self.returned = True
        await asyncio.sleep(0)
        for _ in range(REST_BRANCHED):  # each level of nested task groups needs a turn to pass a cancel on
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
        """Let branches that have not begun run once, so that they see their refusal or their cancel."""
        if self.promised:
            await asyncio.sleep(0)

    def _open(self) -> set[str]:
        return {key for task, key in self.tasks.items() if not task.done() and not task.cancelling()}

    def _forgotten(self) -> set[str]:
        return {key for key, call in self.promised.items() if getcoroutinestate(call) == CORO_CREATED}

    def check(self) -> None:
        """Refuse every call once the run parks or stops."""
        if self.closed:
            raise Parked if asyncio.current_task() is self.main else asyncio.CancelledError

    async def refuse(self, key: str) -> None:
        """Refuse as `check` does. Code that catches even this and calls again is held here until it is
        abandoned: raising for ever would block the event loop."""
        self._refused += 1
        task = asyncio.current_task()
        if self.returned and task is not self.main and task is not None and not task.cancelling():
            self._late.add(key)
        if self._refused > REFUSED_MAX:
            await self._loop.create_future()
        self.check()

    async def replayed(self, key: str, value: Any) -> Any:
        """Return a recorded value when its turn has come."""
        first = self._first(key)
        if first and self.alone and not self._asked:
            return value
        future = self._loop.create_future()
        heappush(self._asked, (self._rank[key], id(future), future))
        self.arm()
        await future
        return value

    def _first(self, key: str) -> bool:
        """Return True when all values recorded before this one were asked for. If not, a branch that has not
        had its turn yet will ask for them."""
        order, unreleased = self._order, self._unreleased
        while order and order[0] != key and order[0] not in unreleased:
            order.popleft()
        unreleased.discard(key)
        return not order or order[0] == key

    async def live(self) -> None:
        """Wait until every recorded value that was asked for has been given."""
        if self.alone or not (self._asked or self._unreleased):
            return
        future: asyncio.Future[None] = self._loop.create_future()
        self._held.append(future)
        self.arm()
        await future

    def publish(self, future: asyncio.Future[Any], value: Any) -> None:
        """Give a live result that is committed now to user code, in order."""
        if self.alone and not self.waits:
            _give(future, value)
        else:
            self._ready.append((future, value))
            self.arm()

    def wait(self, key: str) -> asyncio.Future[Any]:
        """Return the future that a wait, or a step before its next try, is blocked on."""
        future = self.waits[key] = self._loop.create_future()
        self.arm()
        return future

    def settle(self, key: str, value: Any) -> None:
        """Give the outcome of a wait that was settled while the run is leased."""
        future = self.waits.pop(key, None)
        if future is not None:
            self._ready.append((future, value))
            self.arm()

    def arm(self) -> None:
        """Count the quiet turns from zero: something happened."""
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
            # A recorded value that nobody asked for by now belongs to code that has changed.
            self._unreleased.clear()
            self._order.clear()
            held, self._held = self._held, []
            for future in held:
                _give(future, None)
            self.arm()
        else:
            # A wait whose branch was cancelled wakes nobody: it must not make the run park.
            self.waits = {key: future for key, future in self.waits.items() if not future.done()}
            if not self.waits:
                return
            if self.alone or self.running or self._lingered:
                self._at_rest()
            else:
                self._stay = self._linger(PARK_SECONDS, self._still)

    def _still(self) -> None:
        """Wait one more moment: something that a branch awaits may have come in this very turn."""
        self.arm()
        self._lingered = True


def _ignore() -> None:
    return


def _listed(keys: set[str]) -> str:
    """Return the first few names, quoted."""
    shown = ", ".join(repr(key) for key in sorted(keys)[:SHOWN])
    return shown if len(keys) <= SHOWN else f"{shown} and {len(keys) - SHOWN} more"


def _give(future: asyncio.Future[Any], value: Any) -> None:
    if not future.done():  # the branch was cancelled and no longer waits
        future.set_result(value)
