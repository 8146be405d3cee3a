"""Exploring: a crash at every store call finds the bugs of wrong workflows."""

from __future__ import annotations

import asyncio
import random

import pytest

import holdfast as hf
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing import Rehearsal, Stuck
from tests.laws.effort import longer
from verify.sabotage import unfenced


def address(stage, run):
    stage.advance(days=31)
    stage.emit("address", "Bern")


@pytest.mark.slow
@pytest.mark.spec("TEST-2")
def test_a_good_workflow_ends_the_same_wherever_it_crashes(explore, shop):
    """Every kind of fault leads to the same outcome and the same effects outside."""
    report = explore(shop.order, 5, script=address, observe=lambda: shop.seen, reset=shop.seen.clear)
    assert report.ok
    assert report.calls > 30
    assert report.plays > 2 * report.calls
    assert report.cut_off > 0
    assert report.compared > 0
    assert str(report).endswith("a step was cut off before its commit and ran again")


@pytest.mark.spec("TEST-2")
def test_a_charge_outside_of_a_step_is_found_and_the_report_says_where(explore, shop):
    """The report names the crash, what was seen, what was expected, and how to mend it."""
    with pytest.raises(AssertionError) as raised:
        explore(shop.hasty, 5, observe=lambda: shop.seen, reset=shop.seen.clear)
    told = str(raised.value)
    assert "when the worker died after commit 2: checkpoint of step 'ship' (store call " in told
    assert "the outside world saw: ['reserved', 'charged 5', 'shipped shelf 5', 'charged 5']" in told
    assert "expected: ['reserved', 'charged 5', 'shipped shelf 5']" in told
    assert "Put it into a step: await ctx.step(name, function)" in told


@pytest.mark.slow
@pytest.mark.spec("TEST-2")
@pytest.mark.parametrize("store", ["memory", *longer("sqlite", "redis")])
def test_a_sync_workflow_is_explored_too(request, explore, shop, store):
    if store == "redis":
        request.getfixturevalue("redis_url")  # skips the test without a server
        from servers.redis_store import make as store
    assert explore(shop.counter, 5, observe=lambda: shop.seen, reset=shop.seen.clear, store=store).ok


def test_a_result_that_depends_on_memory_is_found(explore):
    """A result must not depend on values in memory, which a crash loses; here a counter."""
    app, executions = hf.App("memory://"), []

    @app.workflow("shop.forgetful.v1")
    async def forgetful(ctx: hf.Context) -> int:
        executions.append(1)
        await ctx.step("look", lambda: None)
        return len(executions)

    report = explore(forgetful, reset=executions.clear, check=False)
    assert (report.findings[0].what, report.findings[0].expected) == ("result of shop.forgetful.v1", "1")
    assert explore(forgetful, reset=executions.clear, compare=lambda _: "whatever").ok


def test_steps_that_depend_on_memory_are_found(explore):
    app, executions = hf.App("memory://"), []

    @app.workflow("shop.fickle.v1")
    async def fickle(ctx: hf.Context) -> None:
        executions.append(1)
        await ctx.step("first", lambda: None)
        if len(executions) == 1:
            await ctx.step("second", lambda: None)

    report = explore(fickle, reset=executions.clear, check=False)
    assert ("steps of shop.fickle.v1", "['first (task) succeeded']") in [
        (one.what, one.seen) for one in report.findings
    ]


def test_a_missing_reset_is_reported_before_anything_crashes(explore, shop):
    report = explore(shop.counter, 5, observe=lambda: shop.seen, check=False)
    assert report.plays == 2
    assert "Give reset=" in str(report)


def test_a_workflow_that_depends_on_chance_is_found_before_anything_crashes(explore):
    app, dice = hf.App("memory://"), random.Random(1)

    @app.workflow("shop.dicey.v1")
    async def dicey(ctx: hf.Context) -> float:
        return dice.random()

    assert "even two undisturbed plays differ" in str(explore(dicey, check=False))


def test_a_workflow_that_needs_a_script_says_what_it_waits_for(explore):
    app = hf.App("memory://")

    @app.workflow("shop.patient.v1")
    async def patient(ctx: hf.Context) -> None:
        await ctx.await_event("paid")

    with pytest.raises(Stuck, match=r"undisturbed, shop\.patient\.v1 can never end .* 'paid' .*script="):
        explore(patient)


def test_a_script_that_fails_says_in_which_play(explore, shop):
    def impatient(stage, run):
        stage.advance(0)
        assert run.status == "waiting"

    with pytest.raises(AssertionError) as raised:
        explore(shop.counter, 5, script=impatient)
    assert raised.value.__notes__[0].startswith("in the play in which ")


def test_idempotent_effects_are_checked_to_happen_once_even_where_a_step_is_cut_off(explore):
    """A step runs at least once; with an idempotency key the outside world can apply it once."""
    app, sent, kept = hf.App("memory://"), [], {}

    async def pay(ctx) -> None:
        sent.append(ctx.idempotency_key)
        kept[ctx.idempotency_key] = "paid"

    @app.workflow("shop.pay.v1")
    async def order(ctx: hf.Context) -> None:
        await ctx.step("pay", pay, ctx)

    report = explore(order, observe=lambda: sent, reset=sent.clear, idempotent=True, check=False)
    assert "ctx.idempotency_key" in report.findings[0].hint
    assert explore(order, observe=lambda: kept, reset=kept.clear, idempotent=True).ok
    assert explore(order, observe=lambda: sent, reset=sent.clear).ok


@pytest.mark.spec("TEST-2")
def test_the_report_says_when_the_outside_could_not_be_compared(explore):
    """In a segment an execution that repeats the body also repeats its steps."""
    app, seen = hf.App("memory://"), []

    @app.workflow("shop.segment.v1", checkpoint="segment")
    async def segment(ctx: hf.Context) -> None:
        await ctx.step("a", lambda: None)
        seen.append("charged in the body")

    scene = {"observe": lambda: seen, "reset": seen.clear}
    report = explore(segment, **scene)
    assert report.compared == 0
    assert "what the body does outside of steps was not compared. With idempotent=True it is" in str(report)
    assert "idempotent" not in str(explore(segment, reset=seen.clear))
    with pytest.raises(AssertionError, match="the outside world saw"):
        explore(segment, **scene, idempotent=True)


def test_a_time_in_the_result_gets_a_hint_of_its_own(explore):
    app = hf.App("memory://")

    @app.workflow("shop.now.v1")
    async def late(ctx: hf.Context) -> str:
        await ctx.step("look", lambda: None)
        return str(ctx.now())

    report = explore(late, check=False)
    assert all(
        "be it of ctx.now(), differs rightly. Leave out by compare=" in one.hint for one in report.findings
    )
    assert explore(late, compare=lambda _: "some time").ok


def test_gathered_branches_and_retries_end_the_same(explore):
    app, tries = hf.App("memory://"), []

    async def flaky(name) -> str:
        tries.append(name)
        if tries.count(name) < 2:
            raise OSError("not yet")
        return name

    @app.workflow("shop.many.v1", retry=hf.Backoff.fixed(2, attempts=9))
    async def many(ctx: hf.Context) -> list[str]:
        return await asyncio.gather(*(ctx.step(name, flaky, name) for name in "abc"))

    assert explore(many, reset=tries.clear, replace={len: len}).ok


@pytest.mark.slow
def test_a_transaction_is_made_once_wherever_it_crashes(explore):
    """A write inside the commit that records its step is there once, also when a replacement makes it."""
    app, kept = hf.App("memory://"), []

    def book(connection, n: int) -> int:
        connection.execute("create table if not exists books (n)")
        connection.execute("insert into books values (?)", (n,))
        kept[:] = connection.execute("select n from books").fetchall()
        return len(kept)

    @app.workflow("shop.book.v1")
    async def booked(ctx: hf.Context, n: int) -> int:
        return await ctx.transaction(book, n)

    assert explore(booked, 5, store="sqlite", observe=lambda: kept, idempotent=True).ok
    assert kept == [(5,)]
    with Rehearsal(booked, store="sqlite", replace={book: lambda _, n: n}) as stage:
        assert stage.start(booked, 7).result() == 7


@pytest.mark.spec("TEST-2")
def test_an_effect_of_a_transaction_outside_of_its_database_is_found(explore):
    """When the commit fails after the function has run, only writes to the database are undone."""
    app, charged = hf.App("memory://"), []

    def charge(connection) -> int:
        charged.append("charged")
        return 1

    @app.workflow("shop.charge.v1")
    async def order(ctx: hf.Context) -> int:
        return await ctx.transaction(charge)

    scene = {"store": "sqlite", "observe": lambda: charged, "reset": charged.clear}
    assert explore(order, **scene).cut_off == 1
    report = explore(order, **scene, idempotent=True, check=False)
    assert [one.seen for one in report.findings] == ["['charged', 'charged']"]
    assert "its function had run, and nothing of it was committed" in str(report)


def test_a_store_that_makes_a_recorded_transaction_again_is_found(explore):
    app = hf.App("memory://")

    class Again(SqliteStore):
        async def transact(self, item, work, *limit):
            verdict = await super().transact(item, work, *limit)
            if item.number in sent:
                work(None)
            sent.append(item.number)
            return verdict

    def book(connection) -> None:
        pass

    @app.workflow("shop.book.v1")
    async def order(ctx: hf.Context) -> None:
        await ctx.transaction(book)

    sent = []
    report = explore(order, store=lambda clock: Again(":memory:", clock=clock), reset=sent.clear, check=False)
    assert "recorded and run again: step 'book'" in str(report)


@pytest.mark.spec("TEST-2")
def test_a_store_that_forgets_its_fence_is_found(explore, shop):
    """The kit is also for authors of stores: a write of a zombie that gets through changes the outcome."""
    with unfenced():
        report = explore(shop.order, 5, script=address, check=False)
    late = [one for one in report.findings if one.what == "written by one who had lost the run"]
    assert late
    assert all("stood still before" in case for one in late for case in one.cases)


@pytest.mark.spec("TEST-2")
def test_a_chain_is_explored_to_the_end_of_its_last_run(explore):
    """The id of the next run is no difference, and a bug in a later run is found."""
    app, seen = hf.App("memory://"), []

    @app.workflow("shop.rounds.v1")
    async def rounds(ctx: hf.Context, n: int) -> int:
        if n:
            await ctx.sleep(1)
        if n == 2:
            seen.append("charged in the body")
        await ctx.step("see", seen.append, n)
        if n < bound:
            ctx.continue_as(n + 1)
        return n

    bound = 1
    assert explore(rounds, 0, observe=lambda: seen, reset=seen.clear).ok
    bound = 2
    report = explore(rounds, 1, observe=lambda: seen, reset=seen.clear, check=False)
    assert {one.what for one in report.findings} == {"the outside world saw"}
    bound = 10**9
    with pytest.raises(Stuck, match=r"shop\.rounds\.v1 goes on as another run without an end: let a script="):
        explore(rounds, 3)


def test_another_run_may_wait_for_ever(explore):
    """The waiting run is compared as it is; its error of an expired lease is no outcome."""
    app = hf.App("memory://")

    @app.workflow("shop.waiter.v1")
    async def waiter(ctx: hf.Context) -> None:
        await ctx.step("look", lambda: None)
        await ctx.await_event("never")

    @app.workflow("shop.starter.v1")
    async def starter(ctx: hf.Context) -> None:
        async def begin():
            await app.start(waiter, key="one")

        await ctx.step("begin", begin)

    assert explore(starter, app=app).ok


def test_explore_refuses_an_argument_that_is_no_workflow(explore):
    with pytest.raises(hf.UsageError, match="give the decorated function"):
        explore("shop.order.v1")
