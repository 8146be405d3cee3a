"""Bugs to be switched in. A check that stays green with one of them in place checks nothing.

They are made from outside, in the memory of the process under test: the product has no switch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import msgspec

from holdfast.errors import Unavailable
from holdfast.records import Item, Verdict
from holdfast.world import Pulse, RealWorld

NO_FENCE, RENEW_ON_LOOP, BLIND_RESEND, TORN = "no-fence", "renew-on-loop", "blind-resend", "torn"

SABOTAGES = {
    NO_FENCE: "the guard of every commit ignores the fence: any worker may write what another holds",
    RENEW_ON_LOOP: "leases are renewed on the event loop, which a step may block",
    BLIND_RESEND: "a commit whose reply was lost is sent again under a new number",
    TORN: "what a transaction writes is committed by itself, before its checkpoint",
}


def apply(name: str, world: RealWorld) -> RealWorld:
    """Break this process; the world it is to use."""
    if name == NO_FENCE:
        drop_fence()
    return LoopWorld() if name == RENEW_ON_LOOP else world


def drop_fence() -> None:
    """SQLite's guard without its fence. A statement that no longer has it is an error, not a pass."""
    from holdfast.stores.sqlite import commit

    broken = commit.HOLD.replace("fence = :fence", "(fence = :fence or true)")
    if broken == commit.HOLD:
        raise RuntimeError("hold.sql has no `fence = :fence` to take away: mend this sabotage")
    commit.HOLD = broken


@contextmanager
def unfenced() -> Iterator[None]:
    """Both stores without their fence, within this process, for a while."""
    from holdfast.stores.memory import claim
    from holdfast.stores.memory import commit as memory
    from holdfast.stores.sqlite import commit as sqlite

    held, guard = claim.held, sqlite.HOLD
    with patch.object(memory, "held", lambda row, _, now: held(row, row.fence, now)):
        try:
            drop_fence()
            yield
        finally:
            sqlite.HOLD = guard


class LoopWorld(RealWorld):
    """A world whose pulse is a timer of the event loop."""

    def pulse(self, beat: Callable[[], None], interval_seconds: float, name: str) -> Pulse:
        return _LoopPulse(beat, interval_seconds)


class _LoopPulse:
    def __init__(self, beat: Callable[[], None], interval_seconds: float) -> None:
        self._beat, self._interval = beat, interval_seconds
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(interval_seconds, self._run)

    def _run(self) -> None:
        self._timer = self._loop.call_later(self._interval, self._run)
        self._beat()

    def ask(self) -> None:
        self._loop.call_soon_threadsafe(self._beat)

    async def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._timer.cancel)


class Blind:
    """A store that numbers commits when they are sent, not when they are made: a repeat is a new one."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._numbers: dict[tuple[Any, int], int] = {}

    def __getattr__(self, name: str) -> Any:
        """All other verbs."""
        return getattr(self._store, name)

    async def commit(self, batch: Sequence[Item]) -> list[Verdict]:
        while True:
            try:
                return await self._store.commit([self._numbered(item) for item in batch])  # type: ignore[no-any-return]
            except Unavailable:
                await asyncio.sleep(0.05)

    def _numbered(self, item: Item) -> Item:
        name = (item.run, item.fence)
        self._numbers[name] = number = self._numbers.get(name, 0) + 1
        return msgspec.structs.replace(item, number=number)
