"""`holdfast.LogContext`: log lines of user code carry the run, step and attempt that wrote them."""

from __future__ import annotations

import asyncio
import logging
import logging.handlers
import queue
import subprocess
import sys
import threading

import pytest

import holdfast as hf
from holdfast import App, Backoff, LogContext, Retry, Task
from holdfast.stores.sqlite import SqliteStore
from tests.engine.accounts import with_accounts
from tests.engine.kit import outcome

log = logging.getLogger("shop")

pytestmark = pytest.mark.spec("OPS-6")


class Lines(logging.Handler):
    """A handler of a user, with our filter."""

    def __init__(self):
        super().__init__()
        self.records = []
        self.addFilter(LogContext())

    def emit(self, record):
        self.records.append(record)

    def said(self):
        """Return (message, step, attempt) of each line of user code."""
        return [(one.getMessage(), one.step, one.attempt) for one in self.records if one.name == "shop"]


@pytest.fixture
def lines():
    handler, root = Lines(), logging.getLogger()
    before = log.level
    log.setLevel(logging.INFO)
    root.addHandler(handler)
    yield handler
    root.removeHandler(handler)
    log.setLevel(before)


def assert_all_of(lines, run, type_, tenant="default"):
    ours = [one for one in lines.records if one.name == "shop"]
    assert {(one.run, one.type, one.tenant) for one in ours} == {(str(run.id), type_, tenant)}
    assert all(one.worker.startswith("test:") for one in ours)


async def test_lines_of_the_body_and_of_async_and_sync_steps_carry_their_place(app, lines):
    async def charge():
        log.info("in an async step")

    def pack():
        log.info("in a thread")

    async def slow():
        log.info("with a timeout")

    @app.workflow("shop.order.v1")
    async def order(ctx):
        log.info("begins")
        await ctx.step("charge", charge)
        await ctx.step("pack", pack)
        await ctx.step("slow", slow, timeout=10)
        log.info("ends")

    run = await app.start(order, tenant="ann")
    async with app.worker():
        await run.result(60)
    assert lines.said() == [
        ("begins", "", 1),
        ("in an async step", "charge", 1),
        ("in a thread", "pack", 1),
        ("with a timeout", "slow", 1),
        ("ends", "", 1),
    ]
    assert_all_of(lines, run, "shop.order.v1", "ann")


async def test_each_try_of_a_step_and_each_execution_of_the_body_has_its_number(app, lines):
    tries = []

    async def flaky():
        tries.append(1)
        log.info("try")
        if len(tries) < 3:
            raise ValueError("no")

    @app.workflow("shop.order.v1", retry=Backoff.fixed(100, attempts=3))
    async def order(ctx):
        log.info("body")
        if len(tries) == 0 and ctx.attempt == 1:
            raise ValueError("at first")
        await ctx.step("flaky", flaky, retry=Backoff.fixed(0.1, attempts=5))

    run = await app.start(order)
    async with app.worker():
        await run.result(600)
    assert lines.said() == [
        ("body", "", 1),
        ("body", "", 2),
        ("try", "flaky", 1),
        ("try", "flaky", 2),
        ("try", "flaky", 3),
    ]


async def test_branches_of_gather_and_items_of_map_do_not_mix(app, lines):
    async def wait(name):
        log.info("%s begins", name)
        await asyncio.sleep(1)
        log.info("%s ends", name)

    @app.workflow("shop.order.v1")
    async def order(ctx):
        await asyncio.gather(ctx.step("a", wait, "a"), ctx.step("b", wait, "b"))
        await ctx.map("item", wait, ["x", "y"], key=str)
        log.info("over")

    run = await app.start(order)
    async with app.worker():
        await run.result(60)
    said = lines.said()
    assert len(said) == 9
    for message, step, _ in said[:-1]:
        name = message.split()[0]
        assert step == (name if name in "ab" else f"item[{name}]")
    assert said[-1] == ("over", "", 1)


async def test_runs_that_execute_at_once_do_not_mix(app, lines):
    @app.workflow("shop.order.v1")
    async def order(ctx, name: str):
        for _ in range(3):
            log.info("%s", name)
            await asyncio.sleep(1)

    runs = {name: await app.start(order, name) for name in ("a", "b", "c")}
    async with app.worker():
        for run in runs.values():
            await run.result(60)
    found = [(one.getMessage(), one.run) for one in lines.records if one.name == "shop"]
    assert sorted(found) == sorted((name, str(run.id)) for name, run in runs.items() for _ in range(3))


async def test_sync_workflows_carry_it_in_their_thread(app, lines):
    async def charge():
        log.info("in an async step")

    def pack():
        log.info("in a sync step")

    @app.workflow("shop.order.v1")
    def order(ctx):
        log.info("begins")
        ctx.step("charge", charge)
        ctx.step("pack", pack)
        log.info("ends")

    run = await app.start(order)
    async with app.worker():
        await run.result(60)
    assert [(step, message) for message, step, _ in lines.said()] == [
        ("", "begins"), ("charge", "in an async step"), ("pack", "in a sync step"), ("", "ends"),
    ]  # fmt: skip
    assert_all_of(lines, run, "shop.order.v1")


async def test_handlers_of_plans_carry_it(app, lines):
    plan = app.plan("shop.fulfil.v1", [Task("PICK"), Task("SHIP")])
    tries = []

    @plan.task("PICK")
    async def pick(task):
        tries.append(task.name)
        log.info("picks")
        return Retry(1, "not yet") if len(tries) == 1 else None

    @plan.task("SHIP")
    def ship(task):
        log.info("ships")

    run = await app.start(plan)
    async with app.worker():
        assert (await outcome(app, run))[0] == "succeeded"
    assert lines.said() == [("picks", "PICK", 1), ("picks", "PICK", 2), ("ships", "SHIP", 1)]
    assert_all_of(lines, run, "shop.fulfil.v1")


async def test_transactions_carry_it_inside_the_commit(world, tmp_path, lines):
    path = with_accounts(tmp_path / "holdfast.db")
    app = App(SqliteStore(str(path), clock=world.now, inline=True), name="test", world=world)

    def deposit(connection):
        log.info("deposits")

    @app.workflow("bank.deposit.v1")
    async def banking(ctx):
        await ctx.transaction(deposit)

    run = await app.start(banking)
    async with app.worker():
        await run.result(60)
    assert lines.said() == [("deposits", "deposit", 1)]
    assert_all_of(lines, run, "bank.deposit.v1")


async def test_hooks_and_sinks_log_for_the_run_that_they_are_about(app, lines):
    @app.on("run.succeeded", "worker.started")
    async def notified(notice):
        log.info("hook %s", notice.name)

    @app.sink("mail")
    async def mail(delivery):
        log.info("mail")

    async def sends(ctx):
        ctx.send("mail", 1)

    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.step("send", sends, ctx)

    run = await app.start(order)
    async with app.worker():
        await run.result(60)
        await asyncio.sleep(10)
    found = {one.getMessage(): (one.run, one.step) for one in lines.records if one.name == "shop"}
    assert found == {
        "hook worker.started": ("", ""),
        "hook run.succeeded": (str(run.id), ""),
        "mail": (str(run.id), ""),
    }


async def test_lines_outside_of_runs_have_empty_fields(lines):
    log.info("outside")
    (record,) = lines.records
    fields = (record.run, record.type, record.step, record.attempt, record.tenant, record.worker)
    assert fields == ("",) * 6


async def test_our_own_lines_name_a_run_only_if_they_are_about_it(app, lines):
    """A commit is sent in the context of the run that happens to ask for it: that proves nothing."""
    ours = logging.getLogger("holdfast.committer")

    async def charge():
        ours.warning("cannot commit, will retry")

    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.step("charge", charge)

    run = await app.start(order)
    async with app.worker():
        await run.result(60)
    ours.warning("run %s is odd", run.id)
    found = [(one.getMessage(), one.run) for one in lines.records if one.name == "holdfast.committer"]
    assert found == [("cannot commit, will retry", ""), (f"run {run.id} is odd", str(run.id))]


async def test_a_field_of_the_caller_stays(app, lines):
    async def charge():
        log.info("with extra", extra={"tenant": "mine"})

    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.step("charge", charge)

    run = await app.start(order)
    async with app.worker():
        await run.result(60)
    (record,) = [one for one in lines.records if one.name == "shop"]
    assert (record.tenant, record.step) == ("mine", "charge")


async def test_a_queue_keeps_the_fields_although_another_thread_prints(app):
    """The filter is on the QueueHandler, as its lines are made in the run's context."""
    lines, waiting = Lines(), queue.SimpleQueue()
    handler = logging.handlers.QueueHandler(waiting)
    handler.addFilter(LogContext())
    log.addHandler(handler)
    try:

        async def charge():
            log.warning("queued")

        @app.workflow("shop.order.v1")
        async def order(ctx):
            await ctx.step("charge", charge)

        run = await app.start(order)
        async with app.worker():
            await run.result(60)
    finally:
        log.removeHandler(handler)
    thread = threading.Thread(target=lambda: lines.handle(waiting.get()))
    thread.start()
    thread.join()
    assert lines.said() == [("queued", "charge", 1)]


async def test_control_characters_in_names_are_escaped(app, lines):
    async def charge():
        log.info("said")

    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.step("a\x1b[31m\nb", charge)

    run = await app.start(order)
    async with app.worker():
        await run.result(60)
    assert lines.said() == [("said", r"a\x1b[31m\nb", 1)]


@pytest.mark.slow
def test_without_the_command_line_nothing_of_logging_is_configured():
    code = """
import asyncio, logging
import holdfast as hf
app = hf.App("memory://")

@app.workflow("shop.order.v1")
async def order(ctx):
    await ctx.step("a", lambda: 1)

async def main():
    async with app.worker():
        await (await app.start(order)).result(30)

asyncio.run(main())
loggers = [logging.getLogger()] + [
    one for name, one in logging.Logger.manager.loggerDict.items()
    if name.split(".")[0] == "holdfast" and isinstance(one, logging.Logger)
]
assert len(loggers) > 5
assert [one.name for one in loggers if one.handlers or not one.propagate or one.disabled] == []
assert [one.name for one in loggers[1:] if one.level] == []
assert logging.getLogger().level == logging.WARNING
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_filter_can_be_named_in_a_configuration():
    from logging.config import DictConfigurator

    made = DictConfigurator({"version": 1}).configure_filter({"()": "holdfast.LogContext"})
    assert isinstance(made, hf.LogContext)
