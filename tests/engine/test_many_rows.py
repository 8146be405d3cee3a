"""Commits are bounded in rows as well as in bytes: a million tiny messages are not a small commit."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

import holdfast as hf
from holdfast import Backoff, TooLarge
from holdfast.engine import messages
from holdfast.engine.committer import Committer
from holdfast.engine.plans.finish import MESSAGES_MAX
from holdfast.errors import Unavailable
from holdfast.records import Item, NewEvent, Outbound, TrailWrite
from holdfast.records.moves import Complete
from tests.engine.faulty import Faulty
from tests.engine.kit import keys, outcome
from tests.engine.test_batches import Store

MOST = 20  # in place of 10,000


class Watched(Faulty):
    """Remembers the items."""

    def __init__(self, store):
        super().__init__(store)
        self.items = []

    def struck(self, verb, args):
        if verb == "commit":
            self.items += args[0]
        return super().struck(verb, args)


@pytest.fixture
def few(monkeypatch):
    monkeypatch.setattr("holdfast.engine.messages.SAID_MAX", MOST)
    monkeypatch.setattr("holdfast.engine.messages.LOGGED_MAX", MOST)
    monkeypatch.setattr("holdfast.engine.journal.SAID_MAX", MOST)


def told(say, *args):
    """How many may be said, and what is said of one more."""
    for n in range(3 * MOST):
        try:
            say(n, *args)
        except TooLarge as error:
            return [n, str(error)]
    return [3 * MOST, ""]


SENDS = "sends more than 20 events and messages in one commit, the limit: put several into one"
LOGS = "logs more than 20 rows before one commit, the limit: say less, or in several steps"


@pytest.mark.spec("FLOW-18")
@pytest.mark.usefixtures("few")
async def test_a_step_says_a_bounded_number_of_things(app):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        emitted = await ctx.step("emits", told, lambda n: ctx.emit("made", n))
        sent = await ctx.step("sends", told, lambda n: ctx.send("mail", n))
        logged = await ctx.step("logs", told, lambda n: ctx.log(f"row {n}"))
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
@pytest.mark.usefixtures("few")
async def test_the_body_says_a_bounded_number_of_things_between_two_commits(app):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        first = told(lambda n: ctx.emit("made", n, name=f"a{n}"))
        await ctx.step("between", lambda: None)
        second = told(lambda n: ctx.send("mail", n, name=f"b{n}"))
        return [first, second]

    run = await app.start(order)
    async with app.worker(relay=False):
        first, second = await run.result(60)
    assert [first[0], second[0]] == [MOST, MOST]
    assert first[1].startswith(f"run {run.id} in its body {SENDS}")


async def test_the_body_says_a_bounded_number_of_bytes_between_two_commits(app, monkeypatch):
    monkeypatch.setattr("holdfast.engine.messages.SAID_BYTES", 10_000)

    @app.workflow("shop.order.v1")
    async def order(ctx):
        said = told(lambda n: ctx.emit("made", "x" * 1500, name=f"a{n}"))
        await ctx.step("between", lambda: None)
        return [said[0], told(lambda n: ctx.emit("made", "x" * 1500, name=f"b{n}"))[0]]

    run = await app.start(order)
    async with app.worker():
        assert await run.result(60) == [5, 5]


@pytest.mark.usefixtures("few")
async def test_a_task_of_a_plan_that_sends_too_much_fails_and_sends_nothing(app):
    plan = app.plan("shop.plan.v1", [hf.Task("SHIP")], retry=Backoff.fixed(0, attempts=1))
    plan.task("SHIP")(lambda _task: hf.Completed(outbound=[hf.Message("mail", n) for n in range(MOST + 1)]))
    run = await app.start(plan)
    async with app.worker(relay=False):
        assert (await outcome(app, run))[0] == "failed"
    assert f"task 'SHIP' {SENDS}" in (await app.get(run.id)).error.message
    assert await app.outbox() == []


async def test_a_wait_of_a_plan_that_is_refused_sends_nothing(app):
    plan = app.plan("shop.plan.v1", [hf.Task("SHIP")], retry=Backoff.fixed(0, attempts=1))
    plan.task("SHIP")(lambda _task: hf.Waiting(timeout=-1, outbound=[hf.Message("mail", 1)]))
    run = await app.start(plan)
    async with app.worker(relay=False):
        assert (await outcome(app, run))[0] == "failed"
    assert await app.outbox() == []


def test_messages_of_two_outcomes_of_a_plan_have_numbers_of_their_own():
    assert messages.SAID_MAX <= MESSAGES_MAX


@pytest.mark.usefixtures("few")
async def test_what_a_run_says_goes_in_items_of_a_bounded_number(app):
    """Branches that wait behind one commit say as much as each of them may."""

    @app.workflow("shop.order.v1")
    async def order(ctx):
        def says(key):
            for n in range(15):
                ctx.send("mail", f"{key}{n}")

        first = ctx.step("first", lambda: None)
        return len(await asyncio.gather(first, *[ctx.step(f"s{n}", says, f"s{n}") for n in range(6)]))

    app.store = store = Watched(app.store)
    run = await app.start(order)
    async with app.worker(relay=False):
        await run.result(60)
    assert max(len(item.outbox) for item in store.items) <= MOST
    assert len(await app.outbox(limit=100)) == 90
    for item in store.items:
        assert {one.step for one in item.outbox} <= {step.key for step in item.steps}


@pytest.mark.spec("FLOW-12")
async def test_a_segment_writes_on_the_way_what_it_logs(app, monkeypatch):
    monkeypatch.setattr("holdfast.engine.journal.SEGMENT_ROWS", 10)
    monkeypatch.setattr("holdfast.engine.messages.LOGGED_MAX", MOST)

    @app.workflow("shop.order.v1", checkpoint="segment")
    async def order(ctx):
        for n in range(30):
            await ctx.step(f"s{n}", lambda: ctx.log("one") or ctx.log("two"))

    app.store = store = Watched(app.store)
    run = await app.start(order)
    async with app.worker():
        assert (await outcome(app, run))[0] == "succeeded"
    assert 5 <= len(store.items) <= 7
    assert len([row for row in await app.trail(run.id, limit=200) if row.type == "log"]) == 60


@pytest.mark.spec("FLOW-12")
async def test_a_segment_writes_on_the_way_what_it_sends(app, monkeypatch):
    monkeypatch.setattr("holdfast.engine.journal.SEGMENT_BYTES", 4_000)

    @app.workflow("shop.order.v1", checkpoint="segment")
    async def order(ctx):
        for n in range(16):
            await ctx.step(f"s{n}", lambda: ctx.send("mail", "x" * 1_000))

    app.store = store = Watched(app.store)
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


@pytest.mark.usefixtures("few")
async def test_a_log_row_that_was_refused_is_written_by_the_next_execution(app):
    executions = []

    @app.workflow("shop.order.v1", retry=Backoff.fixed(0.1, attempts=3))
    async def order(ctx):
        executions.append(told(lambda n: ctx.log(f"row {n}") if n <= MOST else None)[0])
        if len(executions) == 1:
            raise Unavailable("once")

    run = await app.start(order)
    async with app.worker():
        assert (await outcome(app, run))[0] == "succeeded"
    assert executions == [MOST, 3 * MOST]
    rows = [row.data["message"] for row in await app.trail(run.id, limit=200) if row.type == "log"]
    assert rows == [f"row {n}" for n in range(MOST + 1)]
