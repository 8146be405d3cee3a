"""A store that fails on command: it stands before another one and is no relative of it.

Faults are planned per verb and number of the call: `faulty.plan("commit", 2, lose_reply)`. Each is
a function of the call to make; it decides whether the call happens, and what comes back.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from holdfast.errors import Unavailable
from holdfast.store import Store

Call = Callable[[], Awaitable[Any]]
Fault = Callable[[Call], Awaitable[Any]]

VERBS = frozenset(name for name in dir(Store) if not name.startswith("_")) - {"listen", "renew"}


async def fail_before(call: Call) -> Any:
    """The call never reaches the store."""
    raise Unavailable("the store cannot be reached")


async def lose_reply(call: Call) -> Any:
    """The store does its work, and nobody hears of it."""
    await call()
    raise Unavailable("the reply was lost")


async def break_down(call: Call) -> Any:
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


def die_before(world: Any) -> Fault:
    """The process dies as it makes the call."""

    async def dying(call: Call) -> Any:
        world.freeze()
        await asyncio.sleep(0)
        return await call()

    return dying


def die_after(world: Any) -> Fault:
    """The process dies before it hears the answer."""

    async def dying(call: Call) -> Any:
        answer = await call()
        world.freeze()
        await asyncio.sleep(0)
        return answer

    return dying


class Faulty:
    """Every verb of the contract, handed on; the planned ones fail as planned."""

    def __init__(self, store: Store) -> None:
        self.inner = store
        self.calls: Counter[str] = Counter()
        self.made: list[str] = []
        self._plans: dict[tuple[str, int], Fault] = {}
        self._always: dict[str, Fault] = {}

    def plan(self, verb: str, number: int, fault: Fault) -> None:
        """The number-th call of the verb from now on fails so; "*" counts every call."""
        self._plans[verb, self.calls[verb] + number] = fault

    def always(self, verb: str, fault: Fault | None) -> None:
        """Every call of the verb fails so, until None is given."""
        if fault is None:
            self._always.pop(verb, None)
        else:
            self._always[verb] = fault

    def _fault(self, verb: str) -> Fault | None:
        self.made.append(verb)
        self.calls[verb] += 1
        self.calls["*"] += 1
        planned = self._plans.get((verb, self.calls[verb])) or self._plans.get(("*", self.calls["*"]))
        return planned or self._always.get(verb)

    def renew(self, worker: str, leases: Any, lease_seconds: float) -> Any:
        fault = self._fault("renew")
        if fault is None:
            return self.inner.renew(worker, leases, lease_seconds)
        if fault is lose_reply:
            self.inner.renew(worker, leases, lease_seconds)
        if fault is break_down:
            raise ValueError("a bug in the store")
        raise Unavailable("the renewal did not get through")

    def listen(self, hint: Callable[[], None]) -> Callable[[], None]:
        return self.inner.listen(hint)


def _handed_on(verb: str) -> Callable[..., Awaitable[Any]]:
    async def call(self: Faulty, *args: Any, **kwargs: Any) -> Any:
        fault = self._fault(verb)
        made: Call = lambda: getattr(self.inner, verb)(*args, **kwargs)  # noqa: E731 - it is the call itself
        return await (made() if fault is None else fault(made))

    call.__name__ = verb
    return call


for _verb in VERBS:
    setattr(Faulty, _verb, _handed_on(_verb))
