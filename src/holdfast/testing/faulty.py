"""A store that fails on command: a wrapper around any other store.

A fault is a function of the call to make. It decides whether the call is made, how often, and what is
returned. Faults are planned by verb and number of the call: `faulty.plan("commit", 2, lose_reply)`.
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
OnAnswer = Callable[[Any], None]

VERBS = frozenset(name for name in dir(Store) if inspect.iscoroutinefunction(getattr(Store, name)))


async def fail_before(_: Call) -> Any:
    """Fail before the call reaches the store."""
    raise Unavailable("the store cannot be reached")


async def lose_reply(call: Call) -> Any:
    """Make the call, and lose its reply."""
    await call()
    raise Unavailable("the reply was lost")


async def send_twice(call: Call) -> Any:
    """Make the call twice, and return the second answer."""
    await call()
    return await call()


async def break_down(_: Call) -> Any:
    """Raise an error that the contract does not know."""
    raise ValueError("a bug in the store")


def delay(seconds: float) -> Fault:
    """Make the call late."""

    async def late(call: Call) -> Any:
        await asyncio.sleep(seconds)
        return await call()

    return late


def delay_reply(seconds: float) -> Fault:
    """Make the call, and return the reply late."""

    async def late(call: Call) -> Any:
        answer = await call()
        await asyncio.sleep(seconds)
        return answer

    return late


def die_before(world: VirtualWorld) -> Fault:
    """Freeze the process before the call; a thawed process then makes the call."""

    async def dying(call: Call) -> Any:
        world.freeze()
        await asyncio.sleep(0)
        return await call()

    return dying


def die_after(world: VirtualWorld) -> Fault:
    """Freeze the process after the call, before it gets the answer."""

    async def dying(call: Call) -> Any:
        answer = await call()
        world.freeze()
        await asyncio.sleep(0)
        return answer

    return dying


class Faulty:
    """Every verb of the contract, passed on to the store; planned calls fail as planned."""

    def __init__(self, store: Any) -> None:
        self.inner = store
        self.calls: Counter[str] = Counter()
        self._plans: dict[tuple[str, int], Fault] = {}
        self._always: dict[str, Fault] = {}

    def __getattr__(self, name: str) -> Any:
        """Return a verb with its faults, or any other attribute of the store."""
        found = getattr(self.inner, name)
        return partial(self._call, name, found) if name in VERBS else found

    def plan(self, verb: str, number: int, fault: Fault) -> None:
        """Plan this fault for the number-th call of the verb from now on; "*" counts every call."""
        self._plans[verb, self.calls[verb] + number] = fault

    def always(self, verb: str, fault: Fault | None) -> None:
        """Plan this fault for every call of the verb; None ends it."""
        if fault is None:
            self._always.pop(verb, None)
        else:
            self._always[verb] = fault

    def fault_for(self, verb: str, args: tuple[Any, ...]) -> tuple[Fault | None, OnAnswer | None]:
        """Return the fault of this call, if any, and a callback for the store's answer, if any."""
        self.calls[verb] += 1
        self.calls["*"] += 1
        planned = self._plans.get((verb, self.calls[verb])) or self._plans.get(("*", self.calls["*"]))
        return planned or self._always.get(verb), None

    async def _call(self, verb: str, real: Callable[..., Awaitable[Any]], *args: Any, **options: Any) -> Any:
        fault, on_answer = self.fault_for(verb, args)
        call: Call
        if on_answer is not None and getattr(self.inner, "notes_answers", False):
            call = partial(real, *args, on_answer=on_answer, **options)
        else:
            call = _notifying(partial(real, *args, **options), on_answer)
        return await (call() if fault is None else fault(call))

    def renew(self, *args: Any) -> Any:
        """Renew without await: a fault that takes time becomes a renewal that fails."""
        fault, on_answer = self.fault_for("renew", args)

        async def real() -> Any:
            return self.inner.renew(*args)

        call = _notifying(real, on_answer)
        made = call() if fault is None else fault(call)
        try:
            made.send(None)
        except StopIteration as ended:
            return ended.value
        made.close()
        raise Unavailable("the renewal did not get through")


def _notifying(real: Call, on_answer: OnAnswer | None) -> Callable[[], Coroutine[Any, Any, Any]]:
    async def call() -> Any:
        answer = await real()
        if on_answer is not None:
            on_answer(answer)
        return answer

    return call
