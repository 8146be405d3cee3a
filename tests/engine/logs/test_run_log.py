"""Log lines about runs: a failed run is one error, each retry one warning, and no line has a payload."""

from __future__ import annotations

import asyncio
import logging
import re

import pytest

from holdfast import Backoff, Dead, Fatal, Retry, Task
from holdfast.errors import StepFailed
from tests.engine.kit import outcome, process, until

pytestmark = pytest.mark.spec("OPS-6")

SECRET = "4111 1111"


@pytest.fixture
def told(caplog):
    """Return the warnings and errors about runs, and assert that there are no others."""
    caplog.set_level(logging.WARNING, "holdfast")

    def lines():
        found = [one for one in caplog.records if one.name.startswith("holdfast")]
        assert {one.name for one in found} <= {"holdfast.run"}
        assert all("\n" not in one.getMessage() and one.exc_info is None for one in found)
        assert SECRET not in caplog.text
        return found

    return lines


def place(line):
    """Return `test_run_log.py in charge`, without the line number."""
    return re.sub(r".*?([^/]+):\d+", r"\1", line.error_at)


async def charge(order):
    raise ValueError("card declined")


async def test_a_failed_run_is_one_error_line_and_each_retry_one_warning(app, told):
    @app.workflow("shop.order.v1")
    async def order(ctx, params: str):
        await ctx.step("charge", charge, params, retry=Backoff.fixed(0.5, attempts=3))

    run = await app.start(order, SECRET, tenant="ann")
    async with app.worker() as worker:
        assert await outcome(app, run) == ("failed", "exhausted")
    first, second, last = told()
    assert [one.levelname for one in (first, second, last)] == ["WARNING", "WARNING", "ERROR"]
    assert [one.attempt for one in (first, second, last)] == [1, 2, 3]
    for one in (first, second, last):
        assert (one.run, one.type, one.step, one.tenant) == (str(run.id), "shop.order.v1", "charge", "ann")
        assert one.worker == worker.id
        assert place(one) == "test_run_log.py in charge"
    assert (first.error_kind, first.error_type, first.error_message) == (
        "error", "ValueError", "card declined",
    )  # fmt: skip
    said = first.getMessage()
    assert f"shop.order.v1 {run.id} retries step charge at {first.retry_at} (in 0.5 s), try 1 of 3" in said
    assert "failed: ValueError: card declined (" in said
    assert (last.error_kind, last.error_type) == ("exhausted", "ValueError")
    said = last.getMessage()
    assert f"{run.id} failed in step charge, try 3 of 3: exhausted: ValueError: card declined (" in said
    assert said.endswith(" in charge)")


async def test_a_retry_that_waits_in_the_queue_is_one_warning_too(app, told):
    tries = []

    async def flaky():
        tries.append(1)
        if len(tries) == 1:
            raise ValueError("once")

    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.step("flaky", flaky, retry=Backoff.fixed(30, attempts=3))

    run = await app.start(order)
    async with app.worker():
        await run.result(60)
    (line,) = told()
    assert (line.levelname, line.step, line.attempt) == ("WARNING", "flaky", 1)
    assert "(in 30 s)" in line.getMessage()


async def test_a_failing_body_is_told_with_the_tries_of_the_run(app, told):
    @app.workflow("shop.order.v1", retry=Backoff.fixed(100, attempts=2))
    async def order(ctx):
        raise KeyError("card")

    run = await app.start(order)
    async with app.worker():
        await outcome(app, run)
    retry, end = told()
    assert (retry.levelname, retry.step, retry.attempt) == ("WARNING", "", 1)
    assert "(in 100 s), try 1 of 2 failed: KeyError: 'card' (" in retry.getMessage()
    assert (end.levelname, end.attempt, place(end)) == ("ERROR", 2, "test_run_log.py in order")
    assert f"{run.id} failed, try 2 of 2: exhausted: KeyError: 'card' (" in end.getMessage()


async def test_a_step_whose_failure_the_workflow_handles_is_no_error(app, told):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        try:
            await ctx.step("charge", charge, 1, retry=Backoff.none())
        except StepFailed:
            return "later"

    run = await app.start(order)
    async with app.worker():
        assert await run.result(60) == "later"
    assert told() == []


async def test_an_exception_that_the_workflow_raises_after_a_failed_step_has_its_own_place(app, told):
    @app.workflow("shop.order.v1", retry=Backoff.none())
    async def order(ctx):
        try:
            await ctx.step("charge", charge, 1, retry=Backoff.none())
        except StepFailed as error:
            raise Fatal("no order") from error

    run = await app.start(order)
    async with app.worker():
        await outcome(app, run)
    (line,) = told()
    assert (line.error_kind, line.error_message, place(line)) == (
        "fatal", "no order", "test_run_log.py in order",
    )  # fmt: skip


async def test_tasks_of_plans_are_told_alike(app, told):
    plan = app.plan("shop.fulfil.v1", [Task("SHIP")], retry=Backoff.fixed(10, attempts=5))
    ends = [ValueError("no truck"), Retry(20, "not yet"), Dead("never")]

    @plan.task("SHIP")
    async def ship(task):
        end = ends.pop(0)
        if isinstance(end, Exception):
            raise end
        return end

    run = await app.start(plan)
    async with app.worker():
        assert await outcome(app, run) == ("failed", "fatal")
    first, second, last = told()
    assert [one.levelname for one in (first, second, last)] == ["WARNING", "WARNING", "ERROR"]
    assert {one.step for one in (first, second, last)} == {"SHIP"}
    assert [one.error_message for one in (first, second, last)] == ["no truck", "not yet", "never"]
    assert place(first) == "test_run_log.py in ship"
    assert "(in 20 s), try 2 of 5 failed: not yet" in second.getMessage()
    assert last.getMessage().endswith("failed in step SHIP, try 3 of 5: fatal: never")


@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
async def test_transactions_are_told_alike(app, told):

    def deposit(connection):
        raise ValueError("no account")

    @app.workflow("bank.deposit.v1")
    async def banking(ctx):
        await ctx.transaction(deposit, retry=Backoff.fixed(0.1, attempts=2))

    run = await app.start(banking)
    async with app.worker():
        await outcome(app, run)
    assert [(one.levelname, one.step, place(one)) for one in told()] == [
        ("WARNING", "deposit", "test_run_log.py in deposit"),
        ("ERROR", "deposit", "test_run_log.py in deposit"),
    ]


async def test_a_run_that_a_keeper_fails_is_one_error_line(app, told):
    @app.workflow("shop.order.v1", timeout=5)
    async def order(ctx):
        await ctx.await_event("never")

    run = await app.start(order)
    async with app.worker() as worker:
        await asyncio.sleep(10)
    (line,) = told()
    assert (line.levelname, line.run, line.error_kind) == ("ERROR", str(run.id), "timeout")
    assert (line.type, line.worker) == ("shop.order.v1", worker.id)


@pytest.mark.slow
async def test_a_run_whose_workers_die_is_one_error_line_at_its_end(app, caplog):
    caplog.set_level(logging.WARNING, "holdfast")

    @app.workflow("shop.order.v1")
    async def order(ctx):
        await asyncio.sleep(1000)

    run = await app.start(order)
    for seed in range(4):
        dying = await process(app, seed, lease=10, keeper=False)
        await until(app, run, "leased")
        dying.kill()
        async with app.worker(patterns=("none.%",), lease=10):
            await until(app, run, "pending", "failed")
            await asyncio.sleep(1)
    errors = [one for one in caplog.records if one.levelno == logging.ERROR]
    assert [(one.run, one.error_kind) for one in errors] == [(str(run.id), "lease_expired")]


async def test_text_of_users_forges_no_line(app, told):
    async def boom():
        raise ValueError("a\n2026-01-01 error b\x1b[31m" + "x" * 10_000)

    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.step("a\nb\x1b", boom, retry=Backoff.none())

    run = await app.start(order)
    async with app.worker():
        await outcome(app, run)
    (line,) = told()
    for text in (line.getMessage(), line.step, line.error_message):
        assert text.isprintable()
        assert len(text) < 2500


async def test_lines_of_a_worker_name_only_what_happened_with_right_plurals(app, caplog):
    for name in (
        "holdfast",
        "holdfast.worker",
        "holdfast.keeper",
    ):  # others may have set levels
        caplog.set_level(logging.INFO, name)

    @app.workflow("shop.nap.v1")
    async def nap(ctx):
        await ctx.sleep(60)

    async with app.worker(slots=1):
        await (await app.start(nap)).result(90)
    said = [one.getMessage() for one in caplog.records if not one.name.endswith(".run")]
    assert "chores: 1 wait came due" in said
    assert any(one.endswith(": 1 workflow, 1 slot") for one in said)
    assert any(one.endswith(" stopped after 2 executions") for one in said)
