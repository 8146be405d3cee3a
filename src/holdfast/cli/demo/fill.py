"""`holdfast demo --fill`: a store with a believable mix of runs in all statuses, for looking at the pages.

The history of some hours is made in seconds: store and worker have a clock that begins in the past. It is
moved forward by steps that say how long they take, and between the hours.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
from typing import Any
from uuid import UUID

from holdfast import App
from holdfast.contract import Store
from holdfast.lifecycle import Status
from holdfast.records import SECOND, Ask, Instant, RunFilter, instant
from holdfast.stores import make_store
from holdfast.world import RealWorld, uuid7

from .shop import CARRIERS, shop

HOURS = 6
TURN_SECONDS = 600  # between two rounds of starts
LAST_SECONDS = 240.0  # how old the last runs are
TIME_MAX_SECONDS = 300.0
LEASE_SECONDS = 3600.0
REGIONS = ("north", "south", "east", "west")
NAMES = ("ada", "grace", "alan", "edsger", "barbara", "donald", "tony", "leslie")


class PastWorld(RealWorld):
    """The machine, with a clock that begins in the past and can be moved forward to the present."""

    def __init__(self, behind_seconds: float) -> None:
        super().__init__()
        self._behind = self._first = round(behind_seconds * SECOND)

    def now(self) -> Instant:
        return super().now() - self._behind

    def monotonic(self) -> float:
        return super().monotonic() + (self._first - self._behind) / SECOND

    def uuid7(self) -> UUID:
        return uuid7(self.now() * 1000, secrets.randbits(62))

    def move(self, seconds: float) -> None:
        """Move the clock forward, never beyond the present."""
        self._behind = max(0, self._behind - round(seconds * SECOND))

    def come_near(self, seconds: float) -> None:
        """Move the clock forward until it is no more than so many seconds behind."""
        self._behind = min(self._behind, round(seconds * SECOND))

    async def passes(self, seconds: float) -> None:
        """Let the time of a step pass."""
        self.move(seconds)
        await asyncio.sleep(0)


class Filling:
    """Fills one store. Everything is decided by the seed, so that two fillings are alike."""

    def __init__(self, store: Store, world: PastWorld, *, hours: float = HOURS) -> None:
        self.world, self.app = world, shop(App(store, name="shop", world=world), world.passes)
        self._hours, self._dice, self._order = hours, random.Random(7), 4100  # noqa: S311 - the same picture each time

    async def fill(self) -> int:
        """Fill the store; return the number of runs."""
        async with asyncio.timeout(TIME_MAX_SECONDS):
            await self._settings()
            async with self.app.worker(poll=0.01, lease=LEASE_SECONDS, name="worker-1", slots=4):
                for number in range(round(self._hours * 3600 / TURN_SECONDS)):
                    await self._turn(number)
                self.world.come_near(LAST_SECONDS)
                await self._last()
            self.world.come_near(LAST_SECONDS / 4)
            await self._left_running()
            return len(await self._runs())

    async def _runs(self) -> list[UUID]:
        found: list[UUID] = []
        while page := await self.app.list(RunFilter(values=False), 1000, found[-1] if found else None):
            found += [one.id for one in page]
        return found

    async def _settings(self) -> None:
        app = self.app
        await app.limit(key="bank.example", concurrency=5)
        await app.limit(type="shop.import-page.v1", rate=(600, 60))
        await app.schedule(
            "nightly import", "shop.import.v1", [1, 2, 3], cron="30 2 * * *", zone="Europe/Berlin"
        )
        await app.schedule("stock", "shop.watch-stock.v1", 4, every=7200)
        await app.schedule("monthly report", "shop.import.v1", [1], cron="0 6 1 * *", zone="UTC")
        await app.pause_schedule("monthly report")

    async def _turn(self, number: int) -> None:
        """Start some runs, let them be executed, send the events they wait for, and move the clock."""
        spent = 0.0
        for _ in range(self._dice.randint(2, 7)):
            await self._start_order()
            pause = self._dice.uniform(5, 70)
            self.world.move(pause)
            spent += pause
        if number % 3 == 2:
            trouble = self._dice.choice(("", "bank", "bank", "account"))
            await self._start(
                "shop.refund.v1",
                {"order": self._order, "eur": 19.9, "trouble": trouble},
                limit_key="bank.example",
            )
        if number % 5 == 4:
            await self._start(
                "shop.invoice.v1",
                {"number": f"2026-{number:04}", "eur": self._dice.choice((120.0, 0.0, 880.5))},
            )
        if number % 12 == 7:
            await self._start("shop.import.v1", [11, 12, 13, 14, 15])
        await self._quiet()
        await self._decide(number)
        for run in await self.app.list(RunFilter(statuses=(Status.WAITING,), type="shop.order.v2"), 100):
            topic = next((one.topic for one in run.waiting_on if one.topic), None)
            if topic is not None and self._dice.random() < 0.8:
                await self.app.emit(topic, {"driver": self._dice.choice(NAMES)}, id=topic)
        await self._quiet()
        self.world.move(TURN_SECONDS * 0.9 - spent)

    async def _start_order(self) -> None:
        self._order += 1
        dice = self._dice
        customer = dice.choice(NAMES)
        params = {
            "order": self._order, "eur": round(dice.uniform(8, 1100), 2), "customer": customer,
            "express": dice.random() < 0.6, "carrier": dice.choice(CARRIERS),
            "trouble": dice.choices(("", "flaky", "declined", "bank"), (80, 12, 4, 4))[0],
        }  # fmt: skip
        labels = {"customer": customer, "region": dice.choice(REGIONS)}
        await self._start("shop.order.v2", params, key=f"order-{self._order}", labels=labels)

    async def _start(self, type_: str, params: Any, **options: Any) -> UUID:
        return (await self.app.start(type_, params, **options)).id

    async def _decide(self, number: int) -> None:
        """Decide most of the gates that are open."""
        for gate in (await self.app.approvals())[:-1]:
            if number % 4 == 3:
                await self.app.reject(gate.run, gate.step, by="grace", comment="not plausible")
            else:
                await self.app.approve(gate.run, gate.step, by="ada", comment="looks right")
        await self._quiet()

    async def _last(self) -> None:
        """Leave runs behind that are open, in all ways."""
        app = self.app
        await self._start("agent.research.v1", "What do durable workflows cost?", labels={"team": "search"})
        await self._start("shop.watch-stock.v1", 1)
        await self._start("shop.count-shelves.v1", 130)
        await self._start(
            "shop.invoice.v1", {"number": "2026-0999", "eur": 4210.0}, labels={"team": "finance"}
        )
        await self._start("shop.import.v1", [1, 2, 13])
        big = {"order": 5001, "eur": 1450.0, "customer": "ada", "express": True, "carrier": "DHL"}
        await self._start(
            "shop.order.v2", big, key="order-5001", labels={"customer": "ada", "region": "north"}
        )
        await self._quiet()
        await app.pause(await self._waiting("shop.order.v2"), by="grace")
        cancelled = await self._start("shop.order.v2", {**big, "order": 5002, "eur": 60.0}, delay=7200)
        await app.cancel(cancelled, by="grace")
        await self._start(
            "shop.order.v2", {**big, "order": 5003, "eur": 75.0}, delay=3600, labels={"region": "west"}
        )
        gone = await self._start("shop.order.v2", {**big, "order": 5004}, delay=3600)
        await app.delete(gone, by="ada")
        await self._start("shop.legacy.v1", {"order": 12})  # no worker has this type

    async def _waiting(self, type_: str) -> UUID:
        found = await self.app.list(RunFilter(statuses=(Status.WAITING,), type=type_), 100)
        return found[-1].id

    async def _left_running(self) -> None:
        """Leave two runs that a worker executes: it holds their leases, as one in another process would."""
        for order in (5005, 5006):
            params = {"order": order, "eur": 40.0, "customer": "alan", "express": True, "carrier": "UPS"}
            await self._start(
                "shop.order.v2", params, key=f"order-{order}", labels={"customer": "alan", "region": "east"}
            )
        ask = Ask(types=("shop.order.v2",), worker="worker-2", lease_seconds=LEASE_SECONDS, limit=2)
        await self.app.store.claim(ask)

    async def _quiet(self) -> None:
        """Wait until the worker has nothing to do."""
        while True:
            busy = await self.app.list(RunFilter(statuses=(Status.PENDING, Status.LEASED)), 200)
            now = self.world.now()
            if not any(one.status is Status.LEASED or instant(one.run_at) <= now for one in busy):
                return
            await asyncio.sleep(0.02)


async def filled(url: str, *, hours: float = HOURS) -> int:
    """Fill the store with this URL; return the number of runs."""
    world = PastWorld(hours * 3600 + LAST_SECONDS)
    store = make_store(url, world.now)
    log, before = logging.getLogger("holdfast"), logging.getLogger("holdfast").level
    log.setLevel(logging.CRITICAL)  # runs that fail are a part of the picture
    await store.open()
    try:
        return await Filling(store, world, hours=hours).fill()
    finally:
        await store.close()
        log.setLevel(before)
