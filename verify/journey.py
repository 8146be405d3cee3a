"""A workflow with one of everything: steps, a log, sleeps, events early and late, retries, a gather, a fall.

A porter waits for what the journey emits on its way, so that runs wake each other too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import UUID

import msgspec

from holdfast.backoff import Backoff
from holdfast.engine.app import App
from holdfast.engine.context import Context
from holdfast.testing.cast import patient

from .acts import Act, Pages
from .ledger import Entry
from .work import Done, Hand

JOURNEY, PORTER = "verify.journey.v1", "verify.porter.v1"
LOGS = {JOURNEY: lambda _: ("packed", "the early letter came", "at the door")}
FLAKY_FAILS = 2
STEP_SECONDS = 0.3  # virtual ones: time for a zombie to write while another holds its run

STEPS = {"pack": 1, "flaky": 2, "left": 3, "right": 4, "ship": 5}
AMOUNTS: dict[str, Callable[[Any], dict[str, int]]] = {
    JOURNEY: lambda _: STEPS,
    PORTER: lambda _: {"carry": 6},
}


class Arrived(msgspec.Struct, frozen=True, kw_only=True):
    """What the journey comes to, whoever may have died on the way."""

    total: int
    fence: int
    letters: list[Any]


def name_journey(app: App, pages: Pages) -> None:
    """Name it in an app."""

    @app.workflow(JOURNEY, retry=Backoff.fixed(0.2, attempts=5))
    async def journey(ctx: Context) -> Arrived:
        hand = Traveller(pages, ctx)
        values = [await hand.step("pack")]
        ctx.log("packed")
        await ctx.sleep(2)
        early = await ctx.await_event("early")
        ctx.log("the early letter came")
        # First in place, then back to the queue.
        values.append(
            await hand.seen("flaky", await ctx.step("flaky", hand.flaky, retry=Backoff.of([0.2, 1.5])))
        )
        late = await ctx.await_event("late", timeout=600)
        values += (await asyncio.gather(hand.step("left"), hand.step("right"), ctx.sleep(1.2, key="nap")))[:2]
        ctx.emit("porter", "come")
        await hand.stumble()
        ctx.log("at the door")
        values.append(await hand.step("ship"))
        letters = [early.payload, late.payload]
        return Arrived(total=sum(one.amount for one in values), fence=hand.fence, letters=letters)

    @app.workflow(PORTER)
    async def porter(ctx: Context) -> Arrived:
        hand = Traveller(pages, ctx)
        call = await ctx.await_event("porter")
        done = await hand.seen("carry", await ctx.step("carry", hand.effect, "carry", 6))
        return Arrived(total=done.amount, fence=hand.fence, letters=[call.payload])


class Traveller(Hand[Context]):
    """One execution of the journey."""

    def __init__(self, pages: Pages, ctx: Context) -> None:
        super().__init__(pages, ctx)
        self._pages = pages

    async def step(self, name: str) -> Done:
        return await self.seen(name, await self.ctx.step(name, self.effect, name, STEPS[name], STEP_SECONDS))

    async def flaky(self) -> Done:
        """Fails until the ledger has seen it twice: the same for every worker, whoever counts."""
        before = self._pages.count("effect", str(self.ctx.run_id), "flaky")
        done = await self.effect("flaky", STEPS["flaky"])
        if before < FLAKY_FAILS:
            raise OSError("not yet")
        return done

    async def stumble(self) -> None:
        """The body itself fails once: the run is tried again."""
        if not self._pages.count("stumble", str(self.ctx.run_id), ""):
            await self.book.tell(Entry(kind="stumble", run=str(self.ctx.run_id)))
            raise RuntimeError("stumbled")


async def travel(app: App, _: Pages, acked: set[UUID]) -> None:
    """Start both, send the letters, and wait for the end."""
    porter = await patient(lambda: app.start(PORTER, key="porter"))
    journey = await patient(lambda: app.start(JOURNEY, key="journey"))
    acked |= {porter.id, journey.id}
    await patient(lambda: app.emit("early", "a letter", id="early"))
    await asyncio.sleep(5)
    await patient(lambda: app.emit("late", "another", id="late"))
    await patient(journey.result)


ACT = Act(name="journey", workflows=name_journey, client=travel, amounts=AMOUNTS, logs=LOGS)
