"""Helpers of tests of live reads: a store that is watched, and runs that a test moves step by step."""

from __future__ import annotations

import asyncio
from collections import Counter

from holdfast.errors import Unavailable
from holdfast.records import ANY, Ask, Item, NewRun, StepWrite, TrailWrite
from holdfast.records.moves import Checkpoint, Complete, Fail

TYPE = "shop.order.v1"


class Watched:
    """A store that counts its reads. `deaf`: it gives no hints. `broken`: reads raise.

    SQLite in one thread gives no hint of a step, as Postgres does: such rows come with a poll.
    `held`: reads of these verbs wait until the test calls `let_go`; what they answer was read before.
    `hold` holds only the next read of a verb.
    """

    def __init__(self, store):
        self._store, self.reads, self.deaf, self.broken = store, Counter(), False, False
        self.poisoned = set()  # runs whose rows cannot be decoded
        self.held, self._gate, self.asked, self._next = set(), asyncio.Event(), [], {}

    def __getattr__(self, name):
        verb = getattr(self._store, name)
        if name not in {"follow", "follow_all", "get", "trail"}:
            return verb

        async def read(*args, **fields):
            self.reads[name] += 1
            self.asked.append((asyncio.get_running_loop().time(), name, args))
            gate = self._next.pop(name, None)
            if self.broken:
                raise Unavailable("not now")
            if name == "follow" and any(run in self.poisoned for run, _ in args[0]):
                raise ValueError("year 57394 is out of range")
            answer = await verb(*args, **fields)
            if name in self.held:
                await self._gate.wait()
            if gate is not None:
                await gate.wait()
            return answer

        return read

    def listen(self, hint, holders=None):
        return (lambda: None) if self.deaf else self._store.listen(hint, holders)

    def hold(self, verb):
        """Hold the answer of the next read of this verb until the event is set."""
        self._next[verb] = gate = asyncio.Event()
        return gate

    def let_go(self):
        self.held.clear()
        self._gate.set()


class Job:
    """A run that a test starts, holds and ends."""

    def __init__(self, store, world, tenant="default"):
        self._store, self._numbers, self.tenant = store, 0, tenant
        self.id, self._claim = world.uuid7(), None

    async def start(self):
        (answer,) = await self._store.start([NewRun(id=self.id, type=TYPE, tenant=self.tenant)])
        assert answer.created
        return self

    async def take(self):
        claims = await self._store.claim(Ask(worker="w", types=(TYPE,), limit=1, lease_seconds=86_400.0))
        (self._claim,) = [claim for claim in claims if claim.id == self.id]
        return self

    async def log(self, count=1, size=10):
        """Commit one step, and before it this number of rows of the trail."""
        rows = tuple(TrailWrite("log", f'{{"message":"{"x" * size}"}}') for _ in range(count))
        await self._commit(Checkpoint(), trail=rows, steps=(StepWrite(key=f"s{self._numbers}", output="1"),))

    async def complete(self, *, continues_as=None):
        starts = () if continues_as is None else (
            NewRun(id=continues_as, type=TYPE, tenant=self.tenant, follows=self.id),
        )  # fmt: skip
        await self._commit(Complete(result='"done"', starts=starts))

    async def fail(self):
        await self._commit(Fail(error='{"kind":"fatal","message":"no"}', last_error="no", kind="fatal"))

    async def _commit(self, move, **fields):
        self._numbers += 1
        item = Item(run=self.id, fence=self._claim.fence, number=self._numbers, move=move, **fields)
        (verdict,) = await self._store.commit([item])
        assert verdict.answer == "applied"


async def held(store, world, tenant="default"):
    """Return a run that is leased."""
    return await (await Job(store, world, tenant).start()).take()


class Collector:
    """A task that collects what a subscription gives."""

    def __init__(self, subscription):
        self.news, self.began = [], asyncio.Event()
        self.task = asyncio.get_running_loop().create_task(self._collect(subscription))

    async def _collect(self, subscription):
        async with subscription as trail:
            self.began.set()
            async for one in trail:
                self.news.append(one)

    @property
    def types(self):
        return [getattr(one, "type", one) for one in self.news]

    @property
    def seqs(self):
        return [one.seq for one in self.news if hasattr(one, "seq")]

    async def all(self, within=60.0):
        """Return everything, up to the end."""
        async with asyncio.timeout(within):
            await self.task
        return self.news


async def collected(subscription):
    """Return a collector whose first read is done."""
    collector = Collector(subscription)
    await collector.began.wait()
    return collector


async def numbers(store, run):
    return [entry.seq for entry in await store.trail(run, ANY, limit=1_000_000)]
