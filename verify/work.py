"""What the workers under test do: small workflows whose every effect goes to the ledger first."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from holdfast.engine.app import App
from holdfast.engine.context import Context
from holdfast.engine.keeper import Bell
from holdfast.engine.plans.elements import Approval, Sleep, Task
from holdfast.engine.plans.task import PlanTask
from holdfast.world import RealWorld

from . import sabotage as sabotages
from .ledger import Book, Entry, Ledger
from .processes import die_with_parent, quiet, tell_on_signal
from .watched import Watched

TRANSFER, POISON, STUBBORN = "verify.transfer.v1", "verify.poison.v1", "verify.stubborn.v1"
ORDER, PARENT, BELL = "verify.order.v1", "verify.parent.v1", "verify.bell.v1"
CHILDREN = 2  # that a parent calls
CREW_SECONDS = 0.04  # what a step of theirs takes

_count = itertools.count(1)


def costs(amount: int) -> int:
    """What a step costs: some nothing, for what costs nothing is written on a shorter way."""
    return amount if amount % 2 == 0 else 0


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """How much a run has to do."""

    steps: int = 5
    seconds: float = 0.0  # how long a step takes
    lead: float = 0.5  # which share of that comes before its effect
    pause: float = 0.0  # what the body takes between two steps


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """What a step returns: which execution made it, so that two values of one step can be told apart."""

    amount: int
    fence: int
    nonce: str


class Total(msgspec.Struct, frozen=True, kw_only=True):
    """What a run returns, and under which fence it says so."""

    total: int
    fence: int


C = TypeVar("C", Context, PlanTask)


class Hand(Generic[C]):
    """The effects of one execution."""

    def __init__(self, book: Book, ctx: C) -> None:
        self.book = book
        self.ctx: C = ctx
        # The fence is nobody's business but the ledger's; the context does not offer it.
        self.fence = ctx._run.claim.fence  # noqa: SLF001

    async def effect(self, step: str, amount: int, seconds: float = 0.0, lead: float = 0.5) -> Done:
        """Time passes before the effect and after it: a kill may fall on either side."""
        if seconds:
            await asyncio.sleep(seconds * lead)
        done = Done(amount=amount, fence=self.fence, nonce=f"{os.getpid()}.{self.fence}.{next(_count)}")
        await self.book.tell(self.entry("effect", step, done))
        if costs(amount):
            self.ctx.cost(amount)
        if seconds:
            await asyncio.sleep(seconds * (1 - lead))
        return done

    async def seen(self, step: str, done: Done) -> Done:
        """The body holds a value; whatever execution asks again must be given the same."""
        await self.book.tell(self.entry("seen", step, done))
        return done

    def entry(self, kind: str, step: str, done: Done) -> Entry:
        return Entry(
            kind=kind, run=str(self.ctx.run_id), step=step, fence=self.fence, attempt=self.ctx.attempt,
            pid=os.getpid(), nonce=done.nonce, amount=done.amount,
        )  # fmt: skip


def transfer_amounts(params: dict[str, Any]) -> dict[str, int]:
    """Step by step, what a transfer moves."""
    return {f"step{n}": n for n in range(1, params["steps"] + 1)}


AMOUNTS: dict[str, Callable[[dict[str, Any]], dict[str, int]]] = {
    TRANSFER: transfer_amounts,
    STUBBORN: lambda _: {"block": 1},
    POISON: lambda _: {"die": 1},
    ORDER: lambda _: {"PACK": 1, "SHIP": 2},
    PARENT: lambda _: {"before": 1, "after": 2},
    BELL: lambda _: {"heard": 1},
}


def _told(steps: int) -> range:
    """After which steps there is a log: each rides along with one that has a cost."""
    return range(1, steps, 2)


LOGS: dict[str, Callable[[Any], tuple[str, ...]]] = {
    TRANSFER: lambda params: tuple(f"{n} done" for n in _told(params["steps"])),
}


def make_app(app: App, book: Book) -> App:
    """Name the workflows in an app."""

    @app.workflow(TRANSFER)
    async def transfer(ctx: Context, order: Order) -> Total:
        hand, total = Hand(book, ctx), 0
        for n in range(1, order.steps + 1):
            done = await ctx.step(f"step{n}", hand.effect, f"step{n}", n, order.seconds, order.lead)
            total += (await hand.seen(f"step{n}", done)).amount
            if order.pause:
                await asyncio.sleep(order.pause)
            if n in _told(order.steps):
                ctx.log(f"{n} done")  # rides along with the next step
        return Total(total=total, fence=hand.fence)

    @app.workflow(POISON)
    async def poison(ctx: Context, after: float = 0.0) -> None:
        async def die() -> None:
            hand = Hand(book, ctx)
            await hand.effect("die", 1)
            await asyncio.sleep(after)
            os._exit(1)

        await ctx.step("die", die)

    @app.workflow(STUBBORN)
    async def stubborn(ctx: Context, order: Order) -> Total:
        hand = Hand(book, ctx)

        async def block() -> Done:
            done = await hand.effect("block", 1)
            time.sleep(order.seconds)  # noqa: ASYNC251  # the very mistake that is to be survived
            return done

        done = await hand.seen("block", await ctx.step("block", block))
        return Total(total=done.amount, fence=hand.fence)

    name_crew(app, book)
    return app


def name_crew(app: App, book: Book) -> None:
    """Runs that need others: a plan with a gate, and a parent that gathers two transfers."""
    order = app.plan(ORDER, [Task("PACK"), Approval("MANAGER"), Sleep("NAP", 0.1), Task("SHIP")])

    @order.task("PACK")
    async def pack(task: PlanTask) -> Done:
        return await Hand(book, task).effect("PACK", 1, CREW_SECONDS)

    @order.task("SHIP")
    async def ship(task: PlanTask) -> Total:
        hand = Hand(book, task)
        packed = await hand.seen("PACK", task.outputs["PACK"])
        done = await hand.effect("SHIP", 2, CREW_SECONDS)
        return Total(total=packed.amount + done.amount, fence=hand.fence)

    @app.workflow(PARENT)
    async def parent(ctx: Context) -> Total:
        hand, params = Hand(book, ctx), {"steps": 2, "seconds": CREW_SECONDS}
        total = 0
        for name, amount in (("before", 1), ("after", 2)):
            done = await ctx.step(name, hand.effect, name, amount, CREW_SECONDS)
            total += (await hand.seen(name, done)).amount
            if name == "before":
                calls = [ctx.call(TRANSFER, params, key=f"child{n}") for n in range(CHILDREN)]
                await asyncio.gather(*calls, ctx.sleep(0.1))
        return Total(total=total, fence=hand.fence)


def name_bells(app: App, book: Book) -> None:
    """For a worker that has nothing to do but to wait for what others send.

    It must be hints that it hears: one that has found something would look again by itself, and soon.
    """
    setattr(Bell, "found", lambda _bell: None)  # noqa: B010 - for the life of this process
    name_bell(app, book)


def name_all(app: App, book: Book) -> None:
    """Every kind of run in one worker."""
    make_app(app, book)
    name_bell(app, book)


def name_bell(app: App, book: Book) -> None:
    """A run that waits for one event."""

    @app.workflow(BELL)
    async def bell(ctx: Context, topic: str) -> Total:
        hand = Hand(book, ctx)
        await ctx.await_event(topic)
        done = await hand.seen("heard", await ctx.step("heard", hand.effect, "heard", 1))
        return Total(total=done.amount, fence=hand.fence)


def work(url: str, socket: str, log: str, sabotage: str | None, options: dict[str, Any]) -> None:
    """Be a worker process, until killed."""
    from holdfast.stores import make_store

    die_with_parent()
    quiet(log)
    tell_on_signal(log)
    book, world, store = Ledger(socket), RealWorld(), make_store(url)
    if "call_seconds" in options:
        store.call_seconds = options.pop("call_seconds")  # type: ignore[attr-defined] # of Postgres
    if sabotage is not None:
        world = sabotages.apply(sabotage, world)
        store = sabotages.WRAPPERS.get(sabotage, lambda same: same)(store)
    app = App(Watched(store, book), name="verify", world=world)
    name = {"transfers": make_app, "bells": name_bells, "all": name_all}[options.pop("knows", "transfers")]
    name(app, book)
    app.run(**options)
