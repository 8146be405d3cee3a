"""The scenario company: runs that depend on others. A plan with a gate, a parent with children, and messages.

The plan's task SHIP waits for two events and is called again after each. The parent calls a plan, a run that
fails, and a chain; it starts a further run and does not wait for it. The sink `post` takes every message, and
refuses one message once.
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
from holdfast.engine.outbox.messages import Delivery, Message
from holdfast.engine.plans.elements import Approval, Sleep, Task
from holdfast.engine.plans.outcomes import Completed, Retry, Waiting
from holdfast.engine.plans.task import PlanTask
from holdfast.errors import ChildFailed, Conflict, Fatal
from holdfast.testing.simulated_processes import retry_unavailable
from verify.environment.ledger import Entry
from verify.workloads.workflows import Done, Reporter

from .scenario import MemoryLedger, Scenario

ORDER, PARENT = "verify.order.v1", "verify.parent.v1"
ERRAND, CHORE, CHAIN = "verify.errand.v1", "verify.chore.v1", "verify.chain.v1"
DOOMED = "verify.doomed.v1"
POST = "post"
STEP_SECONDS, SINK_SECONDS = 0.2, 0.1  # of virtual time
ASK_SECONDS = 0.5  # between two attempts of the client to decide a gate that is not open yet
WAITS = ("carrier", "label")  # topics that the task SHIP waits for
LINKS = 2  # runs of the chain

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
    """The result of each run."""

    total: int
    fence: int
    nonce: str = ""
    heard: list[Any] = []


def name_company(app: App, ledger: MemoryLedger) -> None:
    """Define the plans, the workflows and the sink in an app."""
    _name_order(app, ledger)
    _name_parent(app, ledger)
    _name_children(app, ledger)

    @app.sink(POST, timeout=5)
    async def post(delivery: Delivery) -> None:
        await asyncio.sleep(SINK_SECONDS)
        run, what = str(delivery.run), delivery.payload
        if what == "refused once" and not ledger.count("refusal", run, what):
            ledger.note(Entry(kind="refusal", run=run, step=what))
            raise OSError("not now")
        ledger.note(Entry(kind="delivered", run=run, step=delivery.key or "", nonce=delivery.id))


def _name_order(app: App, ledger: MemoryLedger) -> None:
    gate = Approval("MANAGER", ask="Ship it?", data={"boxes": 3})
    order = app.plan(
        ORDER, [Task("PACK"), gate, Sleep("NAP", 1), Task("SHIP"), Task("CLOSE", attempts=5)],
        retry=Backoff.fixed(0.2, attempts=3),
    )  # fmt: skip

    @order.task("PACK")
    async def pack(task: PlanTask) -> Completed[Done]:
        done = await TaskReporter(ledger, task).effect("PACK", TASKS["PACK"], STEP_SECONDS)
        task.log("packed")
        return Completed(done, outbound=[Message(POST, "packed", key="order"), Message(POST, "refused once")])

    @order.task("SHIP")
    async def ship(task: PlanTask) -> Completed[Done] | Waiting:
        """Wait for the carrier; then for a label, whose event has come long before."""
        reporter = TaskReporter(ledger, task)
        await reporter.called()
        done = await reporter.effect("SHIP", TASKS["SHIP"], STEP_SECONDS)
        if task.event is None:
            return Waiting("carrier", timeout=600, outbound=[Message(POST, "asked", key="order")])
        if task.event.topic == "carrier":
            return Waiting("label", outbound=[Message(POST, task.event.payload, key="order")])
        return Completed(done, outbound=[Message(POST, task.event.payload, key="order")])

    @order.task("CLOSE")
    async def close(task: PlanTask) -> Completed[Sum] | Retry:
        reporter = TaskReporter(ledger, task)
        before = ledger.count("effect", str(task.run_id), "CLOSE")
        done = await reporter.effect("CLOSE", TASKS["CLOSE"])
        if before == 0:
            raise OSError("in place")
        if before == 1:
            return Retry(1.5, "back to the queue")
        earlier = [await reporter.seen(name, task.outputs[name]) for name in ("PACK", "SHIP")]
        task.log("closed")
        total = done.amount + sum(one.amount for one in earlier)
        decision = task.outputs["MANAGER"]
        said = Sum(total=total, fence=reporter.fence, nonce=done.nonce, heard=[decision.by, decision.comment])
        return Completed(said, outbound=[Message(POST, "closed", key="order")])


def _name_parent(app: App, ledger: MemoryLedger) -> None:
    @app.workflow(PARENT, retry=Backoff.fixed(0.2, attempts=5))
    async def parent(ctx: Context) -> Sum:
        reporter = RunReporter(ledger, ctx)
        total = (await reporter.step("brief", 4, "to the family")).amount
        ctx.log("briefed")
        ctx.send(POST, "on their way", key=reporter.line)
        heard, why, _ = await asyncio.gather(
            reporter.child(CHORE, "chore"), reporter.falls(), ctx.sleep(1.8, key="nap")
        )
        # Awaited alone: no other wait wakes the parent, so the end of the chain must.
        link = await reporter.child(CHAIN, "chain", LINKS)
        ctx.send(POST, "all are back", key=reporter.line)
        await ctx.start(ERRAND, key="errand")
        said = await ctx.approval("boss", ask="Was it good?", data={"chore": heard})
        ctx.log("the boss has said yes")
        total += (await reporter.step("praise", 5, "well done")).amount
        ctx.send(POST, "home")
        return Sum(total=total, fence=reporter.fence, heard=[heard, link, why, said.by, said.approved])


def _name_children(app: App, ledger: MemoryLedger) -> None:
    chore = app.plan(CHORE, [Task("FETCH"), Task("DO")])

    @chore.task("FETCH")
    async def fetch(task: PlanTask) -> Done:
        """Return a plain output, without messages or logs: its commit is batched with others."""
        return await TaskReporter(ledger, task).effect("FETCH", 3)

    @chore.task("DO")
    async def do(task: PlanTask) -> Completed[Sum]:
        reporter = TaskReporter(ledger, task)
        done = await reporter.effect("DO", 4, STEP_SECONDS)
        before = await reporter.seen("FETCH", task.outputs["FETCH"])
        return Completed(Sum(total=before.amount + done.amount, fence=reporter.fence, nonce=done.nonce))

    @app.workflow(ERRAND)
    async def errand(ctx: Context) -> Sum:
        reporter = RunReporter(ledger, ctx)
        done = await reporter.step("run", 6, "ran")
        return Sum(total=done.amount, fence=reporter.fence, nonce=done.nonce)

    @app.workflow(CHAIN)
    async def chain(ctx: Context, left: int) -> Sum:
        reporter = RunReporter(ledger, ctx)
        done = await reporter.step("link", 8, f"link {left}")
        ctx.log("linked")
        if left > 1:
            ctx.continue_as(left - 1)
        return Sum(total=done.amount, fence=reporter.fence, nonce=done.nonce, heard=[left])

    @app.workflow(DOOMED)
    async def doomed(ctx: Context) -> None:
        reporter = RunReporter(ledger, ctx)

        async def fall() -> None:
            await reporter.effect("fall", 9, STEP_SECONDS)
            ctx.send(POST, "never heard")
            raise Fatal("fell")

        await ctx.step("fall", fall)


class TaskReporter(Reporter[PlanTask]):
    """The ledger entries of one execution of a plan's task."""

    async def called(self) -> None:
        """Write the number of waits that the task was told of: it must never be told of fewer later."""
        heard = 0 if self.ctx.event is None else WAITS.index(self.ctx.event.topic) + 1
        run, name = str(self.ctx.run_id), self.ctx.name
        await self.ledger.write(Entry(kind="called", run=run, step=name, fence=self.fence, amount=heard))


class RunReporter(Reporter[Context]):
    """The ledger entries of one execution of the parent or a child."""

    @property
    def line(self) -> str:
        """Return the key of its messages."""
        return str(self.ctx.run_id)

    async def step(self, name: str, amount: int, message: str) -> Done:
        """Run a step with an effect and a message."""

        async def work() -> Done:
            done = await self.effect(name, amount, STEP_SECONDS)
            self.ctx.send(POST, message, key=self.line)
            return done

        return await self.seen(name, await self.ctx.step(name, work))

    async def child(self, type_: str, key: str, params: Any = None) -> int:
        """Call a child, and return its total."""
        sum_ = msgspec.convert(await self.ctx.call(type_, params, key=key), Sum)
        await self.seen(key, Done(amount=sum_.total, fence=sum_.fence, nonce=sum_.nonce))
        return sum_.total

    async def falls(self) -> list[str]:
        """Call the child that fails, and return its failure."""
        try:
            await self.ctx.call(DOOMED, key="doomed")
        except ChildFailed as failed:
            return [failed.step, failed.status, failed.error.kind if failed.error else ""]
        return []


async def company_client(app: App, ledger: MemoryLedger, acked: set[UUID]) -> None:
    """Start both runs, decide their gates, emit the events, and wait for the end."""
    # This app does not know the plan, and the plan is not published yet: its rows come with the first claim.
    producer = App(app.store, world=app.world)
    order = await retry_unavailable(lambda: producer.start(ORDER, key="order"))
    parent = await retry_unavailable(lambda: app.start(PARENT, key="parent"))
    acked |= {order.id, parent.id}
    await retry_unavailable(lambda: app.emit("label", "the label", id="label", run=order.id))
    await decide(app, ledger, order.id, "MANAGER", "ada")
    await asyncio.sleep(1.5)
    await retry_unavailable(lambda: app.emit("carrier", "the carrier comes", id="carrier", run=order.id))
    await decide(app, ledger, parent.id, "boss", "grace")
    await retry_unavailable(order.result)
    await retry_unavailable(parent.result)


async def decide(app: App, ledger: MemoryLedger, run: UUID, gate: str, by: str) -> None:
    """Approve a gate as soon as it is open; a repeat is no second decision."""
    while True:
        ledger.note(Entry(kind="decided", run=str(run), step=gate, nonce=by))
        try:
            await retry_unavailable(lambda: app.approve(run, gate, by=by, comment="go on"))
        except Conflict:
            await asyncio.sleep(ASK_SECONDS)
        else:
            return


SCENARIO = Scenario(name="company", workflows=name_company, client=company_client, amounts=AMOUNTS, logs=LOGS)
