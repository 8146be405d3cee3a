"""A company: runs that need others. A plan with a gate, a family of runs, and messages to the world outside.

The plan's task asks a carrier, waits for what comes, and is called again. The parent calls a plan, a run that
fails, and one that goes on as another; it starts a further one and does not wait for it. The post takes every
message; one it refuses once.
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
from holdfast.engine.messages import Delivery, Message
from holdfast.engine.plans.elements import Approval, Sleep, Task
from holdfast.engine.plans.outcomes import Completed, Retry, Waiting
from holdfast.engine.plans.task import PlanTask
from holdfast.errors import ChildFailed, Conflict, Fatal
from holdfast.testing.cast import patient

from .acts import Act, Pages
from .ledger import Entry
from .work import Done, Hand

ORDER, PARENT = "verify.order.v1", "verify.parent.v1"
ERRAND, CHORE, CHAIN = "verify.errand.v1", "verify.chore.v1", "verify.chain.v1"
DOOMED = "verify.doomed.v1"
POST = "post"
STEP_SECONDS, SINK_SECONDS = 0.2, 0.1  # virtual ones
ASK_SECONDS = 0.5  # between two attempts of the client to decide a gate that is not open yet
WAITS = ("carrier", "label")  # what the task that ships waits for
LINKS = 2  # of the chain

TASKS = {"PACK": 1, "SHIP": 2, "CLOSE": 3}
AMOUNTS: dict[str, Callable[[Any], dict[str, int]]] = {
    ORDER: lambda _: TASKS,
    PARENT: lambda _: {"brief": 4, "praise": 5},
    ERRAND: lambda _: {"run": 6},
    CHORE: lambda _: {"FETCH": 3, "DO": 4},
    CHAIN: lambda _: {"link": 8},
    DOOMED: lambda _: {"fall": 9},
}
LOGS: dict[str, Callable[[Any], tuple[str, ...]]] = {
    ORDER: lambda _: ("packed", "closed"),
    PARENT: lambda _: ("briefed", "the boss has said yes"),
    CHAIN: lambda _: ("linked",),
}


class Sum(msgspec.Struct, frozen=True, kw_only=True):
    """What each of them comes to."""

    total: int
    fence: int
    nonce: str = ""
    heard: list[Any] = []


def name_company(app: App, pages: Pages) -> None:
    """Name all of it in an app."""
    _name_order(app, pages)
    _name_parent(app, pages)
    _name_children(app, pages)

    @app.sink(POST, timeout=5)
    async def post(delivery: Delivery) -> None:
        await asyncio.sleep(SINK_SECONDS)
        run, what = str(delivery.run), delivery.payload
        if what == "refused once" and not pages.count("refusal", run, what):
            pages.note(Entry(kind="refusal", run=run, step=what))
            raise OSError("not now")
        pages.note(Entry(kind="delivered", run=run, step=delivery.key or "", nonce=delivery.id))


def _name_order(app: App, pages: Pages) -> None:
    gate = Approval("MANAGER", ask="Ship it?", data={"boxes": 3})
    order = app.plan(
        ORDER, [Task("PACK"), gate, Sleep("NAP", 1), Task("SHIP"), Task("CLOSE", attempts=5)],
        retry=Backoff.fixed(0.2, attempts=3),
    )  # fmt: skip

    @order.task("PACK")
    async def pack(task: PlanTask) -> Completed[Done]:
        done = await Clerk(pages, task).effect("PACK", TASKS["PACK"], STEP_SECONDS)
        task.log("packed")
        return Completed(done, outbound=[Message(POST, "packed", key="order"), Message(POST, "refused once")])

    @order.task("SHIP")
    async def ship(task: PlanTask) -> Completed[Done] | Waiting:
        """Asks the carrier; then waits for a label that has come long before."""
        clerk = Clerk(pages, task)
        await clerk.called()
        done = await clerk.effect("SHIP", TASKS["SHIP"], STEP_SECONDS)
        if task.event is None:
            return Waiting("carrier", timeout=600, outbound=[Message(POST, "asked", key="order")])
        if task.event.topic == "carrier":
            return Waiting("label", outbound=[Message(POST, task.event.payload, key="order")])
        return Completed(done, outbound=[Message(POST, task.event.payload, key="order")])

    @order.task("CLOSE")
    async def close(task: PlanTask) -> Completed[Sum] | Retry:
        clerk = Clerk(pages, task)
        before = pages.count("effect", str(task.run_id), "CLOSE")
        done = await clerk.effect("CLOSE", TASKS["CLOSE"])
        if before == 0:
            raise OSError("in place")
        if before == 1:
            return Retry(1.5, "back to the queue")
        earlier = [await clerk.seen(name, task.outputs[name]) for name in ("PACK", "SHIP")]
        task.log("closed")
        total = done.amount + sum(one.amount for one in earlier)
        decision = task.outputs["MANAGER"]
        said = Sum(total=total, fence=clerk.fence, nonce=done.nonce, heard=[decision.by, decision.comment])
        return Completed(said, outbound=[Message(POST, "closed", key="order")])


def _name_parent(app: App, pages: Pages) -> None:
    @app.workflow(PARENT, retry=Backoff.fixed(0.2, attempts=5))
    async def parent(ctx: Context) -> Sum:
        hand = Head(pages, ctx)
        total = (await hand.step("brief", 4, "to the family")).amount
        ctx.log("briefed")
        ctx.send(POST, "on their way", key=hand.line)
        heard, why, _ = await asyncio.gather(
            hand.child(CHORE, "chore"), hand.falls(), ctx.sleep(1.8, key="nap")
        )
        # Alone: nothing else would bring the parent back to look.
        link = await hand.child(CHAIN, "chain", LINKS)
        ctx.send(POST, "all are back", key=hand.line)
        await ctx.start(ERRAND, key="errand")
        said = await ctx.approval("boss", ask="Was it good?", data={"chore": heard})
        ctx.log("the boss has said yes")
        total += (await hand.step("praise", 5, "well done")).amount
        ctx.send(POST, "home")
        return Sum(total=total, fence=hand.fence, heard=[heard, link, why, said.by, said.approved])


def _name_children(app: App, pages: Pages) -> None:
    chore = app.plan(CHORE, [Task("FETCH"), Task("DO")])

    @chore.task("FETCH")
    async def fetch(task: PlanTask) -> Done:
        """Nothing rides along with it: its commit goes with those of others."""
        return await Clerk(pages, task).effect("FETCH", 3)

    @chore.task("DO")
    async def do(task: PlanTask) -> Completed[Sum]:
        clerk = Clerk(pages, task)
        done = await clerk.effect("DO", 4, STEP_SECONDS)
        before = await clerk.seen("FETCH", task.outputs["FETCH"])
        return Completed(Sum(total=before.amount + done.amount, fence=clerk.fence, nonce=done.nonce))

    @app.workflow(ERRAND)
    async def errand(ctx: Context) -> Sum:
        hand = Head(pages, ctx)
        done = await hand.step("run", 6, "ran")
        return Sum(total=done.amount, fence=hand.fence, nonce=done.nonce)

    @app.workflow(CHAIN)
    async def chain(ctx: Context, left: int) -> Sum:
        hand = Head(pages, ctx)
        done = await hand.step("link", 8, f"link {left}")
        ctx.log("linked")
        if left > 1:
            ctx.continue_as(left - 1)
        return Sum(total=done.amount, fence=hand.fence, nonce=done.nonce, heard=[left])

    @app.workflow(DOOMED)
    async def doomed(ctx: Context) -> None:
        hand = Head(pages, ctx)

        async def fall() -> None:
            await hand.effect("fall", 9, STEP_SECONDS)
            ctx.send(POST, "never heard")
            raise Fatal("fell")

        await ctx.step("fall", fall)


class Clerk(Hand[PlanTask]):
    """One execution of a plan's task."""

    async def called(self) -> None:
        """After how many waits, as far as it is told: what it has heard it must not forget."""
        heard = 0 if self.ctx.event is None else WAITS.index(self.ctx.event.topic) + 1
        run, name = str(self.ctx.run_id), self.ctx.name
        await self.book.tell(Entry(kind="called", run=run, step=name, fence=self.fence, amount=heard))


class Head(Hand[Context]):
    """One execution of one of the family."""

    @property
    def line(self) -> str:
        """The key of its messages."""
        return str(self.ctx.run_id)

    async def step(self, name: str, amount: int, message: str) -> Done:
        """A step with an effect, and with a message of its own."""

        async def work() -> Done:
            done = await self.effect(name, amount, STEP_SECONDS)
            self.ctx.send(POST, message, key=self.line)
            return done

        return await self.seen(name, await self.ctx.step(name, work))

    async def child(self, type_: str, key: str, params: Any = None) -> int:
        """What a child comes to."""
        sum_ = msgspec.convert(await self.ctx.call(type_, params, key=key), Sum)
        await self.seen(key, Done(amount=sum_.total, fence=sum_.fence, nonce=sum_.nonce))
        return sum_.total

    async def falls(self) -> list[str]:
        """Why the doomed one has failed."""
        try:
            await self.ctx.call(DOOMED, key="doomed")
        except ChildFailed as failed:
            return [failed.step, failed.status, failed.error.kind if failed.error else ""]
        return []


async def lead(app: App, pages: Pages, acked: set[UUID]) -> None:
    """Start both, decide at their gates, bring the carrier's answer, and wait for the end."""
    # By one who does not know the plan, before it is published: its rows come with the first claim.
    producer = App(app.store, world=app.world)
    order = await patient(lambda: producer.start(ORDER, key="order"))
    parent = await patient(lambda: app.start(PARENT, key="parent"))
    acked |= {order.id, parent.id}
    await patient(lambda: app.emit("label", "the label", id="label", run=order.id))
    await decide(app, pages, order.id, "MANAGER", "ada")
    await asyncio.sleep(1.5)
    await patient(lambda: app.emit("carrier", "the carrier comes", id="carrier", run=order.id))
    await decide(app, pages, parent.id, "boss", "grace")
    await patient(order.result)
    await patient(parent.result)


async def decide(app: App, pages: Pages, run: UUID, gate: str, by: str) -> None:
    """Approve a gate as soon as it is open; the same again is no second decision."""
    while True:
        pages.note(Entry(kind="decided", run=str(run), step=gate, nonce=by))
        try:
            await patient(lambda: app.approve(run, gate, by=by, comment="go on"))
        except Conflict:
            await asyncio.sleep(ASK_SECONDS)
        else:
            return


ACT = Act(name="company", workflows=name_company, client=lead, amounts=AMOUNTS, logs=LOGS)
