"""A store that fails on command: it stands before another one and is no relative of it.

A fault is a function of the call to make; it decides whether the call is made, how often, and what
comes back. Faults are planned per verb and number of the call: `faulty.plan("commit", 2, lose_reply)`.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from holdfast.contract import Store
from holdfast.errors import Unavailable

from .virtual import VirtualWorld

Call = Callable[[], Awaitable[Any]]
Fault = Callable[[Call], Coroutine[Any, Any, Any]]
Heard = Callable[[Any], None]

VERBS = frozenset(name for name in dir(Store) if inspect.iscoroutinefunction(getattr(Store, name)))


async def fail_before(_: Call) -> Any:
    """The call never reaches the store."""
    raise Unavailable("the store cannot be reached")


async def lose_reply(call: Call) -> Any:
    """The store does its work, and nobody hears of it."""
    await call()
    raise Unavailable("the reply was lost")


async def send_twice(call: Call) -> Any:
    """The call reaches the store twice; the answer is that to the second."""
    await call()
    return await call()


async def break_down(_: Call) -> Any:
    """The store raises what no contract speaks of."""
    raise ValueError("a bug in the store")


def delay(seconds: float) -> Fault:
    """The call reaches the store late."""

    async def late(call: Call) -> Any:
        await asyncio.sleep(seconds)
        return await call()

    return late


def delay_reply(seconds: float) -> Fault:
    """The reply comes late."""

    async def late(call: Call) -> Any:
        answer = await call()
        await asyncio.sleep(seconds)
        return answer

    return late


def die_before(world: VirtualWorld) -> Fault:
    """The process dies as it makes the call; thawed, it makes it after all."""

    async def dying(call: Call) -> Any:
        world.freeze()
        await asyncio.sleep(0)
        return await call()

    return dying


def die_after(world: VirtualWorld) -> Fault:
    """The process dies before it hears the answer."""

    async def dying(call: Call) -> Any:
        answer = await call()
        world.freeze()
        await asyncio.sleep(0)
        return answer

    return dying


class Faulty:
    """Every verb of the contract, handed on; the planned ones fail as planned."""

    def __init__(self, store: Any) -> None:
        self.inner = store
        self.calls: Counter[str] = Counter()
        self._plans: dict[tuple[str, int], Fault] = {}
        self._always: dict[str, Fault] = {}

    def __getattr__(self, name: str) -> Any:
        """A verb, or what else the store has."""
        found = getattr(self.inner, name)
        return partial(self._call, name, found) if name in VERBS else found

    def plan(self, verb: str, number: int, fault: Fault) -> None:
        """The number-th call of the verb from now on fails so; "*" counts every call."""
        self._plans[verb, self.calls[verb] + number] = fault

    def always(self, verb: str, fault: Fault | None) -> None:
        """Every call of the verb fails so, until None is given."""
        if fault is None:
            self._always.pop(verb, None)
        else:
            self._always[verb] = fault

    def struck(self, verb: str, args: tuple[Any, ...]) -> tuple[Fault | None, Heard | None]:
        """What is to happen at this call, and who is told what the store answered to it."""
        self.calls[verb] += 1
        self.calls["*"] += 1
        planned = self._plans.get((verb, self.calls[verb])) or self._plans.get(("*", self.calls["*"]))
        return planned or self._always.get(verb), None

    async def _call(self, verb: str, real: Callable[..., Awaitable[Any]], *args: Any, **options: Any) -> Any:
        fault, heard = self.struck(verb, args)
        call = _told(partial(real, *args, **options), heard)
        return await (call() if fault is None else fault(call))

    def renew(self, *args: Any) -> Any:
        """Not awaited: a fault that would take time is a renewal that does not get through."""
        fault, heard = self.struck("renew", args)

        async def real() -> Any:
            return self.inner.renew(*args)

        call = _told(real, heard)
        made = call() if fault is None else fault(call)
        try:
            made.send(None)
        except StopIteration as ended:
            return ended.value
        made.close()
        raise Unavailable("the renewal did not get through")


def _told(real: Call, heard: Heard | None) -> Callable[[], Coroutine[Any, Any, Any]]:
    async def call() -> Any:
        answer = await real()
        if heard is not None:
            heard(answer)
        return answer

    return call
