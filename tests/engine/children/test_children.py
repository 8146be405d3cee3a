"""Child runs of code workflows: each is started once, waited for, and its end is recorded."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

import holdfast as hf
from holdfast import ChildFailed, RunFailed, RunFilter, Status
from holdfast.records import ANY
from tests.engine.kit import keys, outcome, trail, until


@dataclass
class Parcel:
    id: int
    weight: float = 1.0


def shipping(app, **options):
    """A child that sleeps for as many seconds as the id of its parcel. A negative id fails."""

    @app.workflow("shop.ship.v1", **options)
    async def ship(ctx, parcel: Parcel) -> Parcel:
        if parcel.id < 0:
            raise hf.Fatal("no such address")
        await ctx.sleep(parcel.id)
        return Parcel(parcel.id, parcel.weight * 2)

    return ship


async def children(app, run):
    return list(reversed(await app.list(RunFilter(parent=run.id, tenant=ANY), 10_000)))


@pytest.mark.spec("FLOW-7")
@pytest.mark.parametrize("checkpoint", ["step", "segment"])
async def test_a_call_starts_a_child_once_and_returns_what_it_returns(app, checkpoint):
    """The parent parks meanwhile. The result has the type of the child's annotation."""
    ship = shipping(app)
    executed = []

    @app.workflow("shop.order.v1", checkpoint=checkpoint)
    async def order(ctx):
        executed.append(1)
        parcel = await ctx.call(ship, Parcel(5), priority=7, labels={"to": "door"})
        assert isinstance(parcel, Parcel)
        await ctx.sleep(1)
        return parcel.weight

    async with app.worker() as worker:
        run = await app.start(order, tenant="acme")
        waits = await until(app, run, Status.WAITING)
        assert [(one.key, str(one.kind)) for one in waits.waiting_on] == [("shop.ship", "child")]
        await asyncio.sleep(1)
        assert worker.busy == 0
        assert await run.result(60) == 2.0
    (child,) = await children(app, run)
    assert (child.tenant, child.parent, child.parent_step) == ("acme", run.id, "shop.ship")
    assert (child.priority, child.labels) == (7, {"to": "door"})
    assert len(executed) == 3
    entries = await trail(app, run)
    assert entries.count("child_started") == 1
    assert entries.index("child_started") < entries.index("waiting")


@pytest.mark.spec("FLOW-7", "RETRY-7")
async def test_the_error_of_a_failed_child_is_raised_and_fails_the_run_if_not_caught(app):
    ship = shipping(app)
    executed = []

    @app.workflow("shop.order.v1")
    async def order(ctx):
        executed.append(1)
        await ctx.call(ship, Parcel(-1))

    async with app.worker():
        run = await app.start(order)
        assert await outcome(app, run) == ("failed", "child_failed")
    error = (await run.get()).error
    (child,) = await children(app, run)
    assert (error.step, error.type) == ("shop.ship", "ChildFailed")
    assert str(child.id) in error.message
    assert "no such address" in error.message
    assert len(executed) == 2


@pytest.mark.spec("FLOW-7")
async def test_the_failure_of_a_child_is_the_same_in_every_later_execution(app):
    ship = shipping(app)
    seen = []

    @app.workflow("shop.order.v1")
    async def order(ctx):
        try:
            await ctx.call(ship, Parcel(-1))
        except ChildFailed as error:
            seen.append((error.step, error.run_id, error.status, error.error.kind, str(error)))
        await ctx.sleep(5)
        return "went on"

    async with app.worker():
        run = await app.start(order)
        assert await run.result(60) == "went on"
    (child,) = await children(app, run)
    assert seen[0] == seen[1]
    assert seen[0][:4] == ("shop.ship", child.id, "failed", "fatal")


async def test_a_cancelled_child_is_a_failure_for_its_parent(app):
    ship = shipping(app)

    @app.workflow("shop.order.v1")
    async def order(ctx):
        try:
            await ctx.call(ship, Parcel(500))
        except ChildFailed as error:
            return [error.status, error.error]

    async with app.worker():
        run = await app.start(order)
        await until(app, run, Status.WAITING)
        (child,) = await children(app, run)
        await app.cancel(child.id)
        assert await run.result(60) == ["cancelled", None]


@pytest.mark.spec("REW-2", "FLOW-7")
async def test_retrying_a_run_whose_child_failed_starts_another_child(app):
    tries = []

    @app.workflow("shop.ship.v1")
    async def ship(ctx):
        tries.append(ctx.run_id)
        if len(tries) == 1:
            raise hf.Fatal("closed")
        return "shipped"

    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.step("charge", lambda: None)
        return await ctx.call(ship)

    async with app.worker():
        run = await app.start(order)
        assert await outcome(app, run) == ("failed", "child_failed")
        await app.retry(run.id)
        assert await run.result(60) == "shipped"
    assert len(set(tries)) == 2


@pytest.mark.spec("FLOW-7", "FLOW-9")
async def test_children_sleeps_events_and_gates_can_be_awaited_together(app):
    ship = shipping(app)

    @app.workflow("shop.order.v1")
    async def order(ctx):
        one, two, _, event, gate = await asyncio.gather(
            ctx.call(ship, Parcel(3), key="one"),
            ctx.call(ship, Parcel(9), key="two"),
            ctx.sleep(6),
            ctx.await_event("paid"),
            ctx.approval("gate", ask="?"),
        )
        return [one.id, two.id, event.payload, gate.by]

    async with app.worker():
        run = await app.start(order)
        found = await until(app, run, Status.WAITING)
        assert {one.key for one in found.waiting_on} == {"one", "two", "sleep", "event:paid", "gate"}
        await app.emit("paid", "cash")
        await app.approve(run.id, by="ada")
        assert await run.result(60) == [3, 9, "cash", "ada"]


@pytest.mark.spec("FLOW-2")
async def test_calls_from_several_tasks_need_keys_and_the_refusal_says_so(app):
    ship = shipping(app)

    @app.workflow("shop.order.v1")
    async def order(ctx):
        async def one(n):
            return await ctx.call(ship, Parcel(n))

        return await asyncio.gather(one(1), one(2))

    async with app.worker():
        run = await app.start(order)
        with pytest.raises(RunFailed, match=r"key=f'shop.ship:\{n\}'"):
            await run.result(60)


async def test_successive_calls_are_numbered(app):
    ship = shipping(app)

    @app.workflow("shop.order.v1")
    async def order(ctx):
        return [(await ctx.call(ship, Parcel(n))).id for n in range(3)]

    async with app.worker():
        run = await app.start(order)
        assert await run.result(60) == [0, 1, 2]
    assert await keys(app, run) == ["shop.ship", "shop.ship#2", "shop.ship#3"]


@pytest.mark.spec("FLOW-2")
async def test_the_first_child_to_end_wins_in_every_execution(app):
    ship = shipping(app)
    winners = []

    @app.workflow("shop.order.v1")
    async def order(ctx):
        calls = [asyncio.ensure_future(ctx.call(ship, Parcel(n), key=f"c:{n}")) for n in (9, 4, 7)]
        done, _ = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        winners.append([one.result().id for one in done])
        await asyncio.gather(*calls)
        await ctx.sleep(1)
        return winners[-1]

    async with app.worker():
        run = await app.start(order)
        assert await run.result(60) == [4]
    assert len(winners) == 4
    assert all(one == [4] for one in winners)


@pytest.mark.spec("START-6", "FLOW-7")
async def test_a_bare_name_is_resolved_once_and_stays_resolved(app):
    """The name means the newest version at the start of the child. A later version changes nothing."""

    @app.workflow("shop.ship.v9")
    async def nine(ctx):
        await ctx.sleep(5)
        return "nine"

    @app.workflow("shop.order.v1")
    async def order(ctx):
        return await ctx.call("shop.ship")

    async with app.worker():
        run = await app.start(order)
        await until(app, run, Status.WAITING)

        @app.workflow("shop.ship.v10")
        async def ten(ctx):
            return "ten"

        await app.publish()
        assert await run.result(60) == "nine"
    async with app.worker():
        later = await app.start(order)
        assert await later.result(60) == "ten"
    assert await keys(app, run) == ["shop.ship"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda ctx: ctx.call("shop.shop"),
            "no worker has published 'shop.shop' here; did you mean shop.ship",
        ),
        (lambda ctx: ctx.call("shop"), "is not a workflow type"),
        (lambda ctx: ctx.call(print), "is not a workflow"),
        (lambda ctx: ctx.call("shop.ship.v1", tenant="x"), "a child run has no option 'tenant'"),
        (lambda ctx: ctx.start("shop.ship.v1", id="x"), "a child run has no option 'id'"),
        (lambda ctx: ctx.call("shop.ship.v1", Parcel(1), priority=5000), "priority 5000"),
        (lambda ctx: ctx.call("shop.ship.v1", object()), "params of shop.ship.v1 is an object"),
        (lambda ctx: ctx.call("shop.ship.v1", Parcel(1), budget=-1), "budget=-1"),
    ],
)
async def test_a_call_that_cannot_be_made_is_refused_in_one_line_and_starts_nothing(app, call, message):
    shipping(app)

    @app.workflow("shop.order.v1")
    async def order(ctx):
        await call(ctx)

    async with app.worker():
        run = await app.start(order)
        with pytest.raises(RunFailed, match=message):
            await run.result(60)
    assert await children(app, run) == []


async def test_a_sync_workflow_can_call_and_start_children(app):
    ship = shipping(app)

    @app.workflow("shop.order.v1")
    def order(ctx: hf.SyncContext) -> list:
        started = ctx.start(ship, Parcel(1))
        try:
            ctx.call(ship, Parcel(-1), key="bad")
        except ChildFailed as error:
            return [str(started), error.status, ctx.call(ship, Parcel(3)).id]

    async with app.worker():
        run = await app.start(order)
        started, *rest = await run.result(60)
        assert rest == ["failed", 3]
        assert (await app.final(started, 60)).status is Status.SUCCEEDED


async def test_a_child_can_run_on_another_worker(app):
    ship = shipping(app)

    @app.workflow("shop.order.v1")
    async def order(ctx):
        return (await ctx.call(ship, Parcel(3))).id

    async with app.worker(patterns=["shop.order.%"]):
        run = await app.start(order)
        await until(app, run, Status.WAITING)
        await asyncio.sleep(30)
        async with app.worker(patterns=["shop.ship.%"]):
            assert await run.result(60) == 3


async def test_a_child_within_a_step_is_refused(app):
    ship = shipping(app)

    @app.workflow("shop.order.v1")
    async def order(ctx):
        async def wrong():
            await ctx.call(ship, Parcel(1))

        await ctx.step("wrong", wrong)

    async with app.worker():
        run = await app.start(order)
        with pytest.raises(RunFailed, match="belong in the body"):
            await run.result(60)


async def test_a_call_that_is_never_awaited_fails_the_run_by_name(app):
    ship = shipping(app)

    @app.workflow("shop.order.v1")
    async def order(ctx):
        ctx.call(ship, Parcel(1), key="left").close()
        return "done"

    async with app.worker():
        run = await app.start(order)
        assert await run.result(60) == "done"
    assert await children(app, run) == []
