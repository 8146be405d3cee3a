"""The cost of calls in a store with millions of runs, compared with few runs and with none, in turns."""

from __future__ import annotations

import asyncio
import itertools
import statistics
import time
from collections import defaultdict
from typing import Any

import psycopg

from bench import many_runs
from bench.measurements import say
from bench.stores import Server
from holdfast.lifecycle import StepKind, StepStatus
from holdfast.records import Ask, Claim, Item, Lease, NewEvent, NewRun, StepWrite, moves
from holdfast.stores.postgres import PostgresStore
from holdfast.stores.postgres.verbs.calls import json_text
from holdfast.world import RealWorld, World

WORKER, TYPE = "bench", many_runs.TYPES[0]
MANY = 100
GOAL = 1.5
LOOKS = 5
FEW = 200  # enough for each type, tenant and priority
# Vacuum and analyze run when the benchmark says so. Loaded pages must not be written out again and again.
SETTINGS = {"autovacuum": "off", "shared_buffers": "1GB", "max_wal_size": "8GB", "checkpoint_timeout": "1h"}


class Measured(PostgresStore):
    """A store that notes the cost of its calls, by label."""

    def __init__(self, url: str, dsn: str) -> None:
        super().__init__(url)
        self.label = ""
        self.seconds: dict[str, list[float]] = defaultdict(list)
        self.pages: dict[str, list[int]] = defaultdict(list)
        self.looks = False  # count pages before each call
        self._session = psycopg.connect(dsn)
        self._numbers = itertools.count(1)

    async def _call(self, verb: str, *args: Any) -> Any:
        if self.looks:
            self.pages[self.label].append(self._pages(verb, args))
        at = time.perf_counter()
        answer = await super()._call(verb, *args)
        self.seconds[self.label].append(time.perf_counter() - at)
        return answer

    def _pages(self, verb: str, args: tuple[Any, ...]) -> int:
        """Return the pages that a call reads. The call is undone, and made twice: the first one loads the
        catalog.
        """
        sql = (
            f"explain (analyze, buffers, format json) select workflow.{verb}({', '.join(['%s'] * len(args))})"
        )
        self._session.execute(sql, args)
        self._session.rollback()
        row = self._session.execute(sql, args).fetchone()
        self._session.rollback()
        assert row
        plan = row[0][0]["Plan"]
        return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])

    async def close(self) -> None:
        self._session.close()
        await super().close()

    async def live(self, world: World) -> None:
        """Make the calls of a worker, each with its own label: many at once, and one."""
        for size in (MANY, 1):
            runs = [NewRun(id=world.uuid7(), type=TYPE, params='{"x":1}', digest="d") for _ in range(size)]
            self.label = f"start {size}"
            await self.start(runs)
            self.label = f"claim {size}"
            claims = await self.claim(Ask(worker=WORKER, types=many_runs.ASKED, limit=size))
            assert {one.id for one in claims} == {one.id for one in runs}
            await self.work(claims, size)
        await self.wait(world)
        for label, ask in (("due", self.due(many_runs.ASKED)), ("tick", self.tick())):
            self.label = label
            await ask

    async def work(self, claims: list[Claim], size: int) -> None:
        self.label = f"checkpoint {size}"
        for number in (1, 2):
            write = StepWrite(key=f"step-{number}", output='{"i":1}')
            await self.commit([_item(one, number, moves.CHECKPOINT, write) for one in claims])
        self.label = f"renew {size}"
        leases = [Lease(run=one.id, fence=one.fence) for one in claims]
        await self._call("renew", WORKER, json_text(leases), 30.0)
        self.label = f"complete {size}"
        await self.commit([_item(one, 3, _DONE) for one in claims])

    async def wait(self, world: World) -> None:
        """Let a run of a tenant wait for an event, and emit it."""
        run, topic = world.uuid7(), f"bench.{next(self._numbers)}"
        self.label = "start of a tenant"
        await self.start([NewRun(id=run, type=TYPE, params='{"x":1}', digest="d", tenant="tenant-1")])
        ask = Ask(worker=WORKER, types=many_runs.ASKED, limit=10, tenants=("tenant-1", "tenant-2"))
        self.label = "claim of tenants"
        (claim,) = await self.claim(ask)
        self.label = "park"
        write = StepWrite(key="wait", kind=StepKind.EVENT, status=StepStatus.WAITING, topic=topic)
        await self.commit([_item(claim, 1, moves.PARK, write)])
        self.label = "emit"
        await self.emit(NewEvent(topic=topic, id=topic, tenant="tenant-1"))
        self.label = "claim of the woken"
        (claim,) = await self.claim(ask)
        self.label = "complete of the woken"
        await self.commit([_item(claim, 1, _DONE)])


_DONE = moves.Complete(result="null")


def _item(claim: Claim, number: int, move: moves.HolderMove, *steps: StepWrite) -> Item:
    begun = claim.created_at if number == 1 else None
    return Item(run=claim.id, fence=claim.fence, number=number, move=move, steps=steps, started_at=begun)


def scale(place: Server, rows: int, rounds: int) -> None:
    """Compare stores with `rows` runs of each kind, with few runs, and with none."""
    sizes = {"empty": 0, "few": FEW, "full": rows}
    for name in sizes:
        place.server.create_database(name)
    asyncio.run(_scale(place, sizes, rounds))


async def _scale(place: Server, sizes: dict[str, int], rounds: int) -> None:
    dsns = {name: place.server.dsn(name) for name in sizes}
    stores = [Measured(place.server.url(name), dsn) for name, dsn in dsns.items()]
    world, begun = RealWorld(), time.perf_counter()
    for store, (name, rows) in zip(stores, sizes.items(), strict=True):
        await store.open()
        await store.live(world)
        many_runs.fill(dsns[name], rows)
    say(f"4 times {sizes['full']:,} runs put in, in {time.perf_counter() - begun:.0f} s")
    await _compare("before the planner has heard of them", stores, world, rounds)
    for dsn in dsns.values():
        many_runs.tidy(dsn)
    await _compare("vacuumed and analyzed", stores, world, rounds)
    for store in stores:
        await store.limit("type", "other.type.v1", concurrency=1)
    await _compare("with a limit, of another type", stores, world, max(5, rounds // 4))
    for store in stores:
        await store.close()


async def _compare(when: str, stores: list[Measured], world: World, rounds: int) -> None:
    """Measure in turns: first the times, except a round in which plans are made; then the pages."""
    for n in range(1 + rounds):
        for store in stores:
            await store.live(world)
            if n == 0:
                store.seconds.clear()
    times = [dict(store.seconds) for store in stores]
    for store in stores:
        store.pages.clear()
        store.looks = True
        for _ in range(LOOKS):
            await store.live(world)
        store.looks = False
        store.seconds.clear()
    say(f"{when}: milliseconds and pages of a call, where there is none, {FEW} and many of each kind")
    for label in times[0]:
        none, few, many = (statistics.median(one[label]) * 1e3 for one in times)
        pages = [f"{statistics.median(store.pages[label]):6.0f}" for store in stores]
        ratios = f"{many / none:5.2f} {many / few:5.2f}"
        mark = "" if many / few <= GOAL else f"  more than {GOAL} times"
        say(f"  {label:22} {none:7.2f} {few:7.2f} {many:7.2f}  ratios {ratios}  {' '.join(pages)}{mark}")
