"""Starts of the tasks of one event loop share commits, as the items of a worker's runs do.

While starts are on their way to the store, those of other tasks gather, and go together when the first ones
return. No timer and no added latency: a lone start goes straight, in its caller's own task. Each caller gets
the answer to its own start alone. A batch is bounded in runs and bytes, and large starts go by themselves.
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
from holdfast.errors import DuplicateRun, HoldfastError, StoreError, Unavailable, UsageError
from holdfast.records import NewRun, Started
from holdfast.records.sizes import start_bytes
from holdfast.world import World

STARTS_MAX = 500  # runs that one commit starts at most
STALLED_SECONDS = 0.1  # after which nobody waits any longer for a start of somebody else that hangs

Answer = Started | HoldfastError

# Whether nothing else moves until the call has its answer: then nothing gathers, and nothing is waited for.
AT_ONCE = ContextVar("holdfast_at_once", default=False)


class Entry(NamedTuple):
    """One start that waits to be sent."""

    run: NewRun
    size: int
    at: float
    answer: asyncio.Future[Answer]


class Starts:
    """The queue of starts in front of one store, on one event loop."""

    def __init__(self, store: Store, world: World) -> None:
        self.store, self._world = store, world
        self._writers = store.traits.writers
        self._queue: deque[Entry] = deque()
        self._sending = 0  # calls on their way
        self._gathering = False  # the first of this loop turn waits for the others of it
        self._watched = False  # a timer looks after those that wait
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, runs: Sequence[NewRun]) -> list[Answer]:
        """Start these runs; answers in order. Several of one caller are a batch already."""
        if len(runs) != 1 or (size := start_bytes(runs[0])) >= LARGE_BYTES or AT_ONCE.get():
            return await self._send_patiently(runs)
        loop = asyncio.get_running_loop()
        mine = Entry(runs[0], size, loop.time(), loop.create_future())
        self._queue.append(mine)
        if not self._gathering and self._sending < self._writers:
            await self._gather(mine)
            if list(self._queue) == [mine]:
                self._queue.clear()
                return [await self._send_alone(mine.run)]
            self._flush()
        elif not self._watched:
            self._watch(loop)
        return [await mine.answer]

    async def _gather(self, mine: Entry) -> None:
        """Let the other tasks of this loop turn come too."""
        self._gathering = True
        try:
            await asyncio.sleep(0)
        except BaseException:
            self._gathering = False
            mine.answer.cancel()  # the caller is gone: its start is left out
            self._flush()
            raise
        self._gathering = False

    async def _send_alone(self, run: NewRun) -> Answer:
        self._sending += 1
        try:
            (answer,) = await self.store.start([run])
        finally:
            self._sending -= 1
            self._flush()
        return answer

    async def _send_patiently(self, runs: Sequence[NewRun]) -> list[Answer]:
        """All of one caller. One that stands in the way of the others is sent again, alone, and waits."""
        answers = list(await self.store.start(runs))
        for at, answer in enumerate(answers):
            if isinstance(answer, Unavailable) and len(runs) > 1:
                (answers[at],) = await self.store.start([runs[at]])
        return answers

    def _flush(self) -> None:
        """Send what has gathered, if a writer is free."""
        while self._queue and not self._gathering and self._sending < self._writers:
            self._send_next()

    def _send_next(self) -> None:
        if batch := self._next():
            self._sending += 1
            self._spawn(self._send(batch))

    def _next(self) -> list[Entry]:
        """The first of the queue, as many as fit into one commit, but for those whose callers are gone."""
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
        """Send one that would have held up the others: it waits for what is in its way, and nobody for it."""
        try:
            (answer,) = await self.store.start([entry.run])
        except BaseException as error:
            _fail(entry, error)
            if not isinstance(error, Exception):
                raise
        else:
            _settle(entry, answer)

    async def _together(self, batch: list[Entry]) -> Sequence[Answer | Exception]:
        """One call for all. What the store refuses as a whole is sent one by one: it may be one of them."""
        try:
            return await self.store.start([entry.run for entry in batch])
        except StoreError:
            raise  # it cannot be reached, or not be used: so for each of them
        except Exception as error:
            if len(batch) == 1:
                raise
            in_doubt = not isinstance(error, UsageError)
            return [await self._apart(entry.run, in_doubt=in_doubt) for entry in batch]

    async def _apart(self, run: NewRun, *, in_doubt: bool) -> Answer | Exception:
        """One of a batch that failed. `in_doubt`: what is in its way may be what the batch has started."""
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
        """Look after those that wait: a start may hang for seconds behind somebody's open transaction."""
        self._watched = True
        loop.call_later(STALLED_SECONDS, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._watched = False
        if self._queue and loop.time() - self._queue[0].at >= STALLED_SECONDS:
            self._send_next()
        if self._queue:
            self._watch(loop)


class Gathered:
    """The starts of one app: a queue for each event loop that it is used on."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, Starts] = WeakKeyDictionary()

    async def start(self, store: Store, runs: Sequence[NewRun], connection: Any = None) -> list[Answer]:
        """Start these runs, beside those of other tasks; `connection`: in the caller's own transaction."""
        if connection is not None:
            return await store.start(runs, connection)
        loop = asyncio.get_running_loop()
        starts = self._by_loop.get(loop)
        if starts is None or starts.store is not store:
            starts = self._by_loop[loop] = Starts(store, self._world)
        return await starts.start(runs)


def _settle(entry: Entry, answer: Answer | Exception) -> None:
    if isinstance(answer, Started | HoldfastError):
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
