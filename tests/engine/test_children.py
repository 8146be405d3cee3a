"""Child runs of code workflows: started once, waited for, and their end recorded."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

import holdfast as hf
from holdfast import ChildFailed, RunFailed, RunFilter, Status
from tests.engine.kit import keys, outcome, trail, until


@dataclass
class Parcel:
    id: int
    weight: float = 1.0


def shipping(app, **options):
    """A child that sleeps for as many seconds as its parcel has an id; a negative one fails."""

    @app.workflow("shop.ship.v1", **options)
    async def ship(ctx, parcel: Parcel) -> Parcel:
        if parcel.id < 0:
            raise hf.Fatal("no such address")
        await ctx.sleep(parcel.id)
        return Parcel(parcel.id, parcel.weight * 2)

    return ship


async def children(app, run):
    return list(reversed(await app.list(RunFilter(parent=run.id, tenant=None), 10_000)))


@pytest.mark.spec("FLOW-7")
@pytest.mark.parametrize("checkpoint", ["step", "segment"])
async def test_a_call_starts_a_child_once_and_returns_what_it_returns(app, checkpoint):
    """The parent parks meanwhile; the result comes back in the type that the child's annotation says."""
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
    told = await trail(app, run)
    assert told.count("child_started") == 1
    assert told.index("child_started") < told.index("waiting")


@pytest.mark.spec("FLOW-7", "RETRY-7")
async def test_a_failed_child_is_raised_and_fails_the_run_at_once_when_nobody_catches_it(app):
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
async def test_a_failure_of_a_child_is_the_same_in_every_later_execution(app):
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


async def test_a_cancelled_child_is_a_failure_to_its_parent(app):
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
async def test_children_sleeps_events_and_gates_are_awaited_together(app):
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


async def test_calls_one_after_another_are_numbered(app):
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


@pytest.mark.spec("FLOW-7")
@pytest.mark.parametrize("checkpoint", ["step", "segment"])
async def test_a_start_does_not_wait_and_gives_the_same_id_in_every_execution(app, checkpoint):
    ship = shipping(app)
    ids = []

    @app.workflow("shop.order.v1", checkpoint=checkpoint)
    async def order(ctx):
        ids.append(await ctx.start(ship, Parcel(100), delay=5))
        await ctx.sleep(1)
        return "done"

    async with app.worker():
        run = await app.start(order)
        assert await run.result(60) == "done"
        (child,) = await children(app, run)
        assert child.status is not Status.SUCCEEDED
        assert ids == [child.id, child.id]
        assert (await app.final(child.id, 200)).result == {"id": 100, "weight": 2.0}
    (step, _) = await app.steps(run.id)
    assert (step.key, str(step.kind), str(step.status), step.child) == (
        "shop.ship",
        "child",
        "succeeded",
        child.id,
    )


@pytest.mark.spec("FLOW-12")
async def test_in_a_segment_started_children_go_with_its_one_commit(app):
    """Before it they are not there: a crash before the commit leaves none of them."""
    ship = shipping(app)
    seen = []

    @app.workflow("shop.order.v1", checkpoint="segment")
    async def order(ctx):
        for n in range(3):
            await ctx.start(ship, Parcel(n), key=f"s:{n}")

        async def look():
            seen.append(len(await app.list(RunFilter(type="shop.ship.v1"))))

        await ctx.step("look", look)
        return "done"

    async with app.worker():
        run = await app.start(order)
        assert await run.result(60) == "done"
    assert seen == [0]
    assert len(await children(app, run)) == 3


@pytest.mark.spec("START-6", "FLOW-7")
async def test_a_bare_name_is_resolved_once_and_stays_resolved(app):
    """The newest version that is published when the child is started; a later one changes nothing."""

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
            "no workflow 'shop.shop' has been published; did you mean shop.ship",
        ),
        (lambda ctx: ctx.call("shop"), "no workflow type"),
        (lambda ctx: ctx.call(print), "is no workflow"),
        (lambda ctx: ctx.call("shop.ship.v1", tenant="x"), "a child run has no option 'tenant'"),
        (lambda ctx: ctx.start("shop.ship.v1", id="x"), "a child run has no option 'id'"),
        (lambda ctx: ctx.call("shop.ship.v1", priority=5000), "priority 5000"),
        (lambda ctx: ctx.call("shop.ship.v1", object()), "params of shop.ship.v1 is a object"),
        (lambda ctx: ctx.call("shop.ship.v1", budget=-1), "budget=-1"),
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


@pytest.mark.parametrize("turned", ["call", "start"])
async def test_a_start_that_becomes_a_call_is_drift(app, turned):
    ship = shipping(app)
    changed = []

    @app.workflow("shop.order.v1")
    async def order(ctx):
        verb = turned if not changed else ({"call", "start"} - {turned}).pop()
        await getattr(ctx, verb)(ship, Parcel(1))
        changed.append(1)
        await ctx.sleep(5)

    async with app.worker():
        run = await app.start(order)
        assert await outcome(app, run) == ("failed", "drift")
    assert "shop.ship" in (await run.get()).error.message


@pytest.mark.spec("FLOW-7")
async def test_a_child_that_is_waited_for_no_more_goes_on(app):
    ship = shipping(app)

    @app.workflow("shop.order.v1")
    async def order(ctx):
        call = asyncio.ensure_future(ctx.call(ship, Parcel(50)))
        nap = asyncio.ensure_future(ctx.sleep(5))
        await asyncio.wait([call, nap], return_when=asyncio.FIRST_COMPLETED)
        call.cancel()
        await ctx.step("note", lambda: None)
        return "enough"

    async with app.worker():
        run = await app.start(order)
        assert await run.result(60) == "enough"
        (child,) = await children(app, run)
        assert child.status is Status.WAITING
        assert (await app.final(child.id, 100)).status is Status.SUCCEEDED
    assert {step.key: str(step.status) for step in await app.steps(run.id)}["shop.ship"] == "cancelled"


async def test_a_wait_for_a_child_that_was_given_up_can_be_taken_up_again(app):
    """An attempt that gave it up has failed; the next one waits, and finds the child ended meanwhile."""
    ship = shipping(app)
    attempts = []

    @app.workflow("shop.order.v1", retry=hf.Backoff.fixed(30, attempts=3))
    async def order(ctx):
        attempts.append(1)
        call = asyncio.ensure_future(ctx.call(ship, Parcel(10)))
        nap = asyncio.ensure_future(ctx.sleep(5))
        await asyncio.wait([call, nap], return_when=asyncio.FIRST_COMPLETED)
        if len(attempts) == 2:
            call.cancel()
            raise ValueError("try again")
        return (await call).id

    async with app.worker():
        run = await app.start(order)
        assert await run.result(600) == 10
    assert len(await children(app, run)) == 1


@pytest.mark.spec("FLOW-21", "FLOW-7")
async def test_who_waits_for_a_child_that_goes_on_as_another_waits_for_the_last(app):
    @app.workflow("shop.count.v1")
    async def count(ctx, n: int) -> str:
        await ctx.sleep(2)
        if n:
            ctx.continue_as(n - 1)
        return "counted"

    @app.workflow("shop.order.v1")
    async def order(ctx):
        return await ctx.call(count, 3)

    async with app.worker():
        run = await app.start(order)
        assert await run.result(60) == "counted"
    chain = await children(app, run)
    assert [one.parent_step for one in chain] == ["shop.count"] * 4
    (step,) = await app.steps(run.id)
    assert step.child == chain[-1].id


@pytest.mark.spec("CANC-5")
@pytest.mark.parametrize("kept", [False, True])
async def test_cancelling_a_parent_cancels_its_children_unless_told_otherwise(app, kept):
    """And theirs; also those that were only started."""
    ship = shipping(app)

    @app.workflow("shop.pack.v1")
    async def pack(ctx):
        await ctx.call(ship, Parcel(50))

    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.start(ship, Parcel(60))
        await ctx.call(pack)

    async with app.worker():
        run = await app.start(order)
        await until(app, run, Status.WAITING)
        await asyncio.sleep(1)
        await app.cancel(run.id, by="ada", children=not kept)
        await asyncio.sleep(1)
        found = {one.type: one.status for one in await app.list()}
        assert found.pop("shop.order.v1") is Status.CANCELLED
        assert set(found.values()) == ({Status.WAITING} if kept else {Status.CANCELLED})


@pytest.mark.spec("REW-3")
@pytest.mark.parametrize("kept", [False, True])
async def test_rewinding_forgets_a_child_cancels_it_unless_kept_and_starts_another(app, kept):
    ship = shipping(app)

    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.step("charge", lambda: ctx.cost(2.5))
        await ctx.start(ship, Parcel(70))
        return (await ctx.call(ship, Parcel(50))).id

    async with app.worker():
        run = await app.start(order)
        await until(app, run, Status.WAITING)
        await asyncio.sleep(1)
        await app.rewind(run.id, "shop.ship", children=not kept)
        assert await run.result(200) == 50
        assert (await run.get()).cost == 2.5
        await asyncio.sleep(100)
    found = await children(app, run)
    assert len(found) == 4
    assert [str(one.status) for one in found[:2]] == ["succeeded" if kept else "cancelled"] * 2
    assert [str(one.status) for one in found[2:]] == ["succeeded"] * 2


async def test_a_plain_workflow_calls_and_starts_children_too(app):
    ship = shipping(app)

    @app.workflow("shop.order.v1")
    def order(ctx: hf.PlainContext) -> list:
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


async def test_a_child_may_run_on_another_worker(app):
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


@pytest.mark.spec("PAUSE-4")
async def test_a_child_that_ends_while_its_parent_is_paused_is_found_at_resume(app):
    ship = shipping(app)

    @app.workflow("shop.order.v1")
    async def order(ctx):
        return (await ctx.call(ship, Parcel(3))).id

    async with app.worker():
        run = await app.start(order)
        await until(app, run, Status.WAITING)
        await app.pause(run.id)
        await asyncio.sleep(10)
        (child,) = await children(app, run)
        assert child.status is Status.SUCCEEDED
        assert (await run.get()).status is Status.PAUSED
        await app.resume(run.id)
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
