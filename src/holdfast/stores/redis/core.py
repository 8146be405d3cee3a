"""The part of the store that all verbs use: a verb is a function over a snapshot, run until it is saved."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from holdfast.errors import Unavailable
from holdfast.records import Instant

from .address import Address
from .batches import Batch
from .connections import Connections
from .names import Names
from .plain import Holdings
from .snapshot import Missing, Snapshot

T = TypeVar("T")

TRIES = 200  # how often a verb is decided anew, because what it has read was changed meanwhile
ROUNDS = 10_000  # round trips of reads of one verb
TURN_SECONDS = 5.0  # how long a verb waits for others that are decided anew
NAP_SECONDS, NAP_MAX_SECONDS = 0.0005, 0.05


class Core:
    """Verbs of the store are mixins over this."""

    address: Address
    _names: Names
    _connections: Connections
    _clock: Callable[[], Instant] | None
    _holdings: Holdings
    _turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock]  # of verbs that are decided anew
    fast: bool = True  # False: every verb goes through the machine, for tests that compare
    _ahead: Instant = 0  # how much the server's clock is ahead of this process's

    def _batch(self, *keys: str, each: Iterable[str] = ()) -> Batch:
        """Begin the call of a script. `keys`: its own, from KEYS[4] on; `each`: those of its runs, behind."""
        if self._clock is not None:
            return Batch(self._names, self._clock(), self._clock(), *keys, each=each)
        return Batch(self._names, None, time.time_ns() // 1000 + self._ahead, *keys, each=each)

    async def _run(self, name: str, batch: Batch) -> list[Any]:
        """Run a script. Its answer begins with the clock of the server, which is left out here."""
        return (await self._run_all(name, [batch]))[0]

    async def _run_all(self, name: str, batches: Sequence[Batch]) -> list[list[Any]]:
        """Run a script several times, in one round trip."""
        answers = await self._connections.run_all(name, [(one.keys, one.args) for one in batches])
        self._ahead = int(answers[-1][0]) - time.time_ns() // 1000
        return [answer[1:] for answer in answers]

    async def _read(self, work: Callable[[Snapshot], T]) -> T:
        """Return what a function says that changes nothing."""
        return await self._decided(Snapshot(self._names, self._clock), work)

    async def _change(self, work: Callable[[Snapshot], T]) -> T:
        """Carry out a function, and save its changes all at once; decide anew when somebody was faster."""
        answer, is_saved = await self._tried(work)
        if is_saved:
            return answer
        async with self._turn():
            nap = NAP_SECONDS
            for _ in range(TRIES):
                answer, is_saved = await self._tried(work)
                if is_saved:
                    return answer
                await asyncio.sleep(random.uniform(0, nap))  # noqa: S311 - no secret
                nap = min(2 * nap, NAP_MAX_SECONDS)
        raise Unavailable(
            f"{self.address.shown}: too many others changed the same rows at once, {TRIES} times in a row"
        )

    async def _tried(self, work: Callable[[Snapshot], T]) -> tuple[T, bool]:
        snapshot = Snapshot(self._names, self._clock)
        answer = await self._decided(snapshot, work)
        return answer, not snapshot.is_changed or all(await self._save(snapshot))

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """Let verbs that are decided anew go one after the other: many events for one run would disturb each
        other again and again. One that takes very long does not hold the others up."""
        lock = self._turns.setdefault(asyncio.get_running_loop(), asyncio.Lock())
        try:
            async with asyncio.timeout(TURN_SECONDS):
                await lock.acquire()
        except TimeoutError:
            yield
            return
        try:
            yield
        finally:
            lock.release()

    async def _decided(self, snapshot: Snapshot, work: Callable[[Snapshot], T]) -> T:
        for _ in range(ROUNDS):
            snapshot.begin()
            try:
                return work(snapshot)
            except Missing:
                wanted = snapshot.wanted
            snapshot.learn(wanted, await self._connections.ask(wanted))
        raise Unavailable(f"{self.address.shown}: one call needs more than {ROUNDS:,} reads")

    async def _save(self, snapshot: Snapshot) -> list[int]:
        keys, args = snapshot.packed()
        answer: list[int] = await self._connections.run("save", keys, args)
        return answer[1:]
