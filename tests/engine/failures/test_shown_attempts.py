"""Shown attempts of a failed run: the tries of the step that made it fail."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import Backoff, StepFailed, Task
from tests.engine.kit import process

POLICY = Backoff.fixed(0.01, attempts=5)


def broken(*_):
    raise ValueError("no")


async def shown(app, run):
    """Return the attempts that the run, the list and the trail show."""
    found = await app.final(run.id, 100)
    (listed,) = [one for one in await app.list() if one.id == run.id]
    assert (listed.attempt, listed.max_attempts) == (found.attempt, found.max_attempts)
    rows = [
        (row.type, row.data["attempt"], row.data["max_attempts"])
        for row in await app.trail(run.id)
        if row.type in {"retried", "failed"}
    ]
    return (found.attempt, found.max_attempts, found.error.attempt, found.error.max_attempts), rows


def tried(times, most):
    return [*(("retried", n, most) for n in range(1, times)), ("failed", times, most)]


@pytest.mark.spec("RETRY-10")
@pytest.mark.parametrize("policy", [POLICY, Backoff.fixed(2, attempts=5)], ids=["in place", "in the queue"])
@pytest.mark.parametrize("mode", ["step", "segment"])
async def test_a_run_that_failed_by_a_step_shows_the_tries_of_that_step(app, policy, mode):
    """The step's own policy gives the number, not the run's."""

    @app.workflow("shop.order.v1", checkpoint=mode)
    async def order(ctx):
        await ctx.step("first", lambda: 1)
        await ctx.step("broken", broken, retry=policy)

    run = await app.start(order)
    async with app.worker():
        assert await shown(app, run) == ((5, 5, 5, 5), tried(5, 5))


@pytest.mark.spec("RETRY-10")
async def test_a_later_execution_shows_the_same(app):
    """The failure was recorded and the worker died: the next worker fails the run by the record."""
    seen = []

    @app.workflow("shop.order.v1")
    async def order(ctx):
        try:
            await ctx.step("broken", broken, retry=POLICY)
        except StepFailed as error:
            seen.append((error.attempt, error.max_attempts))
            if len(seen) == 1:
                one.kill()
                await asyncio.sleep(1)
            raise

    run = await app.start(order)
    one = await process(app, 1, lease=3)
    await asyncio.sleep(6)
    async with app.worker():
        (attempt, most, *error), rows = await shown(app, run)
    assert (attempt - (await app.get(run.id)).crashes, most, *error) == (5, 5, 5, 5)
    assert rows == tried(5, 5)
    assert seen == [(5, 5), (5, 5)]


@pytest.mark.spec("RETRY-10")
async def test_a_run_whose_body_failed_shows_its_executions(app):
    @app.workflow("shop.order.v1", retry=Backoff.fixed(0.01, attempts=4))
    async def order(ctx):
        await ctx.step("first", lambda: 1)
        broken()

    run = await app.start(order)
    async with app.worker():
        (attempt, most, *_), rows = await shown(app, run)
    assert (attempt, most) == (4, 4)
    assert rows == tried(4, 4)


@pytest.mark.spec("RETRY-10", "PLAN-10")
async def test_a_plan_shows_the_tries_of_its_task(app):
    plan = app.plan("shop.fulfil.v1", [Task("A"), Task("B", attempts=2)], retry=POLICY)
    plan.task("A")(lambda _: 1)
    plan.task("B")(broken)
    await app.publish()
    run = await app.start(plan)
    async with app.worker():
        assert await shown(app, run) == ((2, 2, 2, 2), tried(2, 2))
    assert (await app.steps(run.id))[1].attempts == 2


@pytest.mark.spec("RETRY-10")
@pytest.mark.parametrize("explicit", [False, True], ids=["while it is handled", "from it"])
async def test_a_body_that_handled_the_failure_of_a_step_shows_its_own_tries(app, explicit):
    @app.workflow("shop.order.v1", retry=Backoff.fixed(0.01, attempts=3))
    async def order(ctx):
        try:
            await ctx.step("broken", broken, retry=POLICY)
        except StepFailed as error:
            if explicit:
                raise KeyError("slip") from error
            raise KeyError("slip")  # noqa: B904 - as users write it

    run = await app.start(order)
    async with app.worker():
        (attempt, most, *_), rows = await shown(app, run)
    assert (attempt, most, rows[-1]) == (3, 3, ("failed", 3, 3))
    assert (await app.get(run.id)).error.step == "broken"


@pytest.mark.spec("RETRY-10", "PLAN-15")
async def test_a_task_without_a_handler_was_never_tried(app):
    plan = app.plan("shop.fulfil.v1", [Task("A")], no_handler_after=90)
    plan.task("A")(lambda _: 1)
    await app.publish()
    run = await app.start(plan)
    await app.append_step(run.id, "NEW")
    async with app.worker():
        assert await shown(app, run) == (
            (0, 3, 0, 3),
            [("retried", 0, 3), ("retried", 0, 3), ("failed", 0, 3)],
        )
    assert [step.attempts for step in await app.steps(run.id)] == [1, 0]
