"""The scenario journey: a workflow with steps, a log, sleeps, events early and late, retries, a gather, an
error.

A second workflow, the porter, waits for an event of the journey, so that one run wakes another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import UUID

import msgspec

from holdfast.backoff import Backoff
from holdfast.engine.app.app import App
from holdfast.engine.code.context import Context
from holdfast.testing.simulated_processes import retry_unavailable
from verify.environment.ledger import Entry
from verify.workloads.workflows import Done, Reporter

from .scenario import MemoryLedger, Scenario

JOURNEY, PORTER = "verify.journey.v1", "verify.porter.v1"
LOGS = {JOURNEY: lambda _: ("packed", "the early letter came", "at the door")}
FLAKY_FAILS = 2
STEP_SECONDS = 0.3  # of virtual time, so that a zombie can write while another worker holds its run

STEPS = {"pack": 1, "flaky": 2, "left": 3, "right": 4, "ship": 5}
AMOUNTS: dict[str, Callable[[Any], dict[str, int]]] = {
    JOURNEY: lambda _: STEPS,
    PORTER: lambda _: {"carry": 6},
}


class Arrived(msgspec.Struct, frozen=True, kw_only=True):
    """The result of the journey, which crashes must not change."""

    total: int
    fence: int
    letters: list[Any]


def name_journey(app: App, ledger: MemoryLedger) -> None:
    """Define the workflows in an app."""

    @app.workflow(JOURNEY, retry=Backoff.fixed(0.2, attempts=5))
    async def journey(ctx: Context) -> Arrived:
        reporter = JourneyReporter(ledger, ctx)
        values = [await reporter.step("pack")]
        ctx.log("packed")
        await ctx.sleep(2)
        early = await ctx.await_event("early")
        ctx.log("the early letter came")
        # The first retry is in place, the second one goes through the queue.
        values.append(
            await reporter.seen(
                "flaky", await ctx.step("flaky", reporter.flaky, retry=Backoff.of([0.2, 1.5]))
            )
        )
        late = await ctx.await_event("late", timeout=600)
        values += (
            await asyncio.gather(reporter.step("left"), reporter.step("right"), ctx.sleep(1.2, key="nap"))
        )[:2]
        ctx.emit("porter", "come")
        await reporter.stumble()
        ctx.log("at the door")
        values.append(await reporter.step("ship"))
        letters = [early.payload, late.payload]
        return Arrived(total=sum(one.amount for one in values), fence=reporter.fence, letters=letters)

    @app.workflow(PORTER)
    async def porter(ctx: Context) -> Arrived:
        reporter = JourneyReporter(ledger, ctx)
        call = await ctx.await_event("porter")
        done = await reporter.seen("carry", await ctx.step("carry", reporter.effect, "carry", 6))
        return Arrived(total=done.amount, fence=reporter.fence, letters=[call.payload])


class JourneyReporter(Reporter[Context]):
    """One execution of the journey."""

    def __init__(self, ledger: MemoryLedger, ctx: Context) -> None:
        super().__init__(ledger, ctx)
        self._ledger = ledger

    async def step(self, name: str) -> Done:
        return await self.seen(name, await self.ctx.step(name, self.effect, name, STEPS[name], STEP_SECONDS))

    async def flaky(self) -> Done:
        """Fail until the ledger has two effects of this step: the same count for every worker."""
        before = self._ledger.count("effect", str(self.ctx.run_id), "flaky")
        done = await self.effect("flaky", STEPS["flaky"])
        if before < FLAKY_FAILS:
            raise OSError("not yet")
        return done

    async def stumble(self) -> None:
        """Let the body itself fail once: the run is retried."""
        if not self._ledger.count("stumble", str(self.ctx.run_id), ""):
            await self.ledger.write(Entry(kind="stumble", run=str(self.ctx.run_id)))
            raise RuntimeError("stumbled")


async def journey_client(app: App, _: MemoryLedger, acked: set[UUID]) -> None:
    """Start both runs, emit the two events, and wait for the end."""
    porter = await retry_unavailable(lambda: app.start(PORTER, key="porter"))
    journey = await retry_unavailable(lambda: app.start(JOURNEY, key="journey"))
    acked |= {porter.id, journey.id}
    await retry_unavailable(lambda: app.emit("early", "a letter", id="early"))
    await asyncio.sleep(5)
    await retry_unavailable(lambda: app.emit("late", "another", id="late"))
    await retry_unavailable(journey.result)


SCENARIO = Scenario(name="journey", workflows=name_journey, client=journey_client, amounts=AMOUNTS, logs=LOGS)
