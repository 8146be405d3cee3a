"""`explain`: for every status and reason one stable word, a sentence, and the data behind it."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import pytest

from holdfast import BEGINNING, Backoff, ChildFailed, Fatal, RunFilter, Status, UnknownRun, days
from tests.engine.kit import outcome, process, until


async def explained(app, run):
    found = await app.explain(run.id)
    assert str(found) == found.text
    assert found.text.endswith(".")
    return found


@pytest.mark.spec("EXPL-1")
async def test_every_wait_of_a_run_is_named_with_its_beginning_and_end(app):
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
        found = await explained(app, run)
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
async def test_an_awaited_child_that_was_deleted_is_named_until_it_is_purged(app):
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
        found = await explained(app, run)
        assert "step 'shop.ship', since" in found.text
        assert f", which is deleted: `holdfast restore {child.id}` lets it continue" in found.text
        assert found.data["waiting_on"][0]["child_deleted_at"] is not None
        assert (await app.purge(deleted_after=0)).runs == 1
        assert await run.result(60) == "gone"


@pytest.mark.spec("EXPL-1")
async def test_the_text_names_the_first_waits_and_the_data_holds_all(app):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        await asyncio.gather(*[ctx.sleep(days(n + 1), key=f"nap:{n}") for n in range(30)])

    async with app.worker():
        run = await app.start(order)
        await until(app, run, Status.WAITING)
        found = await explained(app, run)
    assert "; and 25 more" in found.text
    assert len(found.data["waiting_on"]) == 30


@pytest.mark.spec("EXPL-1")
async def test_a_wait_that_is_overdue_is_shown_as_overdue(app):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.sleep(60)

    async with app.worker():
        run = await app.start(order)
        await until(app, run, Status.WAITING)
    await asyncio.sleep(100)
    text = (await explained(app, run)).text
    assert "this time has passed, and a worker will end the wait" in text
    assert "but no worker is live: start one: `holdfast worker MODULE:APP`" in text


@pytest.mark.slow
@pytest.mark.spec("EXPL-1")
async def test_a_leased_run_shows_its_worker_its_lease_and_pending_requests(app):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        await asyncio.gather(ctx.step("work", asyncio.sleep, 60), ctx.await_event("paid"))

    async with app.worker(lease=9) as worker:
        run = await app.start(order)
        await asyncio.sleep(1)
        found = await explained(app, run)
        assert (found.reason, found.data["leased_by"]) == ("running", worker.id)
        assert "it also waits for an event on 'paid'" in found.text
        await app.pause(run.id, by="ada")
        assert (
            "a pause was requested by 'ada', and it will pause at its next step"
            in (await explained(app, run)).text
        )
        await until(app, run, Status.PAUSED)
        found = await explained(app, run)
        assert (found.reason, found.data["paused_by"]) == ("paused", "ada")
        assert "It waits for an event on 'paid'" in found.text


@pytest.mark.spec("EXPL-1")
async def test_a_pause_request_is_shown_with_or_without_a_name(app):
    """The name of the requester is optional."""

    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.step("work", asyncio.sleep, 60)

    async with app.worker():
        run = await app.start(order)
        await asyncio.sleep(1)
        assert "pause" not in (await explained(app, run)).text
        await app.pause(run.id)
        assert (
            "; a pause was requested, and it will pause at its next step" in (await explained(app, run)).text
        )


@pytest.mark.spec("EXPL-1")
@pytest.mark.parametrize(("name", "words"), [("is it ok?", "'is it ok?'"), ("--store=x", "-- --store=x")])
async def test_the_command_that_decides_a_gate_can_be_copied_for_any_gate_name(app, name, words):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.approval(name)

    async with app.worker():
        run = await app.start(order)
        await until(app, run, Status.WAITING)
    assert f"`holdfast approve {run.id} {words}`, or `reject`" in (await explained(app, run)).text


@pytest.mark.spec("EXPL-1")
async def test_a_pending_run_shows_when_it_is_due_or_retried(app):
    @app.workflow("shop.order.v1", retry=Backoff.fixed(600, attempts=3))
    async def order(ctx):
        raise ValueError("boom")

    later = await app.start(order, delay=days(1))
    assert (await explained(app, later)).reason == "scheduled"
    lonely = await app.start(order)
    found = await explained(app, lonely)
    assert found.reason == "no_worker"
    assert "shop.order.v1" in found.text
    async with app.worker():
        await asyncio.sleep(5)
        found = await explained(app, lonely)
        assert found.reason == "retry"
        assert "ValueError: boom" in found.text
        assert "the next attempt, 2 of 3, is at" in found.text


@pytest.mark.spec("EXPL-1", "RETRY-1")
async def test_the_number_of_the_next_attempt_is_shown(app):
    """A step of code counts its own tries. Crashed executions of a run use up no attempt."""

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
        found = await explained(app, run)
    assert found.text.startswith("Its step 'pay' failed (error: ValueError: boom); the next attempt, ")
    assert found.text.endswith("number 3, is at 2026-01-01 00:20:00Z.")
    run = await app.start(whole)
    dying = await process(app, 2, patterns=("shop.whole.v1",))
    await asyncio.sleep(1)
    dying.kill()
    async with app.worker():
        await asyncio.sleep(33)
        assert (
            "(execution 2 since the last finished step, 1 earlier execution crashed)"
            in (await explained(app, run)).text
        )
        await asyncio.sleep(20)
        assert "the next attempt, 2 of 3, is at" in (await explained(app, run)).text


@pytest.mark.spec("EXPL-1", "LEASE-6")
async def test_a_crashed_run_shows_how_many_crashed_runs_a_worker_executes_at_once(app):
    """Otherwise free slots beside waiting runs could not be understood."""

    @app.workflow("shop.order.v1")
    async def order(ctx):
        await asyncio.sleep(500)

    runs = [await app.start(order) for _ in range(3)]
    dying = await process(app, 2, slots=4)
    await asyncio.sleep(1)
    dying.kill()
    await asyncio.sleep(35)
    found = await explained(app, runs[0])
    assert found.reason == "lease_expired"
    assert "available to other workers, but no other worker is live: start one" in found.text
    async with app.worker(slots=4) as worker:
        await asyncio.sleep(0.5)
        waiting = [run for run in runs if (await app.get(run.id)).status is Status.PENDING]
        assert len(waiting) == 2
        found = await explained(app, waiting[0])
        assert (found.reason, found.data["crashes"], found.data["at_once"]) == ("queued", 1, 1)
        for part in (
            "its worker died 1 time: a worker begins only 1 such run at a time, so that a run that kills",
            f"{worker.id} (last heartbeat 0 s ago)",
            f"{dying.worker.id} (last heartbeat 36 s ago, and its lease of this run expired)",
        ):
            assert part in found.text
        findings = [one for one in (await app.doctor()).findings if "whose worker died" in one.what]
        assert findings[0].what.startswith("2 pending runs whose worker died, up to 1 time in a row")
        assert set(findings[0].runs) == {run.id for run in waiting}


@pytest.mark.spec("EXPL-1")
async def test_deleted_and_unknown_runs_are_explained(app):
    run = await app.start("shop.order.v1")
    other = await app.start("shop.order.v1")
    await app.delete(run.id)
    found = await explained(app, run)
    assert found.reason == "deleted"
    assert f"holdfast restore {run.id}" in found.text
    assert (await explained(app, other)).reason == "no_worker"
    for unknown in (uuid4(), "ffffffff-ffff-ffff-ffff-ffffffffffff"):
        with pytest.raises(UnknownRun):
            await app.explain(unknown)


@pytest.mark.spec("EXPL-1")
async def test_the_end_of_a_run_is_explained(app):
    @app.workflow("shop.order.v1", retry=Backoff.none())
    async def order(ctx, how: str):
        if how == "fail":
            raise ValueError("boom")

    async with app.worker():
        good, bad = await app.start(order, "succeed"), await app.start(order, "fail")
        await app.final(good.id)
        await app.final(bad.id)
    assert (await explained(app, good)).reason == "succeeded"
    found = await explained(app, bad)
    assert found.reason == "failed"
    assert f"`holdfast retry {bad.id}` lets it continue" in found.text
    gone = await app.start(order, "x")
    await app.cancel(gone.id)
    assert (await explained(app, gone)).reason == "cancelled"


@pytest.mark.spec("EXPL-1")
@pytest.mark.parametrize("kind", ["drift", "history", "fatal"])
async def test_retry_is_suggested_only_where_it_may_help(app, kind):
    """A retry with the same code fails again for drift and for a full history."""
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
async def test_a_run_cancelled_before_its_first_step_can_be_rewound_to_the_beginning(app):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        return await ctx.step("a", lambda: "done")

    run = await app.start(order)
    await app.cancel(run.id)
    assert (await app.rewind(run.id, BEGINNING)).status == "pending"
    async with app.worker():
        assert await run.result(60) == "done"


@pytest.mark.spec("EXPL-1")
async def test_a_parent_whose_child_failed_says_what_a_retry_of_either_does(app):
    """A retry of the parent does not continue the child: it starts a new one, with new idempotency keys."""

    @app.workflow("shop.ship.v1")
    async def ship(ctx):
        raise Fatal("no van")

    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.call(ship)

    async with app.worker():
        run = await app.start(order)
        assert await outcome(app, run) == ("failed", "child_failed")
        (child,) = await app.list(RunFilter(parent=run.id))
        found = await explained(app, run)
        assert (
            f"`holdfast retry {run.id}` starts a new child run from its beginning; "
            f"to continue the child itself: `holdfast retry {child.id}`."
        ) in found.text
        assert found.data["child"] == child.id
        await app.retry(run.id)
        assert await outcome(app, run) == ("failed", "child_failed")
        assert len(await app.list(RunFilter(parent=run.id))) == 2
        newest = (await app.list(RunFilter(parent=run.id)))[0]
        assert f"`holdfast retry {newest.id}`" in (await explained(app, run)).text
