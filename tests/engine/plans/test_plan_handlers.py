"""Handlers of a plan: only a worker with all of them claims its runs; and steps without a handler."""

from __future__ import annotations

import asyncio
import logging

import pytest

import holdfast as hf
from holdfast import Status, Task
from tests.engine.kit import outcome, process, trail, until
from tests.engine.plans.plan_helpers import Receipt

TYPE = "shop.fulfil.v1"


def plan_of(app, *names, lacking=(), **options):
    plan = app.plan(TYPE, [Task(name) for name in names], **options)
    for name in names:
        if name not in lacking:
            plan.task(name)(lambda task: task.name)
    return plan


@pytest.mark.spec("PLAN-15", "LEASE-12")
async def test_a_worker_that_lacks_a_handler_says_so_once_and_does_not_claim_the_plan(app, world, caplog):
    plan_of(app, "A", "B", "C", lacking="AC")
    seen = []

    @app.workflow("shop.order.v1")
    async def order(ctx):
        seen.append(ctx.run_id)

    with caplog.at_level(logging.WARNING, "holdfast.worker"):
        async with app.worker() as worker:
            run = await app.start(TYPE)
            await (await app.start(order)).result(60)
            await asyncio.sleep(600)
            assert (await app.get(run.id)).attempt == 0
            assert worker.types == ("shop.order.v1",)
            (shown,) = (await app.store.stats()).workers
            assert shown.types == ("shop.order.v1", "holdfast.bulk.v1")
            told, without = (
                await app.explain(run.id),
                "a live worker has this plan, but no handler for the task A, C",
            )
            assert (told.reason, told.data["missing"]) == ("no_worker", "A, C")
            assert without in told.text.replace("A live", "a live")
            findings = [one.what for one in (await app.doctor()).findings]
            assert f"no live worker can execute 1 due run: {TYPE} (1; {without})" in findings
    (said,) = [one.getMessage() for one in caplog.records if TYPE in one.getMessage()]
    assert "A, C" in said
    assert len(await app.steps(run.id)) == 3, "it is published all the same"
    other = hf.App(app.store, world=world)
    plan_of(other, "A", "B", "C")
    async with other.worker():
        assert await run.result(60) == "C"


@pytest.mark.spec("PLAN-15")
async def test_a_misspelt_handler_is_named_beside_the_missing_one(app, caplog):
    """A handler without a step is no mistake by itself: `append_step` may add its step."""
    plan_of(app, "A", "DO", lacking=["DO"]).task("DOO")(lambda task: task.name)
    app.plan("shop.other.v1", [Task("A")]).task("A")(lambda task: task.name)
    app.workflows["shop.other.v1"].task("LATER")(lambda task: task.name)
    async with app.worker():
        pass
    (said,) = [one.getMessage() for one in caplog.records if "not executed here" in one.getMessage()]
    assert said.endswith("no handler is known of DO: write @plan.task(name) (handlers without a step: DOO)")


@pytest.mark.spec("PLAN-15")
async def test_a_step_without_a_handler_is_given_back_for_a_minute_with_its_attempt(app, world, caplog):
    plan = plan_of(app, "A")
    await app.publish()
    run = await app.start(plan)
    await app.append_step(run.id, "NEW")
    async with app.worker():
        while (found := await app.get(run.id)).last_error is None:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        assert (found.status, found.attempt) == (Status.PENDING, 0)
        assert 59 < (found.run_at - found.updated_at).total_seconds() <= 60
        assert "no worker here has a handler for step 'NEW' of shop.fulfil.v1" in found.last_error
        told = await app.explain(run.id)
        assert told.reason == "no_handler"
        assert told.text.startswith(
            "No worker here has a handler for step 'NEW' of shop.fulfil.v1: register one with "
            "@plan.task('NEW'); the next attempt is at 2026-"
        )
        await asyncio.sleep(300)
        found = await app.get(run.id)
        assert (found.status, found.attempt, found.error.kind) == (Status.PENDING, 0, "no_handler")
    other = hf.App(app.store, world=world)
    plan_of(other, "A").task("NEW")(lambda task: task.attempt)
    async with other.worker():
        assert await run.result(120) == 1


@pytest.mark.spec("PLAN-15", "RETRY-7")
async def test_with_no_handler_after_it_fails_when_that_time_is_over(app, world):
    """The time counts from the first return of the run, over restarts of the worker."""
    plan = plan_of(app, "A", no_handler_after=hf.minutes(10))
    await app.publish()
    run = await app.start(plan)
    await app.append_step(run.id, "NEW")
    begun = world.monotonic()
    for seed in range(3):
        worker = await process(app, seed, lease=6)
        await asyncio.sleep(130)
        worker.kill()
    assert (await app.get(run.id)).status is Status.PENDING
    async with app.worker():
        assert await outcome(app, run) == ("failed", "no_handler")
    assert 600 <= world.monotonic() - begun < 640
    assert [str(step.status) for step in await app.steps(run.id)] == ["succeeded", "failed"]
    await app.retry(run.id)
    plan.task("NEW")(lambda _: "known now")
    async with app.worker():
        assert await run.result(60) == "known now"


@pytest.mark.spec("PLAN-15")
async def test_the_time_counts_anew_for_another_step(app, world):
    plan = plan_of(app, "A", no_handler_after=100)

    @plan.task("FIRST")
    async def first(task):
        return 1

    await app.publish()
    run = await app.start(plan)
    for name in ("FIRST", "SECOND"):
        await app.append_step(run.id, name)
    handler = plan.handlers.pop("FIRST")
    begun = world.monotonic()
    async with app.worker():
        await asyncio.sleep(61)
        plan.handlers["FIRST"] = handler
        assert await outcome(app, run) == ("failed", "no_handler")
    assert world.monotonic() - begun >= 200
    assert (await app.get(run.id)).error.step == "SECOND"


@pytest.mark.spec("PLAN-14")
async def test_a_result_is_read_as_the_handler_of_the_last_row_says(app, world):
    """The handler of the plan's own last task does not matter. Without the handler the result is untyped."""
    plan = app.plan(TYPE, [hf.Task("A")])

    @plan.task("A")
    async def first(task) -> int:
        return 7

    @plan.task("NEW")
    async def added(task) -> Receipt:
        return Receipt(number=5)

    await app.publish()
    here, there = await app.start(plan), hf.App(app.store, world=world)
    ignorant = there.plan(TYPE, [hf.Task("A")])
    ignorant.task("A")(first)
    elsewhere = await there.start(ignorant)
    for run in (here, elsewhere):
        await app.append_step(run.id, "NEW")
    usual = await app.start(plan)
    async with app.worker():
        assert await here.result(60) == Receipt(number=5)
        assert await elsewhere.result(60) == {"number": 5}
        assert await usual.result(60) == 7


async def test_a_run_that_is_deleted_while_it_is_given_back_is_let_go(app, caplog):
    plan = plan_of(app, "A")
    await app.publish()
    run = await app.start(plan)
    await app.append_step(run.id, "NEW")
    get = app.store.get

    async def deleted(id_, *rest):
        app.store.get = get
        await app.delete(id_)
        return await get(id_, *rest)

    app.store.get = deleted
    async with app.worker() as worker:
        await asyncio.sleep(5)
        assert worker.busy == 0
    app.store.get = get
    await app.restore(run.id)
    assert (await app.get(run.id)).status is Status.PENDING
    assert "released" not in await trail(app, run)


@pytest.mark.spec("ROUTE-2", "PLAN-12")
async def test_a_worker_publishes_and_claims_only_plans_within_its_patterns(app):
    plan_of(app, "A")
    async with app.worker(patterns=["billing.%"]) as worker:
        # started by an app that does not know the plan
        run = await hf.App(app.store, world=app.world).start(TYPE)
        await asyncio.sleep(60)
        assert worker.types == ()
        assert await app.steps(run.id) == []
    async with app.worker(patterns=["shop.%"]):
        await until(app, run, Status.SUCCEEDED)
