"""Workflows of the experiments with real processes: every effect is written to the ledger first."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from holdfast.engine.app.app import App
from holdfast.engine.code.context import Context
from holdfast.engine.plans.elements import Approval, Sleep, Task
from holdfast.engine.plans.task import PlanTask
from holdfast.engine.wake_up import WakeUp
from holdfast.world import RealWorld
from verify import sabotage as sabotages
from verify.environment.ledger import AnyLedger, Entry, Ledger
from verify.environment.processes import die_with_parent, quiet, tell_on_signal
from verify.environment.stores import answer_within
from verify.environment.watched_store import Watched

TRANSFER, POISON, STUBBORN = "verify.transfer.v1", "verify.poison.v1", "verify.stubborn.v1"
ORDER, PARENT, LISTENER = "verify.order.v1", "verify.parent.v1", "verify.listener.v1"
CHILDREN = 2  # children that a parent calls
RELATED_SECONDS = 0.04  # duration of a step of a plan or a parent

_count = itertools.count(1)


def costs(amount: int) -> int:
    """Return the cost of a step. Some cost nothing: steps without a cost are written on the fast path."""
    return amount if amount % 2 == 0 else 0


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of a transfer."""

    steps: int = 5
    seconds: float = 0.0  # duration of a step
    lead: float = 0.5  # share of the duration before the effect
    pause: float = 0.0  # duration of the body between two steps


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a step. The nonce names the execution that made it."""

    amount: int
    fence: int
    nonce: str


class Total(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a run, and the fence under which it ended."""

    total: int
    fence: int


C = TypeVar("C", Context, PlanTask)


class Reporter(Generic[C]):
    """The writer of ledger entries of one execution."""

    def __init__(self, ledger: AnyLedger, ctx: C) -> None:
        self.ledger = ledger
        self.ctx: C = ctx
        # A private attribute: users do not need the fence, so the context does not offer it.
        self.fence = ctx._run.claim.fence  # noqa: SLF001

    async def effect(self, step: str, amount: int, seconds: float = 0.0, lead: float = 0.5) -> Done:
        """Write an effect. Time passes before and after it, so that a kill may fall on either side."""
        if seconds:
            await asyncio.sleep(seconds * lead)
        done = Done(amount=amount, fence=self.fence, nonce=f"{os.getpid()}.{self.fence}.{next(_count)}")
        await self.ledger.write(self.entry("effect", step, done))
        if costs(amount):
            self.ctx.cost(amount)
        if seconds:
            await asyncio.sleep(seconds * (1 - lead))
        return done

    async def seen(self, step: str, done: Done) -> Done:
        """Write that the body got this value: every later execution must get the same value."""
        await self.ledger.write(self.entry("seen", step, done))
        return done

    def entry(self, kind: str, step: str, done: Done) -> Entry:
        return Entry(
            kind=kind, run=str(self.ctx.run_id), step=step, fence=self.fence, attempt=self.ctx.attempt,
            pid=os.getpid(), nonce=done.nonce, amount=done.amount,
        )  # fmt: skip


def transfer_amounts(params: dict[str, Any]) -> dict[str, int]:
    """Return the amount of each step of a transfer."""
    return {f"step{n}": n for n in range(1, params["steps"] + 1)}


AMOUNTS: dict[str, Callable[[dict[str, Any]], dict[str, int]]] = {
    TRANSFER: transfer_amounts,
    STUBBORN: lambda _: {"block": 1},
    POISON: lambda _: {"die": 1},
    ORDER: lambda _: {"PACK": 1, "SHIP": 2},
    PARENT: lambda _: {"before": 1, "after": 2},
    LISTENER: lambda _: {"heard": 1},
}


def _told(steps: int) -> range:
    """Return the steps that are followed by a log line: it is committed with the next step, which has a
    cost.
    """
    return range(1, steps, 2)


LOGS: dict[str, Callable[[Any], tuple[str, ...]]] = {
    TRANSFER: lambda params: tuple(f"{n} done" for n in _told(params["steps"])),
}


def make_app(app: App, ledger: AnyLedger) -> App:
    """Define the workflows in an app."""

    @app.workflow(TRANSFER)
    async def transfer(ctx: Context, order: Order) -> Total:
        reporter, total = Reporter(ledger, ctx), 0
        for n in range(1, order.steps + 1):
            done = await ctx.step(f"step{n}", reporter.effect, f"step{n}", n, order.seconds, order.lead)
            total += (await reporter.seen(f"step{n}", done)).amount
            if order.pause:
                await asyncio.sleep(order.pause)
            if n in _told(order.steps):
                ctx.log(f"{n} done")  # committed with the next step
        return Total(total=total, fence=reporter.fence)

    @app.workflow(POISON)
    async def poison(ctx: Context, after: float = 0.0) -> None:
        async def die() -> None:
            reporter = Reporter(ledger, ctx)
            await reporter.effect("die", 1)
            await asyncio.sleep(after)
            os._exit(1)

        await ctx.step("die", die)

    @app.workflow(STUBBORN)
    async def stubborn(ctx: Context, order: Order) -> Total:
        reporter = Reporter(ledger, ctx)

        async def block() -> Done:
            done = await reporter.effect("block", 1)
            time.sleep(order.seconds)  # noqa: ASYNC251  # the mistake that this experiment is about
            return done

        done = await reporter.seen("block", await ctx.step("block", block))
        return Total(total=done.amount, fence=reporter.fence)

    name_related(app, ledger)
    return app


def name_related(app: App, ledger: AnyLedger) -> None:
    """Define a plan with a gate, and a parent that gathers two transfers."""
    order = app.plan(ORDER, [Task("PACK"), Approval("MANAGER"), Sleep("NAP", 0.1), Task("SHIP")])

    @order.task("PACK")
    async def pack(task: PlanTask) -> Done:
        return await Reporter(ledger, task).effect("PACK", 1, RELATED_SECONDS)

    @order.task("SHIP")
    async def ship(task: PlanTask) -> Total:
        reporter = Reporter(ledger, task)
        packed = await reporter.seen("PACK", task.outputs["PACK"])
        done = await reporter.effect("SHIP", 2, RELATED_SECONDS)
        return Total(total=packed.amount + done.amount, fence=reporter.fence)

    @app.workflow(PARENT)
    async def parent(ctx: Context) -> Total:
        reporter, params = Reporter(ledger, ctx), {"steps": 2, "seconds": RELATED_SECONDS}
        total = 0
        for name, amount in (("before", 1), ("after", 2)):
            done = await ctx.step(name, reporter.effect, name, amount, RELATED_SECONDS)
            total += (await reporter.seen(name, done)).amount
            if name == "before":
                calls = [ctx.call(TRANSFER, params, key=f"child{n}") for n in range(CHILDREN)]
                await asyncio.gather(*calls, ctx.sleep(0.1))
        return Total(total=total, fence=reporter.fence)


def name_idle_listener(app: App, ledger: AnyLedger) -> None:
    """Define the workflow of a worker that only waits for events.

    Only hints may wake this worker: a worker that has found a run would look again soon, by itself.
    """
    setattr(WakeUp, "found", lambda _wake_up: None)  # noqa: B010 - for the life of this process
    name_listener(app, ledger)


def name_all(app: App, ledger: AnyLedger) -> None:
    """Define all workflows in one worker."""
    make_app(app, ledger)
    name_listener(app, ledger)


def name_listener(app: App, ledger: AnyLedger) -> None:
    """Define a workflow that waits for one event."""

    @app.workflow(LISTENER)
    async def listener(ctx: Context, topic: str) -> Total:
        reporter = Reporter(ledger, ctx)
        await ctx.await_event(topic)
        done = await reporter.seen("heard", await ctx.step("heard", reporter.effect, "heard", 1))
        return Total(total=done.amount, fence=reporter.fence)


def work(url: str, socket: str, log: str, sabotage: str | None, options: dict[str, Any]) -> None:
    """Run a worker until the process is killed."""
    from holdfast.stores import make_store

    die_with_parent()
    quiet(log)
    tell_on_signal(log)
    ledger, world, store = Ledger(socket), RealWorld(), make_store(url)
    if "call_seconds" in options:
        answer_within(store, options.pop("call_seconds"))
    if sabotage is not None:
        world = sabotages.apply(sabotage, world, url)
        store = sabotages.WRAPPERS.get(sabotage, lambda same: same)(store)
    watched = Watched(store, ledger, notes_claims=options.pop("notes_claims", False))
    app = App(watched, name="verify", world=world)
    name = {"transfers": make_app, "listener": name_idle_listener, "all": name_all}[
        options.pop("knows", "transfers")
    ]
    name(app, ledger)
    app.run(**options)
