"""Commits are bounded in rows as well as in bytes: a million tiny messages are not a small commit."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

import holdfast as hf
from holdfast import Backoff, TooLarge
from holdfast.engine.commit.committer import Committer
from holdfast.engine.outbox import messages
from holdfast.engine.plans.finish import MESSAGES_MAX
from holdfast.errors import Unavailable
from holdfast.records import Item, NewEvent, Outbound, TrailWrite
from holdfast.records.moves import Complete
from holdfast.testing.faulty import Faulty
from tests.engine.commit.test_batches import Store
from tests.engine.kit import keys, outcome

MOST = 20  # in place of 10,000


class WatchedStore(Faulty):
    """Records the items."""

    def __init__(self, store):
        super().__init__(store)
        self.items = []

    def fault_for(self, verb, args):
        if verb == "commit":
            self.items += args[0]
        return super().fault_for(verb, args)


@pytest.fixture
def low_row_limits(monkeypatch):
    monkeypatch.setattr("holdfast.engine.outbox.messages.SENT_MAX", MOST)
    monkeypatch.setattr("holdfast.engine.outbox.messages.LOGGED_MAX", MOST)
    monkeypatch.setattr("holdfast.engine.commit.journal.SENT_MAX", MOST)


def fill(send_one, *args):
    """Return how many messages are accepted, and the error for one more."""
    for n in range(3 * MOST):
        try:
            send_one(n, *args)
        except TooLarge as error:
            return [n, str(error)]
    return [3 * MOST, ""]


SENDS = "sends more than 20 events and messages in one commit, the limit: combine several messages"
LOGS = "logs more than 20 rows before one commit, the limit: log less, or in several steps"


@pytest.mark.spec("FLOW-18")
@pytest.mark.usefixtures("low_row_limits")
async def test_a_step_sends_and_logs_a_bounded_number_of_rows(app):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        emitted = await ctx.step("emits", fill, lambda n: ctx.emit("made", n))
        sent = await ctx.step("sends", fill, lambda n: ctx.send("mail", n))
        logged = await ctx.step("logs", fill, lambda n: ctx.log(f"row {n}"))
        return [emitted, sent, logged]

    run = await app.start(order)
    async with app.worker(relay=False):
        emitted, sent, logged = await run.result(60)
    assert (emitted[0], sent[0], logged[0]) == (MOST, MOST, MOST)
    assert emitted[1].startswith(f"step 'emits' {SENDS}")
    assert sent[1].startswith(f"step 'sends' {SENDS}")
    assert logged[1] == f"run {run.id} {LOGS}"
    assert len(await app.outbox(limit=100)) == MOST


@pytest.mark.spec("FLOW-18")
@pytest.mark.usefixtures("low_row_limits")
async def test_the_body_sends_a_bounded_number_of_rows_between_two_commits(app):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        first = fill(lambda n: ctx.emit("made", n, name=f"a{n}"))
        await ctx.step("between", lambda: None)
        second = fill(lambda n: ctx.send("mail", n, name=f"b{n}"))
        return [first, second]

    run = await app.start(order)
    async with app.worker(relay=False):
        first, second = await run.result(60)
    assert [first[0], second[0]] == [MOST, MOST]
    assert first[1].startswith(f"run {run.id} in its body {SENDS}")


async def test_the_body_sends_a_bounded_number_of_bytes_between_two_commits(app, monkeypatch):
    monkeypatch.setattr("holdfast.engine.outbox.messages.SENT_BYTES", 10_000)

    @app.workflow("shop.order.v1")
    async def order(ctx):
        first_fill = fill(lambda n: ctx.emit("made", "x" * 1500, name=f"a{n}"))
        await ctx.step("between", lambda: None)
        return [first_fill[0], fill(lambda n: ctx.emit("made", "x" * 1500, name=f"b{n}"))[0]]

    run = await app.start(order)
    async with app.worker():
        assert await run.result(60) == [5, 5]


@pytest.mark.usefixtures("low_row_limits")
async def test_a_plan_task_that_sends_too_much_fails_and_sends_nothing(app):
    plan = app.plan("shop.plan.v1", [hf.Task("SHIP")], retry=Backoff.fixed(0, attempts=1))
    plan.task("SHIP")(lambda _task: hf.Completed(outbound=[hf.Message("mail", n) for n in range(MOST + 1)]))
    run = await app.start(plan)
    async with app.worker(relay=False):
        assert (await outcome(app, run))[0] == "failed"
    assert f"task 'SHIP' {SENDS}" in (await app.get(run.id)).error.message
    assert await app.outbox() == []


async def test_a_refused_wait_of_a_plan_sends_nothing(app):
    plan = app.plan("shop.plan.v1", [hf.Task("SHIP")], retry=Backoff.fixed(0, attempts=1))
    plan.task("SHIP")(lambda _task: hf.Waiting(timeout=-1, outbound=[hf.Message("mail", 1)]))
    run = await app.start(plan)
    async with app.worker(relay=False):
        assert (await outcome(app, run))[0] == "failed"
    assert await app.outbox() == []


def test_message_numbers_of_two_outcomes_of_a_plan_do_not_overlap():
    assert messages.SENT_MAX <= MESSAGES_MAX


@pytest.mark.usefixtures("low_row_limits")
async def test_messages_of_a_run_go_in_items_of_a_bounded_number_of_rows(app):
    """Branches that wait behind one commit send as much as each of them may."""

    @app.workflow("shop.order.v1")
    async def order(ctx):
        def sends(key):
            for n in range(15):
                ctx.send("mail", f"{key}{n}")

        first = ctx.step("first", lambda: None)
        return len(await asyncio.gather(first, *[ctx.step(f"s{n}", sends, f"s{n}") for n in range(6)]))

    app.store = store = WatchedStore(app.store)
    run = await app.start(order)
    async with app.worker(relay=False):
        await run.result(60)
    assert max(len(item.outbox) for item in store.items) <= MOST
    assert len(await app.outbox(limit=100)) == 90
    for item in store.items:
        assert {one.step for one in item.outbox} <= {step.key for step in item.steps}


@pytest.mark.spec("FLOW-12")
async def test_a_segment_commits_its_logs_before_its_end_when_they_are_many(app, monkeypatch):
    monkeypatch.setattr("holdfast.engine.commit.journal.SEGMENT_ROWS", 10)
    monkeypatch.setattr("holdfast.engine.outbox.messages.LOGGED_MAX", MOST)

    @app.workflow("shop.order.v1", checkpoint="segment")
    async def order(ctx):
        for n in range(30):
            await ctx.step(f"s{n}", lambda: ctx.log("one") or ctx.log("two"))

    app.store = store = WatchedStore(app.store)
    run = await app.start(order)
    async with app.worker():
        assert (await outcome(app, run))[0] == "succeeded"
    assert 5 <= len(store.items) <= 7
    assert len([row for row in await app.trail(run.id, limit=200) if row.type == "log"]) == 60


@pytest.mark.spec("FLOW-12")
async def test_a_segment_commits_its_messages_before_its_end_when_they_are_large(app, monkeypatch):
    monkeypatch.setattr("holdfast.engine.commit.journal.SEGMENT_BYTES", 4_000)

    @app.workflow("shop.order.v1", checkpoint="segment")
    async def order(ctx):
        for n in range(16):
            await ctx.step(f"s{n}", lambda: ctx.send("mail", "x" * 1_000))

    app.store = store = WatchedStore(app.store)
    run = await app.start(order)
    async with app.worker(relay=False):
        await run.result(60)
    assert 3 <= len(store.items) <= 6
    assert await keys(app, run) == [f"s{n}" for n in range(16)]
    assert len(await app.outbox(limit=100)) == 16


def item(n, **fields):
    return Item(run=UUID(int=n), fence=1, number=1, move=Complete(result="null"), **fields)


@pytest.mark.parametrize("field", ["events", "outbox", "trail"])
async def test_a_batch_is_bounded_in_rows_of_every_kind(world, field):
    rows = {
        "events": lambda n: NewEvent(id=f"e{n}", topic="t"),
        "outbox": lambda n: Outbound(id=f"m{n}", sink="mail", payload="1", step="a"),
        "trail": lambda _: TrailWrite("log", "{}"),
    }[field]
    store = Store()
    committer = Committer(store, world)
    for n in range(10):
        committer.put(item(n, **{field: tuple(rows(m) for m in range(600))}), lambda _: None)
    await committer.drain()
    assert [len(batch) for batch in store.batches] == [3, 3, 3, 1]


@pytest.mark.usefixtures("low_row_limits")
async def test_a_refused_log_row_is_written_by_the_next_execution(app):
    executions = []

    @app.workflow("shop.order.v1", retry=Backoff.fixed(0.1, attempts=3))
    async def order(ctx):
        executions.append(fill(lambda n: ctx.log(f"row {n}") if n <= MOST else None)[0])
        if len(executions) == 1:
            raise Unavailable("once")

    run = await app.start(order)
    async with app.worker():
        assert (await outcome(app, run))[0] == "succeeded"
    assert executions == [MOST, 3 * MOST]
    rows = [row.data["message"] for row in await app.trail(run.id, limit=200) if row.type == "log"]
    assert rows == [f"row {n}" for n in range(MOST + 1)]
