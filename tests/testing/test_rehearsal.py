"""Rehearsals: a month takes milliseconds, in sync test functions, and the app's own store is never
touched.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

import holdfast as hf
from holdfast.testing import Rehearsal, Stuck
from tests.testing.shop import Receipt


@pytest.mark.spec("TEST-1")
@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_a_month_passes_in_milliseconds_and_to_the_very_instant(rehearsal, shop, store):
    """Time stands still until the test advances it; after 30 days a sleep of 30 days has ended."""
    begun = time.monotonic()
    stage = rehearsal(shop.app, store=store)
    run = stage.start(shop.order, 700, key="o-7")
    assert (run.status, shop.seen) == ("waiting", ["reserved", "charged 700"])
    stage.advance(days=30, seconds=-0.000001)
    assert list(run.steps()) == ["reserve", "charge", "sleep"]
    assert run.steps()["sleep"].status == "waiting"
    stage.advance(0.000001)
    assert run.steps()["sleep"].status == "succeeded"
    stage.emit("address", "Bern", keep=hf.days(90))
    assert run.result() == "shipped to Bern"
    assert stage.now == datetime(2026, 1, 31, tzinfo=UTC)
    assert time.monotonic() - begun < 1


@pytest.mark.spec("TEST-1")
def test_a_sync_workflow_is_rehearsed_like_an_async_one(rehearsal, shop):
    stage = rehearsal(shop.app)
    run = stage.start(shop.counter, 5)
    assert run.status == "waiting"
    assert run.result() == "shipped"
    assert stage.now == datetime(2026, 1, 2, tzinfo=UTC)


@pytest.mark.spec("TEST-1")
def test_a_run_that_waits_for_the_outside_world_says_so_instead_of_hanging(rehearsal, shop):
    @shop.app.workflow("shop.patient.v1")
    async def patient(ctx: hf.Context) -> str:
        return (await ctx.await_event("paid.o-7")).payload

    stage = rehearsal(shop.app)
    run = stage.start(patient)
    with pytest.raises(
        Stuck, match=r"^shop\.patient\.v1 can never end by itself\. It waits for an event on 'paid\.o-7'"
    ):
        run.result()
    stage.emit("paid.o-7", "thanks")
    assert run.result() == "thanks"


def test_a_paused_run_and_one_without_a_worker_say_so(rehearsal, shop):
    """The error comes also while another run goes on without an end."""
    app = hf.App("memory://")

    @app.workflow("clock.tick.v1")
    async def tick(ctx: hf.Context) -> None:
        while True:
            await ctx.sleep(hours=1)

    stage = rehearsal(shop.order, tick)
    paused, strange = stage.start(shop.order, 1), stage.start(shop.counter, 1)
    stage.pause(paused)
    with pytest.raises(Stuck, match="It was paused by test"):
        paused.result()
    ticking = stage.start(tick)
    with pytest.raises(Stuck, match=r"shop\.order\.v1 can never end by itself"):
        paused.result()
    stage.cancel(ticking)
    with pytest.raises(Stuck, match=r"No live worker can run shop\.counter\.v1"):
        strange.result()


def test_a_step_that_never_ends_is_no_endless_test(rehearsal, shop, monkeypatch):
    monkeypatch.setattr("holdfast.testing.rehearsal.TURNS_MAX", 500)

    @shop.app.workflow("shop.stuck.v1")
    async def stuck(ctx: hf.Context) -> None:
        await ctx.step("wait", asyncio.get_running_loop().create_future)

    stage = rehearsal(shop.app)
    with pytest.raises(Stuck, match=r"shop\.stuck\.v1 has not ended by 2026-01-01 .*executes it"):
        stage.start(stuck).result()


@pytest.mark.spec("TEST-1")
def test_the_function_of_a_step_can_be_replaced_and_is_recorded_as_before(rehearsal, shop):
    """An async function may replace a sync one and the reverse; the annotation of the replaced one counts."""

    async def slowly(receipt_id):
        await asyncio.sleep(60)
        return f"{receipt_id} is on its way"

    stage = rehearsal(shop.app, replace={shop.charge: lambda cents: Receipt("fake", cents)})
    stage.replace(shop.ship, slowly)
    run = stage.start(shop.order, 5)
    stage.emit("address", "Chur", keep=hf.days(90))
    assert run.result() == "fake is on its way to Chur"
    assert shop.seen == ["reserved"]
    assert run.steps()["charge"].output == '{"id":"fake","cents":5}'


def test_a_replacement_works_in_a_map_and_may_fail(rehearsal):
    app = hf.App("memory://")

    def price(city: str) -> int:
        raise AssertionError("the network was asked")

    @app.workflow("travel.prices.v1")
    async def prices(ctx: hf.Context, cities: list[str]) -> list[int]:
        return await ctx.map("price", price, cities)

    @app.workflow("travel.plainly.v1")
    def plainly(ctx, cities: list[str]) -> list[int]:
        return ctx.map("price", price, cities)

    def refuse(city):
        raise hf.Fatal(f"no way to {city}")

    stage = rehearsal(app, replace={price: len})
    assert stage.start(prices, ["Rome", "Chur"]).result() == [4, 4]
    assert stage.start(plainly, ["Oslo"]).result() == [4]
    stage.replace(price, refuse)
    with pytest.raises(hf.RunFailed, match="no way to Rome"):
        stage.start(prices, ["Rome"]).result()


class Gateway:
    async def pay(self, cents: int) -> str:
        raise AssertionError("the network was asked")


async def pay(to: str, cents: int) -> str:
    raise AssertionError("the network was asked")


def paying(rehearsal, replace, function):
    app = hf.App("memory://")

    @app.workflow("shop.pay.v1", retry=hf.Backoff.fixed(1, attempts=1))
    async def order(ctx: hf.Context) -> str:
        return await ctx.step("pay", function, 5)

    return rehearsal(app, replace=replace).start(order).result()


def test_a_function_is_replaced_behind_a_partial_and_as_a_method(rehearsal):
    fake = {pay: lambda to, cents: f"{cents} to {to}", Gateway.pay: lambda _, cents: f"{cents} anyhow"}
    assert paying(rehearsal, fake, partial(pay, "Bern")) == "5 to Bern"
    assert paying(rehearsal, fake, Gateway().pay) == "5 anyhow"


def test_a_replaced_function_is_never_called_for_real_unseen(rehearsal):
    """A function behind a lambda, or a method of another object, cannot be replaced: the step fails."""
    around = pay
    for function in (lambda cents: pay("Bern", cents), lambda cents: around("Bern", cents)):
        with pytest.raises(hf.RunFailed, match=r"\.pay is called by a lambda, where it cannot be replaced"):
            paying(rehearsal, {pay: len}, function)
    with pytest.raises(hf.RunFailed, match=r"another \S+Gateway\.pay than the one .* name it by its class"):
        paying(rehearsal, {Gateway().pay: len}, Gateway().pay)


@pytest.mark.spec("TEST-1")
def test_a_crash_is_survived_and_costs_the_lease(rehearsal, shop):
    """The worker dies as by kill -9; another worker takes over when the lease has expired."""
    stage = rehearsal(shop.app)

    def die_once(receipt_id):
        shop.seen.append(f"shipped {receipt_id}")
        if len(shop.seen) == 3:
            stage.crash()
        return "shipped"

    stage.replace(shop.ship, die_once)
    run = stage.start(shop.order, 5)
    stage.emit("address", "Bern", keep=hf.days(90))
    stage.advance(days=30)
    assert run.status == "leased"
    assert "ship" not in run.steps()
    assert run.result() == "shipped to Bern"
    assert shop.seen == ["reserved", "charged 5", "shipped r1", "shipped r1"]
    assert stage.now - datetime(2026, 1, 31, tzinfo=UTC) == pytest.approx(
        timedelta(seconds=30), abs=timedelta(seconds=2)
    )
    assert "lease_expired" in [entry.type for entry in run.trail()]


def test_a_crashed_worker_writes_nothing_more(rehearsal, shop):
    """Not even the next call of the same task is sent: here a commit that the body itself makes."""
    booked = []

    def book(connection) -> int:
        booked.append("by the next worker" if len(begun) > 1 else "by the crashed one")
        return len(booked)

    begun = []

    @shop.app.workflow("shop.book.v1")
    async def twice(ctx: hf.Context) -> int:
        begun.append(stage.now)
        if len(begun) == 1:
            stage.crash()
        return await ctx.transaction(book)

    stage = rehearsal(shop.app, store="sqlite")
    assert stage.start(twice).result() == 1
    assert booked == ["by the next worker"]


def test_a_transaction_has_a_connection_of_its_own_as_in_production(rehearsal):
    """Temporary tables are gone after the call, and a closed connection harms no later call."""
    app = hf.App("memory://")

    def note(connection) -> int:
        connection.execute("create temp table if not exists notes (n)")
        connection.execute("insert into notes values (1)")
        return connection.execute("select count(*) from notes").get

    def close(connection) -> None:
        connection.close(True)

    @app.workflow("shop.notes.v1", retry=hf.Backoff.fixed(1, attempts=1))
    async def notes(ctx: hf.Context) -> list[int]:
        with contextlib.suppress(hf.StepFailed):
            await ctx.transaction(close)
        return [await ctx.transaction(note, name=name) for name in "ab"]

    assert rehearsal(app, store="sqlite").start(notes).result() == [1, 1]


def test_a_crash_between_steps_loses_nothing(rehearsal, shop):
    stage = rehearsal(shop.app)
    run = stage.start(shop.order, 5)
    for _ in range(3):
        stage.crash()
        stage.advance(days=5)
    stage.emit("address", "Bern", keep=hf.days(90))
    assert run.result() == "shipped to Bern"
    assert shop.seen == ["reserved", "charged 5", "shipped r1"]


def test_retries_take_their_time_and_only_that(rehearsal):
    app, tries = hf.App("memory://"), []

    async def flaky() -> str:
        tries.append(stage.now)
        if len(tries) < 3:
            raise OSError("not yet")
        return "at last"

    @app.workflow("net.ask.v1", retry=hf.Backoff.of([0.5, 3600], attempts=3))
    async def ask(ctx: hf.Context) -> str:
        return await ctx.step("flaky", flaky)

    stage = rehearsal(app)
    run = stage.start(ask)
    assert len(tries) == 1
    stage.advance(0.5)
    assert len(tries) == 2
    assert run.result() == "at last"
    assert (tries[2] - tries[1]).total_seconds() == pytest.approx(3600, abs=1)


def test_a_test_can_pause_resume_rewind_and_cancel(rehearsal, shop):
    stage = rehearsal(shop.app)
    run = stage.start(shop.order, 5)
    stage.pause(run)
    stage.advance(days=60)
    stage.resume(run)
    stage.emit("address", "Bern", keep=hf.days(90))
    assert run.result() == "shipped to Bern"
    stage.rewind(run, "charge")
    assert shop.seen[-1] == "charged 5"
    stage.cancel(run.id)
    assert run.status == "cancelled"
    with pytest.raises(hf.RunCancelled):
        run.result()
    assert [one.id for one in stage.runs("shop.%")] == [run.id]
    assert stage.do(stage.app.explain(run.id)).reason == "cancelled"


def test_a_failed_run_can_be_retried_in_a_rehearsal(rehearsal, shop):
    stage = rehearsal(shop.app)
    run = stage.start(shop.order, 5)
    with pytest.raises(hf.RunFailed, match="address"):
        run.result()
    stage.emit("address", "Bern", keep=hf.days(90))
    stage.retry(run)
    assert run.result() == "shipped to Bern"


def test_a_rehearsal_begins_at_the_given_time(rehearsal, shop):
    stage = rehearsal(shop.app, at=datetime(2028, 2, 28, 12, tzinfo=UTC))
    run = stage.start(shop.order, 5)
    stage.advance(timedelta(days=1))
    assert stage.now == datetime(2028, 2, 29, 12, tzinfo=UTC)
    assert run.get().created_at == datetime(2028, 2, 28, 12, tzinfo=UTC)


def test_a_rehearsal_runs_the_same_way_every_time(shop):
    def played():
        with Rehearsal(shop.app) as stage:
            run = stage.start(shop.order, 5)
            stage.crash()
            stage.emit("address", "Bern", keep=hf.days(90))
            run.result()
            return run.id, [(entry.type, entry.at) for entry in run.trail()]

    assert played() == played()


@pytest.mark.parametrize(
    ("mistake", "told"),
    [
        (lambda _: Rehearsal(), "give your app"),
        (lambda _: Rehearsal("shop"), "give your app"),
        (lambda shop: Rehearsal(shop.app, store="postgres"), "'memory', 'sqlite'"),
        (lambda shop: Rehearsal(shop.app, replace={shop.charge: 5}), "replace: 5 cannot be called"),
    ],
)
def test_a_mistake_is_told_in_one_line(shop, mistake, told):
    with pytest.raises(hf.UsageError, match=told):
        mistake(shop)


def test_time_does_not_go_back_and_only_the_test_lets_it_pass(rehearsal, shop):
    stage = rehearsal(shop.app)
    with pytest.raises(hf.UsageError, match="advance is -1 s: give a duration from 0 s"):
        stage.advance(-1)
    stage.replace(shop.ship, lambda _: stage.advance(1))
    run = stage.start(shop.order, 5)
    stage.emit("address", "Bern", keep=hf.days(90))
    with pytest.raises(hf.RunFailed, match=r"only stage\.crash\(\) can"):
        run.result()


def test_after_its_end_a_rehearsal_shows_nothing(shop):
    with Rehearsal(shop.app) as stage:
        run = stage.start(shop.order, 5)
    with pytest.raises(hf.UsageError, match="the rehearsal is over"):
        run.status  # noqa: B018
    assert repr(run) == f"<run {run.id}>"


def test_inside_an_event_loop_a_rehearsal_is_refused(shop):
    async def scene():
        with Rehearsal(shop.app):
            pass

    with pytest.raises(hf.UsageError, match="in a `def test_…`"):
        asyncio.run(scene())


def test_gates_are_decided_and_children_run_in_a_rehearsal():
    """Open gates are listed, a decision lets the run go on at once, and children are runs like others."""
    app = hf.App("memory://")

    @app.workflow("shop.pack.v1")
    async def pack(ctx):
        await ctx.sleep(days=1)
        return "packed"

    @app.workflow("shop.gated.v1")
    async def gated(ctx):
        first = await ctx.approval("first", ask="Go on?")
        second = await ctx.approval("second", ask="Still?")
        return [first.approved, second.approved, first.by, await ctx.call(pack)]

    with Rehearsal(app) as stage:
        run = stage.start(gated)
        assert [(one.step, one.ask) for one in stage.approvals()] == [("first", "Go on?")]
        assert stage.approve(run, by="ada").decision.by == "ada"
        assert not stage.reject(run, "second").repeated
        assert run.steps()["shop.pack"].child is not None
        assert run.result() == [True, False, "ada", "packed"]
        again = stage.start(gated)
        stage.cancel(again, children=False)
        assert stage.approvals() == []
