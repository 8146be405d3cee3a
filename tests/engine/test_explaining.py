"""`explain`: for every status and reason one stable word, a sentence, and the data behind it."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import pytest

from holdfast import BEGINNING, Backoff, ChildFailed, Fatal, RunFilter, Status, UnknownRun, days
from tests.engine.kit import outcome, process, until


async def said(app, run):
    found = await app.explain(run.id)
    assert str(found) == found.text
    assert found.text.endswith(".")
    return found


@pytest.mark.spec("EXPL-1")
async def test_what_a_run_waits_on_is_named_each_since_when_and_until_when(app):
    @app.workflow("shop.ship.v1")
    async def ship(ctx):
        await ctx.sleep(days(1))

    @app.workflow("shop.order.v1")
    async def order(ctx):
        await asyncio.gather(
            ctx.sleep(days(3), key="nap"),
            ctx.await_event("paid", timeout=days(2)),
            ctx.approval("gate", ask="Ship it?"),
            ctx.call(ship),
        )

    async with app.worker():
        run = await app.start(order)
        await until(app, run, Status.WAITING)
        await asyncio.sleep(1)
        found = await said(app, run)
    assert found.reason == "waiting"
    waits = {one["step"]: one for one in found.data["waiting_on"]}
    assert set(waits) == {"nap", "event:paid", "gate", "shop.ship"}
    assert all(one["since"] is not None for one in waits.values())
    assert waits["gate"]["ask"] == "Ship it?"
    assert waits["shop.ship"]["child_status"] == "waiting"
    for part in (
        "a timer (nap) since 2026-01-01",
        "until 2026-01-04",
        "an event on 'paid' since",
        "until 2026-01-03",
        "a decision at gate 'gate' (Ship it?)",
        f"`holdfast approve {run.id} gate`",
        f"its child run {waits['shop.ship']['child']} (shop.ship.v1, waiting)",
    ):
        assert part in found.text


@pytest.mark.spec("EXPL-1", "DEL-1")
async def test_a_child_that_is_waited_for_and_deleted_is_told_of_until_it_is_gone(app):
    @app.workflow("shop.ship.v1")
    async def ship(ctx):
        await ctx.sleep(days(1))

    @app.workflow("shop.order.v1")
    async def order(ctx):
        try:
            await ctx.call(ship)
        except ChildFailed as error:
            return error.status

    async with app.worker():
        run = await app.start(order)
        await until(app, run, Status.WAITING)
        (child,) = await app.list(RunFilter(parent=run.id))
        await app.delete(child.id)
        found = await said(app, run)
        assert "called as 'shop.ship', since" in found.text
        assert f", which is deleted: `holdfast restore {child.id}` lets it go on" in found.text
        assert found.data["waiting_on"][0]["child_deleted_at"] is not None
        assert (await app.purge(deleted_after=0)).runs == 1
        assert await run.result(60) == "gone"


@pytest.mark.spec("EXPL-1")
async def test_of_very_many_waits_the_first_few_are_told_and_all_are_in_the_data(app):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        await asyncio.gather(*[ctx.sleep(days(n + 1), key=f"nap:{n}") for n in range(30)])

    async with app.worker():
        run = await app.start(order)
        await until(app, run, Status.WAITING)
        found = await said(app, run)
    assert "; and 25 more" in found.text
    assert len(found.data["waiting_on"]) == 30


@pytest.mark.spec("EXPL-1")
async def test_a_wait_whose_time_has_come_unnoticed_says_so(app):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.sleep(60)

    async with app.worker():
        run = await app.start(order)
        await until(app, run, Status.WAITING)
    await asyncio.sleep(100)
    text = (await said(app, run)).text
    assert "its time has come, and the next keeper's round sees to it" in text
    assert "but no worker or keeper is live: start one" in text


@pytest.mark.spec("EXPL-1")
async def test_who_executes_it_until_when_and_what_is_asked_of_it(app):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        await asyncio.gather(ctx.step("work", asyncio.sleep, 60), ctx.await_event("paid"))

    async with app.worker(lease=9) as worker:
        run = await app.start(order)
        await asyncio.sleep(1)
        found = await said(app, run)
        assert (found.reason, found.data["leased_by"]) == ("running", worker.id)
        assert "beside that it waits for an event on 'paid'" in found.text
        await app.pause(run.id, by="ada")
        assert "a pause is asked for by 'ada' and comes at its next step" in (await said(app, run)).text
        await until(app, run, Status.PAUSED)
        found = await said(app, run)
        assert (found.reason, found.data["paused_by"]) == ("paused", "ada")
        assert "It waits for an event on 'paid'" in found.text


@pytest.mark.spec("EXPL-1")
async def test_a_pause_is_told_of_whoever_asked_for_it(app):
    """Also when he did not say who he is."""

    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.step("work", asyncio.sleep, 60)

    async with app.worker():
        run = await app.start(order)
        await asyncio.sleep(1)
        assert "pause" not in (await said(app, run)).text
        await app.pause(run.id)
        assert "; a pause is asked for and comes at its next step" in (await said(app, run)).text


@pytest.mark.spec("EXPL-1")
async def test_the_command_that_decides_a_gate_can_be_copied_whatever_the_gates_name(app):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.approval("is it ok?")

    async with app.worker():
        run = await app.start(order)
        await until(app, run, Status.WAITING)
    assert f"`holdfast approve {run.id} 'is it ok?'`, or `reject`" in (await said(app, run)).text


@pytest.mark.spec("EXPL-1")
async def test_when_it_is_due_tried_again_or_taken_up(app):
    @app.workflow("shop.order.v1", retry=Backoff.fixed(600, attempts=3))
    async def order(ctx):
        raise ValueError("boom")

    later = await app.start(order, delay=days(1))
    assert (await said(app, later)).reason == "scheduled"
    lonely = await app.start(order)
    found = await said(app, lonely)
    assert found.reason == "no_worker"
    assert "shop.order.v1" in found.text
    async with app.worker():
        await asyncio.sleep(5)
        found = await said(app, lonely)
        assert found.reason == "retry"
        assert "ValueError: boom" in found.text
        assert "as attempt 2 of 3" in found.text


@pytest.mark.spec("EXPL-1", "RETRY-1")
async def test_the_next_attempt_is_told_as_it_counts(app):
    """A step of code counts its own tries; of a run crashed executions use up no attempt."""

    @app.workflow("shop.step.v1")
    async def step(ctx):
        await ctx.step("pay", boom, retry=Backoff.fixed(600, attempts=5))

    @app.workflow("shop.whole.v1", retry=Backoff.fixed(600, attempts=3))
    async def whole(ctx):
        await asyncio.sleep(5)
        boom()

    def boom():
        raise ValueError("boom")

    async with app.worker():
        run = await app.start(step)
        await asyncio.sleep(605)
        found = await said(app, run)
    assert found.text.startswith("Its step 'pay' failed (error: ValueError: boom) and is tried again at")
    assert found.text.endswith(", as its try 3.")
    run = await app.start(whole)
    dying = await process(app, 2, patterns=("shop.whole.v1",))
    await asyncio.sleep(1)
    dying.kill()
    async with app.worker():
        await asyncio.sleep(33)
        assert "(execution 2 since its last progress, 1 crashed)" in (await said(app, run)).text
        await asyncio.sleep(20)
        assert "as attempt 2 of 3" in (await said(app, run)).text


@pytest.mark.spec("EXPL-1", "LEASE-6")
async def test_a_run_that_has_crashed_says_how_many_such_go_at_once(app):
    """Else a worker with free slots, and runs that wait for one, could not be understood."""

    @app.workflow("shop.order.v1")
    async def order(ctx):
        await asyncio.sleep(500)

    runs = [await app.start(order) for _ in range(3)]
    dying = await process(app, 2, slots=4)
    await asyncio.sleep(1)
    dying.kill()
    await asyncio.sleep(35)
    found = await said(app, runs[0])
    assert found.reason == "lease_expired"
    assert "gives it to another, but no other worker is live: start one" in found.text
    async with app.worker(slots=4) as worker:
        await asyncio.sleep(0.5)
        waiting = [run for run in runs if (await app.get(run.id)).status is Status.PENDING]
        assert len(waiting) == 2
        found = await said(app, waiting[0])
        assert (found.reason, found.data["crashes"], found.data["at_once"]) == ("queued", 1, 1)
        for part in (
            "it has crashed 1 time: a worker begins 1 such at a time, so that one that kills",
            f"{worker.id} (heard of 0 s ago)",
            f"{dying.worker.id} (heard of 36 s ago, and it let the lease of this run end)",
        ):
            assert part in found.text
        findings = [one for one in (await app.doctor()).findings if "whose worker died" in one.what]
        assert findings[0].what.startswith("2 pending runs whose worker died, up to 1 time in a row")
        assert set(findings[0].runs) == {run.id for run in waiting}


@pytest.mark.spec("EXPL-1")
async def test_a_deleted_run_and_an_unknown_one(app):
    run = await app.start("shop.order.v1")
    other = await app.start("shop.order.v1")
    await app.delete(run.id)
    found = await said(app, run)
    assert found.reason == "deleted"
    assert f"holdfast restore {run.id}" in found.text
    assert (await said(app, other)).reason == "no_worker"
    for unknown in (uuid4(), "ffffffff-ffff-ffff-ffff-ffffffffffff"):
        with pytest.raises(UnknownRun):
            await app.explain(unknown)


@pytest.mark.spec("EXPL-1")
async def test_how_it_ended(app):
    @app.workflow("shop.order.v1", retry=Backoff.none())
    async def order(ctx, how: str):
        if how == "fail":
            raise ValueError("boom")

    async with app.worker():
        good, bad = await app.start(order, "succeed"), await app.start(order, "fail")
        await app.final(good.id)
        await app.final(bad.id)
    assert (await said(app, good)).reason == "succeeded"
    found = await said(app, bad)
    assert found.reason == "failed"
    assert f"`holdfast retry {bad.id}` lets it go on" in found.text
    gone = await app.start(order, "x")
    await app.cancel(gone.id)
    assert (await said(app, gone)).reason == "cancelled"


@pytest.mark.spec("EXPL-1")
@pytest.mark.parametrize("kind", ["drift", "history", "fatal"])
async def test_retry_is_suggested_only_where_it_may_help(app, kind):
    """Retried with the same code, drift and a full history fail again."""
    executions = []

    @app.workflow("shop.order.v1", steps_max=3)
    async def order(ctx):
        executions.append(1)
        if kind == "drift" and len(executions) > 1:
            await ctx.sleep(1, key="a")
        await ctx.step("a", lambda: 1)
        if kind == "fatal":
            raise Fatal("no")
        await ctx.sleep(1)
        for n in range(5):
            await ctx.step(f"s{n}", lambda: 1)

    async with app.worker():
        run = await app.start(order)
        assert await outcome(app, run) == ("failed", kind)
        text = (await app.explain(run.id)).text
    assert (f"`holdfast retry {run.id}`" in text) is (kind == "fatal")
    assert (f"`holdfast rewind {run.id} STEP`" in text) is (kind != "fatal")


@pytest.mark.spec("REW-1")
async def test_a_run_that_was_cancelled_before_its_first_step_begins_anew(app):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        return await ctx.step("a", lambda: "done")

    run = await app.start(order)
    await app.cancel(run.id)
    assert (await app.rewind(run.id, BEGINNING)).status == "pending"
    async with app.worker():
        assert await run.result(60) == "done"
