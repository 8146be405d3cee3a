"""Sleeps and waits for events: a waiting run holds no resources, and no event is lost meanwhile."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from holdfast import EventTimeout, Status, UsageError, days
from holdfast.records import moment
from tests.engine.kit import outcome, until


@pytest.mark.spec("FLOW-4")
async def test_a_sleep_of_a_month_holds_no_slot_and_ends_within_milliseconds(app, world):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.sleep(days(30))
        return "rested"

    async with app.worker(slots=1) as worker:
        run = await app.start(order)
        parked = await until(app, run, Status.WAITING)
        assert (worker.busy, parked.leased_by, parked.attempt) == (0, None, 0)
        world.leap(days(29.9))
        await asyncio.sleep(60)
        assert (await app.get(run.id)).status is Status.WAITING
        world.leap(days(0.1))
        assert await run.result(60) == "rested"


@pytest.mark.spec("FLOW-4")
@pytest.mark.parametrize("idle", [0.5, 20, 300])
async def test_a_sleep_never_ends_early_and_at_most_a_tenth_of_a_second_late(app, world, idle):
    woken = []

    @app.workflow("shop.order.v1")
    async def order(ctx):
        begun = ctx.now()
        await ctx.sleep(idle)
        woken.append((moment(world.now()) - begun).total_seconds())

    async with app.worker():
        await (await app.start(order)).result(600)
    assert idle <= woken[0] < idle + 0.1


@pytest.mark.spec("FLOW-4")
async def test_sleep_until_accepts_future_and_past_instants(app, world):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        begun = ctx.now()
        await ctx.sleep_until(begun + timedelta(minutes=2))
        between = world.now()
        await ctx.sleep_until(begun)
        return [(moment(between) - begun).total_seconds(), (moment(world.now()) - begun).total_seconds()]

    async with app.worker():
        first, second = await (await app.start(order)).result(600)
    assert 120 <= first < 120.1
    assert second - first < 0.2


@pytest.mark.spec("FLOW-4")
async def test_a_later_execution_keeps_the_first_wake_time(app):
    executions = []

    @app.workflow("shop.order.v1")
    async def order(ctx):
        executions.append(1)
        await asyncio.gather(ctx.sleep(3600), ctx.await_event("poke"))

    async with app.worker():
        run = await app.start(order)
        due_at = (await until(app, run, Status.WAITING)).waiting_on[0].due_at
        await asyncio.sleep(600)
        await app.emit("poke")
        await asyncio.sleep(5)
        again = await until(app, run, Status.WAITING)
    assert len(executions) == 2
    assert [step.due_at for step in again.waiting_on] == [due_at]


@pytest.mark.spec("FLOW-4")
async def test_a_sleep_ends_even_if_every_worker_was_down_at_its_wake_time(app):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.sleep(60)
        return "late but there"

    async with app.worker():
        run = await app.start(order)
        await until(app, run, Status.WAITING)
    await asyncio.sleep(3600)
    async with app.worker():
        assert await run.result(5) == "late but there"


@pytest.mark.spec("FLOW-5", "EVENT-3")
async def test_an_event_wakes_the_run_with_its_payload(app):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        event = await ctx.await_event("parcel.42")
        return [event.topic, event.id, event.payload, event.at.isoformat()]

    async with app.worker():
        run = await app.start(order)
        await until(app, run, Status.WAITING)
        await asyncio.sleep(100)
        assert (await app.emit("parcel.42", {"at": "door"}, id="evt-9")).woken == 1
        topic, id_, payload, at = await run.result(1)
    assert (topic, id_, payload) == ("parcel.42", "evt-9", {"at": "door"})
    assert at.startswith("2026-01-01T00:01:40")


@pytest.mark.spec("FLOW-5")
async def test_a_timeout_is_raised_recorded_and_the_same_in_a_later_execution(app):
    messages = []

    @app.workflow("shop.order.v1")
    async def order(ctx):
        try:
            await ctx.await_event("parcel", timeout=60)
        except EventTimeout as error:
            messages.append(str(error))
        await ctx.sleep(10)
        return "gave up"

    async with app.worker():
        run = await app.start(order)
        await asyncio.sleep(65)
        await app.emit("parcel", "too late")
        assert await run.result(60) == "gave up"
    assert len(messages) == 2
    assert messages[0] == messages[1]
    assert "parcel" in messages[0]


@pytest.mark.spec("FLOW-5", "RETRY-7")
async def test_a_timeout_nobody_catches_fails_the_run_with_kind_timeout_and_names_the_step(app):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.await_event("parcel", timeout=60)

    async with app.worker():
        run = await app.start(order)
        assert await outcome(app, run) == ("failed", "timeout")
    assert (await app.get(run.id)).error.step == "event:parcel"


@pytest.mark.spec("EVENT-3")
async def test_an_event_can_be_emitted_without_a_live_worker(app):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        return (await ctx.await_event("parcel")).payload

    async with app.worker():
        run = await app.start(order)
        await until(app, run, Status.WAITING)
    assert (await app.emit("parcel", 1)).woken == 1
    assert (await app.get(run.id)).status is Status.PENDING
    async with app.worker():
        assert await run.result(5) == 1


@pytest.mark.spec("EVENT-4", "MOVE-8")
async def test_an_event_emitted_between_start_and_wait_is_not_lost(app):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.step("slow", asyncio.sleep, 10)
        return (await ctx.await_event("parcel")).payload

    await app.emit("parcel", "before the start: not ours")
    async with app.worker():
        run = await app.start(order)
        await asyncio.sleep(1)
        await app.emit("parcel", "first")
        await app.emit("parcel", "second")
        assert await run.result(30) == "first"


@pytest.mark.spec("EVENT-4")
async def test_events_arrive_oldest_first_and_once_each(app):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        return [(await ctx.await_event("parcel")).payload for _ in range(3)]

    async with app.worker():
        run = await app.start(order)
        for n in range(3):
            await app.emit("parcel", n)
        assert await run.result(30) == [0, 1, 2]


@pytest.mark.spec("EVENT-4")
async def test_since_now_ignores_events_from_before_the_wait(app):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.step("slow", asyncio.sleep, 10)
        return (await ctx.await_event("parcel", since="now")).payload

    async with app.worker():
        run = await app.start(order)
        await asyncio.sleep(1)
        await app.emit("parcel", "old")
        await until(app, run, Status.WAITING)
        await app.emit("parcel", "new")
        assert await run.result(30) == "new"


@pytest.mark.spec("EVENT-5")
@pytest.mark.parametrize(("after", "wins"), [(59.9, "event"), (60.1, "deadline")])
async def test_the_time_of_storing_decides_between_an_event_and_its_deadline(app, after, wins):
    """No keeper runs meanwhile: the time of storing counts, not the time of handling."""

    @app.workflow("shop.order.v1")
    async def order(ctx):
        try:
            return (await ctx.await_event("parcel", timeout=60)).payload
        except EventTimeout:
            return "deadline"

    async with app.worker(keeper=False):
        run = await app.start(order)
        waits = await until(app, run, Status.WAITING)
        opened = waits.waiting_on[0].due_at - 60_000_000
        await asyncio.sleep(after - (await app.store.now() - opened) / 1e6)
        await app.emit("parcel", "event")
        await asyncio.sleep(10)
    async with app.worker():
        assert await run.result(10) == wins


async def test_two_runs_on_one_topic_are_both_woken(app):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        return (await ctx.await_event("news")).payload

    async with app.worker():
        runs = [await app.start(order) for _ in range(2)]
        for run in runs:
            await until(app, run, Status.WAITING)
        assert (await app.emit("news", 1)).woken == 2
        assert [await run.result(5) for run in runs] == [1, 1]


async def test_a_bad_wait_is_refused_with_a_clear_message(app):
    complaints = []

    @app.workflow("shop.order.v1")
    async def order(ctx):
        for bad in (
            lambda: ctx.sleep(-1),
            lambda: ctx.await_event(""),
            lambda: ctx.await_event("x", since="ever"),
        ):
            try:
                await bad()
            except UsageError as error:
                complaints.append(str(error))

    async with app.worker():
        await (await app.start(order)).result(5)
    assert ["is -1 s" in complaints[0], "topic" in complaints[1], "since" in complaints[2]] == [True] * 3
