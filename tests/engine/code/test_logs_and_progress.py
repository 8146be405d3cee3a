"""Output of a run: trail, heartbeats, logs, costs, progress and its own events."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from holdfast import Backoff, EventTimeout, Status, UsageError
from tests.engine.kit import keys, outcome, process, trail, until


async def logged(app, run):
    return [entry.data["message"] for entry in await app.trail(run.id) if entry.type == "log"]


@pytest.mark.spec("TRAIL-1")
async def test_each_execution_has_one_started_entry_with_the_time_of_its_beginning(app, world):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        await asyncio.sleep(25)
        await ctx.step("a", lambda: 1)
        await ctx.step("b", lambda: 1)

    async with app.worker():
        await asyncio.sleep(1)
        begun = world.now()
        run = await app.start(order)
        await run.result(60)
    started = [entry for entry in await app.trail(run.id) if entry.type == "started"]
    assert len(started) == 1
    assert started[0].data["at"] == pytest.approx(begun, abs=100_000)
    assert (await app.get(run.id)).started_at is not None


@pytest.mark.spec("TRAIL-1")
async def test_started_is_written_by_renewal_when_nothing_is_committed_for_long(app):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        await asyncio.sleep(100)

    async with app.worker(lease=30):
        run = await app.start(order)
        await asyncio.sleep(11)
        assert await trail(app, run) == ["created", "leased", "started"]
        await run.result(200)
    assert (await trail(app, run)).count("started") == 1


@pytest.mark.spec("TRAIL-2")
async def test_long_steps_write_at_most_one_heartbeat_a_minute(app):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.step("long", asyncio.sleep, 650)

    async with app.worker(lease=30):
        run = await app.start(order)
        await run.result(1000)
    beats = [entry.at for entry in await app.trail(run.id) if entry.type == "heartbeat"]
    assert 9 <= len(beats) <= 10
    assert all((later - earlier).total_seconds() >= 60 for earlier, later in pairwise(beats))


@pytest.mark.spec("TRAIL-2")
async def test_short_runs_write_no_heartbeat(app):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.step("nap", asyncio.sleep, 50)

    async with app.worker():
        run = await app.start(order)
        await run.result(100)
    assert "heartbeat" not in await trail(app, run)


@pytest.mark.spec("TRAIL-4")
async def test_a_log_is_written_once_however_often_the_code_is_executed(app):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        ctx.log("begun", level="debug", n=1, message_id="m")
        await ctx.sleep(5)
        ctx.log("between")
        await ctx.sleep(5)
        ctx.log("over")

    async with app.worker():
        run = await app.start(order)
        await run.result(60)
    assert await logged(app, run) == ["begun", "between", "over"]
    first = next(entry.data for entry in await app.trail(run.id) if entry.type == "log")
    assert (first["level"], first["n"], first["message_id"]) == ("debug", 1, "m")


@pytest.mark.spec("TRAIL-4")
async def test_logs_of_steps_do_not_hide_later_logs_of_the_body(app):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        ctx.log("begun")
        await ctx.step("noisy", lambda: [ctx.log(f"step {n}") for n in range(3)] and None)
        await ctx.sleep(5)
        ctx.log("over")

    async with app.worker():
        run = await app.start(order)
        await run.result(60)
    assert await logged(app, run) == ["begun", "step 0", "step 1", "step 2", "over"]


@pytest.mark.spec("TRAIL-4")
async def test_logs_before_a_retry_in_place_and_a_takeover_are_not_repeated(app):
    tries = []

    @app.workflow("shop.order.v1", retry=Backoff.fixed(0.5))
    async def order(ctx):
        ctx.log("begun")
        tries.append(1)
        if len(tries) == 1:
            raise ValueError("again")
        await ctx.step("a", lambda: 1)
        if len(tries) == 2:
            await asyncio.sleep(1000)
        ctx.log("over")

    run = await app.start(order)
    doomed = await process(app, 1)
    await asyncio.sleep(5)
    doomed.kill()
    async with app.worker():
        await run.result(100)
    assert await logged(app, run) == ["begun", "over"]


@pytest.mark.spec("TRAIL-4", "START-9")
async def test_a_log_that_cannot_be_recorded_is_refused_where_it_is_written(app):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        ctx.log("bad", value=object())

    async with app.worker():
        run = await app.start(order)
        assert await outcome(app, run) == ("failed", "encoding")


@pytest.mark.spec("COST-1")
async def test_the_cost_of_a_run_is_the_sum_over_its_steps_and_a_second_execution_adds_nothing(app):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        def ask(cost):
            ctx.cost(cost)
            ctx.cost(0.05)

        await ctx.step("a", ask, 0.1)
        await ctx.sleep(5)
        await ctx.step("b", ask, 0.2)

    async with app.worker():
        run = await app.start(order)
        await run.result(60)
    assert (await app.get(run.id)).cost == pytest.approx(0.4)
    assert [step.cost for step in await app.steps(run.id)] == [150_000, 0, 250_000]


@pytest.mark.spec("COST-1")
async def test_failed_tries_cost_too(app):
    tries = []

    @app.workflow("shop.order.v1")
    async def order(ctx):
        def ask():
            ctx.cost(1)
            tries.append(1)
            if len(tries) < 3:
                raise ValueError("paid for nothing")

        await ctx.step("a", ask, retry=Backoff.of([0.5, 30]))

    async with app.worker():
        run = await app.start(order)
        await run.result(60)
    assert (await app.get(run.id)).cost == 3


@pytest.mark.spec("COST-1")
async def test_a_cost_outside_a_step_is_refused(app):
    refused = []

    @app.workflow("shop.order.v1")
    async def order(ctx):
        try:
            ctx.cost(1)
        except UsageError as error:
            refused.append(str(error))

    async with app.worker():
        await (await app.start(order)).result(10)
    assert "inside a step" in refused[0]


@pytest.mark.spec("FLOW-23")
async def test_progress_is_shown_with_the_next_renewal_or_commit(app):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        ctx.progress(1, total=10, note="first")
        await ctx.step("a", lambda: 1)
        await asyncio.sleep(5)
        ctx.progress(2)
        await asyncio.sleep(30)

    async with app.worker(lease=30):
        run = await app.start(order)
        await asyncio.sleep(1)
        assert (await app.get(run.id)).progress == {"done": 1, "total": 10, "note": "first"}
        await asyncio.sleep(15)
        assert (await app.get(run.id)).progress["done"] == 2


@pytest.mark.spec("FLOW-23")
async def test_progress_is_written_at_most_once_a_second(app):
    from holdfast.testing.faulty import Faulty

    store = app.store = Faulty(app.store)
    written = []
    inner = store.inner.commit

    async def commit(batch):
        written.extend(item.progress for item in batch if item.progress)
        return await inner(batch)

    store.inner.commit = commit

    @app.workflow("shop.order.v1")
    async def order(ctx):
        for n in range(50):
            ctx.progress(n)
            await ctx.step("nap", asyncio.sleep, 0.1)

    async with app.worker():
        run = await app.start(order)
        await run.result(60)
    assert 4 <= len(written) <= 7


@pytest.mark.spec("FLOW-18")
async def test_an_event_of_a_step_is_sent_once_with_its_commit(app):
    tries = []

    @app.workflow("shop.order.v1")
    async def order(ctx):
        def ship():
            ctx.emit("shipped", len(tries))
            tries.append(1)
            if len(tries) == 1:
                raise ValueError("this try does not count")

        await ctx.step("ship", ship)
        await ctx.sleep(5)

    @app.workflow("shop.watch.v1")
    async def watch(ctx):
        first = await ctx.await_event("shipped")
        try:
            await ctx.await_event("shipped", timeout=60)
        except EventTimeout:
            return first.payload
        return "twice"

    async with app.worker():
        watcher, run = await app.start(watch), await app.start(order)
        await run.result(60)
        assert await watcher.result(100) == 1


@pytest.mark.spec("FLOW-18")
async def test_an_event_of_the_body_is_sent_once_however_often_it_is_executed(app):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        ctx.emit("a", 1)
        ctx.emit("a", 2)
        await ctx.sleep(5)
        ctx.emit("b", 3)

    @app.workflow("shop.watch.v1")
    async def watch(ctx):
        seen = [(await ctx.await_event(topic)).payload for topic in ("a", "a", "b")]
        try:
            seen.append((await ctx.await_event("a", timeout=60)).payload)
        except EventTimeout:
            return seen

    async with app.worker():
        watcher, run = await app.start(watch), await app.start(order)
        await run.result(60)
        assert await watcher.result(100) == [1, 2, 3]
    assert await keys(app, run) == ["emit:a", "emit:a#2", "sleep", "emit:b"]


@pytest.mark.spec("FLOW-18", "EVENT-3")
async def test_an_event_of_a_run_wakes_others_at_once(app, world):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        ctx.emit("go")

    @app.workflow("shop.watch.v1")
    async def watch(ctx):
        await ctx.await_event("go")
        return world.monotonic()

    async with app.worker():
        watcher = await app.start(watch)
        await until(app, watcher, Status.WAITING)
        await asyncio.sleep(10)
        begun = world.monotonic()
        await app.start(order)
        assert await watcher.result(10) - begun < 0.2


@pytest.mark.spec("ROUTE-1", "ROUTE-2", "LEASE-12")
async def test_a_worker_takes_only_runs_that_match_its_patterns(app):
    async def nothing(ctx):
        return None

    types = ["billing.a.v1", "billing.b.v1", "content.x.v1", "Billing.a.v1", "bill_ng.a.v1", "other.x.v1"]
    for type_ in types:
        app.workflow(type_)(nothing)
    runs = {type_: await app.start(type_) for type_ in types}
    async with app.worker(patterns=["billing.%", "content.%"]):
        await asyncio.sleep(30)
    taken = {type_ for type_, run in runs.items() if (await app.get(run.id)).status is Status.SUCCEEDED}
    assert taken == {"billing.a.v1", "billing.b.v1", "content.x.v1"}
    async with app.worker(patterns=["bill_ng.%", "other.x.v1"]):
        await asyncio.sleep(30)
    assert (await app.get(runs["Billing.a.v1"].id)).attempt == 0
    assert (await app.get(runs["other.x.v1"].id)).status is Status.SUCCEEDED


@pytest.mark.spec("LEASE-12", "EXPL-1")
async def test_a_run_that_no_worker_can_take_is_visible_and_uses_no_attempts(app):
    async def nothing(ctx):
        return None

    app.workflow("shop.known.v1")(nothing)
    run = await app.start("shop.unknown.v1")
    async with app.worker():
        await asyncio.sleep(120)
        why = await app.explain(run.id)
        assert why.reason == "no_worker"
        assert "shop.known.v1" in why.text
        assert (await app.store.stats()).unclaimable == {"shop.unknown.v1": 1}
    found = await app.get(run.id)
    assert (found.status, found.attempt, found.crashes) == (Status.PENDING, 0, 0)


@pytest.mark.spec("OPS-1")
async def test_several_ticks_at_once_wake_a_run_once(app):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.sleep(30)
        return "done"

    async with app.worker(keeper=False):
        run = await app.start(order)
        await asyncio.sleep(100)
        assert (await app.get(run.id)).status is Status.WAITING
        await asyncio.gather(*[app.store.tick() for _ in range(5)])
        assert await run.result(5) == "done"
    assert (await trail(app, run)).count("woken") == 1


@pytest.mark.spec("OPS-1")
async def test_many_workers_with_keepers_do_each_chore_once(app):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.sleep(30)
        return (await ctx.await_event("go", timeout=30)).payload

    processes = [await process(app, seed) for seed in range(1, 6)]
    runs = [await app.start(order) for _ in range(10)]
    await asyncio.sleep(45)
    await app.emit("go", 1)
    for run in runs:
        assert await run.result(60) == 1
        assert (await trail(app, run)).count("woken") == 2
    for one in processes:
        one.kill()
