"""Claims that wait: the long polls of workers, served when there may be something to claim.

Workers that ask for the same types, tenants and runtime form a group. A group has one loop, which claims for
its first worker, then for the next, until nothing is left: so a hint costs one claim for each group, and not
one for each worker. All groups together ask the store only a few times at once: other requests do not wait
behind a thousand of them. A worker that has left meanwhile does not keep what was claimed for it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, NamedTuple

from holdfast.contract import Store
from holdfast.engine.wake_up import WakeUp, between_looks, poll_of, seconds_until
from holdfast.records import Ask, Claim
from holdfast.world import World

ASKED_AT_ONCE = 8  # claims and looks of all groups that the store gets at the same time

GiveBack = Callable[[Ask, Sequence[Claim]], Coroutine[Any, Any, None]]
_Key = tuple[tuple[str, ...], tuple[str, ...] | None, str, tuple[int, ...] | None]


class Found(NamedTuple):
    """The runs of a claim, and when the store was asked for them, by the clock of this process."""

    claims: list[Claim]
    asked_at: float


class _Waiter(NamedTuple):
    ask: Ask
    answer: asyncio.Future[Found]


class Claims:
    """The claims of the workers of this server. `give_back`: releases runs whose worker has left."""

    def __init__(self, store: Store, world: World, give_back: GiveBack) -> None:
        self.store, self.world, self.give_back = store, world, give_back
        self.turns = asyncio.Semaphore(ASKED_AT_ONCE)
        self._groups: dict[_Key, _Group] = {}
        self._unlisten: Callable[[], None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False

    async def claim(self, ask: Ask, wait_seconds: float) -> Found:
        """Claim runs; if there are none, wait for the first ones. Empty after that time, or when the server
        stops. A caller that is cancelled gets nothing, and keeps nothing.
        """
        asked_at = self.world.monotonic()
        if not ask.types or not ask.limit:
            return Found([], asked_at)
        claiming = self.world.spawn(self.store.claim(ask), "holdfast-http-claim")
        try:
            found = await asyncio.shield(claiming)
        except asyncio.CancelledError:
            claiming.add_done_callback(partial(self._left_late, ask))
            raise
        if found or not wait_seconds or self._is_closed:
            return Found(found, asked_at)
        return await self._waited(ask, wait_seconds)

    async def _waited(self, ask: Ask, wait_seconds: float) -> Found:
        waiter = _Waiter(ask, asyncio.get_running_loop().create_future())
        self._enter(waiter)
        try:
            async with asyncio.timeout(wait_seconds):
                return await waiter.answer
        except TimeoutError:
            return _last(waiter) or Found([], self.world.monotonic() - wait_seconds)
        except asyncio.CancelledError:
            if (found := _last(waiter)) is not None:
                self._left(ask, found.claims)
            raise

    def _left_late(self, ask: Ask, claiming: asyncio.Task[list[Claim]]) -> None:
        if not claiming.cancelled() and claiming.exception() is None:
            self._left(ask, claiming.result())

    def _left(self, ask: Ask, found: list[Claim]) -> None:
        """Give back the runs of a worker that has left before it got them."""
        if found:
            task = self.world.spawn(self.give_back(ask, found), "holdfast-http-give-back")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _enter(self, waiter: _Waiter) -> None:
        ask = waiter.ask
        key = tuple(sorted(ask.types)), ask.tenants, ask.runtime, ask.crashed
        if self._unlisten is None:
            self._unlisten = self.store.listen(self._hint, None, self._changed)
        group = self._groups.get(key)
        if group is None:
            # It looks at once: something may have come between the claim of this worker and the listening.
            group = self._groups[key] = _Group(self, ask)
            group.waiters.append(waiter)
            group.task = self.world.spawn(self._run(key, group), "holdfast-http-wait")
        else:
            group.waiters.append(waiter)

    async def _run(self, key: _Key, group: _Group) -> None:
        try:
            await group.run()
        finally:
            if self._groups.get(key) is group:
                del self._groups[key]
            if not self._groups and self._unlisten is not None:
                self._unlisten()
                self._unlisten = None

    def _hint(self) -> None:
        for group in self._groups.values():
            group.wake_up.ring()

    def _changed(self) -> None:
        for group in self._groups.values():
            group.wake_up.ring_for_change()

    async def close(self) -> None:
        """Answer all that wait, at once: the server stops."""
        self._is_closed = True
        groups = list(self._groups.values())
        for group in groups:
            group.end()
        tasks = [*(group.task for group in groups if group.task is not None), *self._tasks]
        if tasks:
            await asyncio.wait(tasks)


class _Group:
    """Workers that ask for the same."""

    def __init__(self, claims: Claims, ask: Ask) -> None:
        self._claims, self._ask = claims, ask
        self.waiters: deque[_Waiter] = deque()
        self.wake_up = WakeUp(poll_of(claims.store))
        self.task: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Claim for the workers, as long as there are any."""
        try:
            await self._run()
        except Exception as error:  # noqa: BLE001 - the workers get it, and ask again
            self._fail(error)

    async def _run(self) -> None:
        clock, claims = asyncio.get_running_loop().time, True
        while self._first() is not None:
            began = clock()
            if claims:
                await self._serve()
                if self._first() is None:
                    return
            due_seconds = await self._due()
            if due_seconds == 0 and not claims:
                claims = True
                continue
            ended = clock()
            # After a poll a look is enough; after a hint a claim is.
            claims = await self.wake_up.wait(due_seconds) is None
            await asyncio.sleep(max(0.0, ended + between_looks(ended - began) - clock()))

    def end(self) -> None:
        """Answer all workers with nothing."""
        while self.waiters:
            _give(self.waiters.popleft(), Found([], 0.0))
        self.wake_up.ring()

    def _fail(self, error: Exception) -> None:
        while self.waiters:
            waiter = self.waiters.popleft()
            if not waiter.answer.done():
                waiter.answer.set_exception(error)

    def _first(self) -> _Waiter | None:
        """Return the worker that has waited longest; workers that have left are forgotten."""
        while self.waiters and self.waiters[0].answer.done():
            self.waiters.popleft()
        return self.waiters[0] if self.waiters else None

    async def _serve(self) -> None:
        while (waiter := self._first()) is not None:
            async with self._claims.turns:
                if waiter.answer.done():
                    continue
                asked_at = self._claims.world.monotonic()
                found = await self._claims.store.claim(waiter.ask)
            if not found:
                return
            self.wake_up.found()
            if waiter.answer.done():
                await self._claims.give_back(waiter.ask, found)
            else:
                self.waiters.remove(waiter)
                _give(waiter, Found(found, asked_at))

    async def _due(self) -> float | None:
        """Return the seconds until something is due that could be claimed."""
        ask = self._ask
        async with self._claims.turns:
            due = await self._claims.store.due(ask.types, ask.tenants, runtime=ask.runtime)
        return seconds_until(due.claim_at, due.now)


def _give(waiter: _Waiter, found: Found) -> None:
    if not waiter.answer.done():
        waiter.answer.set_result(found)


def _last(waiter: _Waiter) -> Found | None:
    """Return what a worker got in the very moment in which it stopped waiting; None: nothing."""
    answer = waiter.answer
    if answer.cancel() or answer.cancelled() or answer.exception() is not None:
        return None
    return answer.result()
