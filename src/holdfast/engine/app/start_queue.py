"""The queue of starts: concurrent starts of one event loop share commits.

While starts are on their way to the store, starts of other tasks are queued, and are sent together when the
first ones return. There is no timer and no added latency: a lone start is sent at once, in its caller's task.
Each caller gets the answer to its own start. A batch is bounded in runs and bytes; large starts are sent
alone, and starts under a limit of an API key only with others of the same key.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from holdfast.bounds import BATCH_BYTES, LARGE_BYTES
from holdfast.contract import Store
from holdfast.engine.tracing.provider import leave
from holdfast.errors import DuplicateRun, HoldfastError, StoreError, Unavailable, UsageError
from holdfast.records import NewRun, Started
from holdfast.records.sizes import start_bytes
from holdfast.world import World

STARTS_MAX = 500  # runs that one commit starts, at most
STALLED_SECONDS = 0.1  # after this time nobody waits longer for another caller's start that hangs

StartAnswer = Started | HoldfastError
ANSWERS = (Started, HoldfastError)

# True: a call blocks everything until it is answered, so starts cannot be queued behind one another.
AT_ONCE = ContextVar("holdfast_at_once", default=False)


class Entry(NamedTuple):
    """One queued start."""

    run: NewRun
    size: int
    at: float
    answer: asyncio.Future[StartAnswer]


class StartQueue:
    """The queue of starts in front of one store, on one event loop."""

    def __init__(self, store: Store, world: World, writers: int | None = None) -> None:
        self.store, self._world = store, world
        self._writers = store.traits.writers if writers is None else writers
        self._by_key: dict[str, StartQueue] = {}  # one for each API key with limited runs that are queued
        self._callers = 0
        self._queue: deque[Entry] = deque()
        self._sending = 0  # calls on their way
        self._gathering = False  # the first start of this loop turn waits for the others of the same turn
        self._watched = False  # the timer that watches queued starts
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, runs: Sequence[NewRun]) -> list[StartAnswer]:
        """Start these runs and return the answers in order. Several runs of one caller are a batch
        already.
        """
        if len(runs) != 1 or (size := start_bytes(runs[0])) >= LARGE_BYTES or AT_ONCE.get():
            return await self._send_patiently(runs)
        if runs[0].api_key is not None and runs[0].open_runs_max is not None:
            return [await self._start_limited(runs[0], size, runs[0].api_key)]
        return [await self._start(runs[0], size)]

    async def _start_limited(self, run: NewRun, size: int, key: str) -> StartAnswer:
        """Start a run that counts under an API key, in a batch with others of this key only. Starts of one
        key wait for each other in the store, and no other start is to wait with them.
        """
        own = self._by_key.get(key)
        if own is None:
            own = self._by_key[key] = StartQueue(self.store, self._world, writers=1)
        own._callers += 1
        try:
            return await own._start(run, size)
        finally:
            own._callers -= 1
            if not own._callers:
                del self._by_key[key]

    async def _start(self, run: NewRun, size: int) -> StartAnswer:
        loop = asyncio.get_running_loop()
        mine = Entry(run, size, loop.time(), loop.create_future())
        self._queue.append(mine)
        if not self._gathering and self._sending < self._writers:
            await self._gather(mine)
            if len(self._queue) == 1 and self._queue[0] is mine:
                self._queue.clear()
                return await self._send_alone(mine.run)
            self._flush()
        elif not self._watched:
            self._watch(loop)
        return await mine.answer

    async def _gather(self, mine: Entry) -> None:
        """Wait for the other starts of this loop turn, then send."""
        self._gathering = True
        try:
            await asyncio.sleep(0)
        except BaseException:
            self._gathering = False
            mine.answer.cancel()  # the caller was cancelled: its start is left out
            self._flush()
            raise
        self._gathering = False

    async def _send_alone(self, run: NewRun) -> StartAnswer:
        self._sending += 1
        try:
            (answer,) = await self.store.start([run])
        finally:
            self._sending -= 1
            self._flush()
        return answer

    async def _send_patiently(self, runs: Sequence[NewRun]) -> list[StartAnswer]:
        """Send all runs of one caller. A run that would delay the others is sent again, alone."""
        answers = list(await self.store.start(runs))
        for at, answer in enumerate(answers):
            if isinstance(answer, Unavailable) and len(runs) > 1:
                (answers[at],) = await self.store.start([runs[at]])
        return answers

    def _flush(self) -> None:
        """Send what is queued, if a writer is free."""
        while self._queue and not self._gathering and self._sending < self._writers:
            self._send_next()

    def _send_next(self) -> None:
        if batch := self._next():
            self._sending += 1
            self._spawn(self._send(batch))

    def _next(self) -> list[Entry]:
        """Take as many starts from the head of the queue as fit into one commit; skip those of cancelled
        callers.
        """
        batch: list[Entry] = []
        total = 0
        while self._queue and len(batch) < STARTS_MAX:
            if not self._queue[0].answer.done():
                total += self._queue[0].size
                if batch and total > BATCH_BYTES:
                    break
                batch.append(self._queue[0])
            self._queue.popleft()
        return batch

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._world.spawn(work, "holdfast-start")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send(self, batch: list[Entry]) -> None:
        leave()  # the span of one caller is not that of the others
        try:
            answers = await self._together(batch)
        except BaseException as error:
            for entry in batch:
                _fail(entry, error)
            if not isinstance(error, Exception):
                raise
        else:
            for entry, answer in zip(batch, answers, strict=True):
                if isinstance(answer, Unavailable) and len(batch) > 1:
                    self._spawn(self._send_again(entry))
                else:
                    _settle(entry, answer)
        finally:
            self._sending -= 1
            self._flush()

    async def _send_again(self, entry: Entry) -> None:
        """Send one start alone that would have delayed the others: it may wait for another transaction."""
        try:
            (answer,) = await self.store.start([entry.run])
        except BaseException as error:
            _fail(entry, error)
            if not isinstance(error, Exception):
                raise
        else:
            _settle(entry, answer)

    async def _together(self, batch: list[Entry]) -> Sequence[StartAnswer | Exception]:
        """Send all in one call. When the store refuses the whole batch, send them one by one to find the bad
        one.
        """
        try:
            return await self.store.start([entry.run for entry in batch])
        except StoreError:
            raise  # the store cannot be reached or used: each start gets this error
        except Exception as error:
            if len(batch) == 1:
                raise
            in_doubt = not isinstance(error, UsageError)
            return [await self._apart(entry.run, in_doubt=in_doubt) for entry in batch]

    async def _apart(self, run: NewRun, *, in_doubt: bool) -> StartAnswer | Exception:
        """Send one start of a batch that failed. `in_doubt`: the failed batch may have started it already."""
        try:
            (answer,) = await self.store.start([run])
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer of this one alone
            return error
        if in_doubt and isinstance(answer, DuplicateRun):
            there = await self.store.get(run.id, tenant=run.tenant)
            asked = (run.type, run.params, run.key)
            if there is not None and (there.type, there.params_json, there.key) == asked:
                return Started(run.id, created=True)
        return answer

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Watch queued starts: a sent one may hang for seconds behind another caller's open transaction."""
        self._watched = True
        loop.call_later(STALLED_SECONDS, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._watched = False
        if self._queue and loop.time() - self._queue[0].at >= STALLED_SECONDS:
            self._send_next()
        if self._queue:
            self._watch(loop)


class StartQueues:
    """The start queues of one app: one for each event loop that uses it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, StartQueue] = WeakKeyDictionary()

    async def start(self, store: Store, runs: Sequence[NewRun], connection: Any = None) -> list[StartAnswer]:
        """Start these runs together with those of other tasks; `connection`: in the caller's own
        transaction.
        """
        if connection is not None:
            return await store.start(runs, connection)
        loop = asyncio.get_running_loop()
        starts = self._by_loop.get(loop)
        if starts is None or starts.store is not store:
            starts = self._by_loop[loop] = StartQueue(store, self._world)
        return await starts.start(runs)


def _settle(entry: Entry, answer: StartAnswer | Exception) -> None:
    if isinstance(answer, ANSWERS):
        if not entry.answer.done():
            entry.answer.set_result(answer)
    else:
        _fail(entry, answer)


def _fail(entry: Entry, error: BaseException) -> None:
    if entry.answer.done():
        return
    if isinstance(error, asyncio.CancelledError):
        entry.answer.cancel()
    else:
        entry.answer.set_exception(error)
