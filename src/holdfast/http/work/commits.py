"""Commits for workers: the items of requests that come at the same time share commits of the store.

While one commit is on its way, the items of other requests are collected for the next. There is no timer: a
lone item is committed at once. Tenants take turns, item by item: none waits behind all items of another. An
item whose row another session holds is tried again for a short time, then its worker is told to send it
again.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Coroutine, Sequence
from typing import Any, NamedTuple

from holdfast.bounds import BATCH_BYTES
from holdfast.contract import Store
from holdfast.errors import HoldfastError, StoreError
from holdfast.escaping import safe_logger
from holdfast.lifecycle import FINAL
from holdfast.records import Answer, Item, Verdict
from holdfast.records.sizes import item_bytes
from holdfast.world import World

log = safe_logger("holdfast.http")

ITEMS = 500  # of one commit
BUSY_SECONDS = (0.02, 0.05, 0.1, 0.2)  # delays before an item is tried again whose row is busy
BUSY_AT_ONCE = 8  # busy items that are tried again at the same time

Outcome = Verdict | HoldfastError


class _Entry(NamedTuple):
    item: Item
    has_parent: bool  # its run has a parent, which waits for its end
    answer: asyncio.Future[Outcome]


class _Queue:
    """The items that wait, by tenant."""

    def __init__(self) -> None:
        self._of_tenants: OrderedDict[str, deque[_Entry]] = OrderedDict()  # whose turn it is first

    def __bool__(self) -> bool:
        return bool(self._of_tenants)

    def add(self, entries: Sequence[_Entry]) -> None:
        for one in entries:
            self._of(one).append(one)

    def put_back(self, entries: Sequence[_Entry]) -> None:
        """Put entries that were taken before the others of their tenants."""
        for one in reversed(entries):
            self._of(one).appendleft(one)

    def take(self) -> _Entry:
        tenant, entries = next(iter(self._of_tenants.items()))
        if len(entries) == 1:
            del self._of_tenants[tenant]
        else:
            self._of_tenants.move_to_end(tenant)
        return entries.popleft()

    def _of(self, one: _Entry) -> deque[_Entry]:
        return self._of_tenants.setdefault(one.item.tenant, deque())


class Commits:
    """The queue in front of `Store.commit` for all workers of this server."""

    def __init__(self, store: Store, world: World) -> None:
        self._store, self._world = store, world
        self._queue = _Queue()
        self._writing = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._few = asyncio.Semaphore(BUSY_AT_ONCE)
        self._is_delivering = self._is_undelivered = False

    async def commit(self, items: Sequence[tuple[Item, bool]]) -> list[Outcome]:
        """Commit the items of one request; return a verdict or an error for each, in order. The flag says
        whether the item's run has a parent.
        """
        loop = asyncio.get_running_loop()
        entries = [_Entry(item, has_parent, loop.create_future()) for item, has_parent in items]
        self._queue.add(entries)
        while self._queue and self._writing < self._store.traits.writers:
            self._writing += 1
            self._spawn(self._write(), "holdfast-http-commit")
            await asyncio.sleep(0)  # it takes its part of the queue
        return [await one.answer for one in entries]

    async def _write(self) -> None:
        try:
            while batch := self._next():
                await self._send(batch)
        finally:
            self._writing -= 1

    def _next(self) -> list[_Entry]:
        """Take the next items: one of each run, as many as fit into a commit."""
        batch: list[_Entry] = []
        left: list[_Entry] = []
        runs, size = set(), 0
        while self._queue and len(batch) < ITEMS and size < BATCH_BYTES:
            entry = self._queue.take()
            if entry.item.run in runs:
                left.append(entry)  # sent twice: the second one is answered after the first
                continue
            runs.add(entry.item.run)
            size += item_bytes(entry.item)
            batch.append(entry)
        self._queue.put_back(left)
        return batch

    async def _send(self, batch: list[_Entry]) -> None:
        outcomes = await self._committed([one.item for one in batch])
        for entry, outcome in zip(batch, outcomes, strict=True):
            if isinstance(outcome, Verdict) and outcome.answer is Answer.BUSY:
                self._spawn(self._again(entry), "holdfast-http-busy")
            else:
                self._answer(entry, outcome)

    async def _committed(self, items: Sequence[Item]) -> list[Outcome]:
        """Commit, and return an outcome for each item, whatever happens. If the store refuses all of them for
        one, they are sent one by one.
        """
        try:
            return [*await self._store.commit(items)]
        except StoreError as error:
            return [error] * len(items)
        except Exception as error:  # noqa: BLE001 - one item must not stop those of other workers
            if len(items) == 1:
                return [_failed(items[0], error)]
        return [one for item in items for one in await self._committed([item])]

    async def _again(self, entry: _Entry) -> None:
        outcome: Outcome | None = None
        for delay in BUSY_SECONDS:
            await asyncio.sleep(delay)
            async with self._few:
                (outcome,) = await self._committed([entry.item])
            if not isinstance(outcome, Verdict) or outcome.answer is not Answer.BUSY:
                break
        assert outcome is not None
        self._answer(entry, outcome)

    def _answer(self, entry: _Entry, outcome: Outcome) -> None:
        if not entry.answer.done():
            entry.answer.set_result(outcome)
        if isinstance(outcome, Verdict) and outcome.answer in {Answer.APPLIED, Answer.PAUSED}:
            ends = entry.has_parent and outcome.status in FINAL
            if entry.item.events or ends:
                self.deliver()

    def deliver(self) -> None:
        """Deliver events and ends of children soon. If this process dies first, a keeper does it."""
        self._is_undelivered = True
        if not self._is_delivering:
            self._is_delivering = True
            self._spawn(self._deliver(), "holdfast-http-deliver")

    async def _deliver(self) -> None:
        try:
            while self._is_undelivered:
                self._is_undelivered = False
                await self._store.deliver()
        except StoreError as error:
            log.warning("events are delivered later, by a keeper: %s", error)
        finally:
            self._is_delivering = False

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = self._world.spawn(work, name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Wait until everything that is queued was written."""
        while self._tasks:
            await asyncio.wait(self._tasks)


def _failed(item: Item, error: Exception) -> HoldfastError:
    if isinstance(error, HoldfastError):
        return error
    log.error("an item of run %s cannot be committed", item.run, exc_info=error)
    return HoldfastError("the item could not be committed")
