"""Metrics of a process: lives of runs in virtual time, and what the recorder says of them."""

from __future__ import annotations

import asyncio

import pytest

import holdfast as hf
from holdfast.engine.measures import Several, guarded
from holdfast.telemetry import measure
from holdfast.telemetry.recorder import Recorder
from holdfast.testing.faulty import Faulty, break_down, fail_before
from tests.engine.kit import outcome, process, until
from tests.engine.measures.scraped import values
from tests.engine.plans.plan_helpers import Calls, ship
from tests.engine.schedules.schedule_helpers import passes, report

TYPE = "shop.order.v1"


@pytest.fixture
def recorder(app):
    made = Recorder()
    measure(app, made)
    return made


@pytest.mark.spec("OPS-2")
async def test_claims_are_measured_from_the_time_that_the_run_was_due(app, recorder):
    @app.workflow(TYPE)
    async def order(ctx):
        return 1

    run = await app.start(order, delay=10)
    await asyncio.sleep(40)
    async with app.worker():
        await run.result(100)
    found = values(recorder)
    assert found["claim_latency_seconds_count", TYPE] == 1
    assert found["claim_latency_seconds_sum", TYPE] == pytest.approx(30, abs=0.1)
    assert found["executions_total", TYPE, "succeeded"] == 1


@pytest.mark.spec("OPS-2")
async def test_steps_are_measured_by_their_outcome_and_retries_are_counted(app, recorder):
    tries = []

    @app.workflow(TYPE, retry=hf.Backoff.fixed(1, attempts=3))
    async def order(ctx, good: bool):
        async def work():
            tries.append(1)
            await asyncio.sleep(2)
            if not good or len(tries) == 1:
                raise ValueError("no")

        await ctx.step("work", work)

    async with app.worker():
        assert (await outcome(app, await app.start(order, True)))[0] == "succeeded"
        assert (await outcome(app, await app.start(order, False)))[0] == "failed"
    found = values(recorder)
    seconds = "step_duration_seconds_sum"
    assert found[seconds, TYPE, "succeeded"] == pytest.approx(2, abs=0.1)
    assert found[seconds, TYPE, "retried"] == pytest.approx(6, abs=0.1)
    assert found[seconds, TYPE, "failed"] == pytest.approx(2, abs=0.1)
    assert found["step_retries_total", TYPE] == 3
    assert found["executions_total", TYPE, "failed"] == 1


@pytest.mark.spec("OPS-2")
async def test_a_step_that_is_cancelled_counts_as_cancelled(app, recorder):
    @app.workflow(TYPE)
    async def order(ctx):
        await ctx.step("long", asyncio.sleep, 1000)

    async with app.worker():
        run = await app.start(order)
        await asyncio.sleep(5)
        await app.cancel(run.id)
        await until(app, run)
        await asyncio.sleep(5)
    found = values(recorder)
    assert found["step_duration_seconds_count", TYPE, "cancelled"] == 1
    assert found["executions_total", TYPE, "cancelled"] == 1


@pytest.mark.spec("OPS-2")
async def test_resumes_are_measured_from_the_time_that_the_wait_was_due_or_settled(app, recorder):
    """No worker is there when the timer and the event come: both runs go on 20 s late. A replay counts no
    wait twice."""

    @app.workflow("shop.nap.v1")
    async def nap(ctx):
        await ctx.sleep(100)
        await ctx.step("after", asyncio.sleep, 1)
        await ctx.sleep(1)

    @app.workflow("shop.wait.v1")
    async def wait(ctx):
        await ctx.await_event("parcel")

    async with app.worker():
        runs = [await app.start(nap), await app.start(wait)]
        await until(app, runs[0], hf.Status.WAITING)
        await until(app, runs[1], hf.Status.WAITING)
    await asyncio.sleep(80)
    await app.emit("parcel", 1)
    app.world.leap(20 + 20)
    async with app.worker():
        for run in runs:
            await run.result(1000)
    found = values(recorder)
    assert found["resume_latency_seconds_count", "shop.nap.v1"] == 2
    assert found["resume_latency_seconds_sum", "shop.nap.v1"] == pytest.approx(20, abs=2.5)
    assert found["resume_latency_seconds_count", "shop.wait.v1"] == 1
    assert found["resume_latency_seconds_sum", "shop.wait.v1"] == pytest.approx(40, abs=2.5)
    assert found["executions_total", "shop.nap.v1", "parked"] == 2


@pytest.mark.spec("OPS-2")
async def test_a_run_that_is_given_back_counts_as_returned_and_its_old_wait_not_again(app, recorder):
    @app.workflow(TYPE)
    async def order(ctx):
        await ctx.sleep(1)
        await ctx.step("long", asyncio.sleep, 30)

    run = await app.start(order)
    for _ in range(2):
        async with app.worker(grace=0):
            await asyncio.sleep(10)
    async with app.worker():
        await run.result(1000)
    found = values(recorder)
    assert found["executions_total", TYPE, "returned"] == 2
    assert found["resume_latency_seconds_count", TYPE] == 1


@pytest.mark.spec("OPS-2")
async def test_tasks_of_plans_are_measured_like_steps(app, recorder):
    """A task that fails once, waits for an event, and ends; then a sleep between two tasks."""
    handler = Calls(ValueError("no"), hf.Waiting("parcel"), "done")
    plan = ship(app, handler)
    rests = app.plan("shop.rest.v1", [hf.Task("A"), hf.Sleep("NAP", 50), hf.Task("B")])
    for name in "AB":
        rests.task(name)(lambda task: task.name)
    async with app.worker():
        run, rest = await app.start(plan), await app.start(rests)
        await until(app, run, hf.Status.WAITING)
        await app.emit("parcel", 1)
        await outcome(app, run)
        await outcome(app, rest)
    found, type_ = values(recorder), plan.type
    assert found["step_duration_seconds_count", type_, "retried"] == 1
    assert found["step_duration_seconds_count", type_, "succeeded"] == 2
    assert found["step_retries_total", type_] == 1
    assert found["resume_latency_seconds_count", type_] == 1
    assert found["resume_latency_seconds_count", "shop.rest.v1"] == 1
    assert found["resume_latency_seconds_sum", "shop.rest.v1"] < 3


@pytest.mark.spec("OPS-2")
async def test_a_lost_lease_is_counted_by_the_worker_that_lost_it(app, recorder):
    @app.workflow(TYPE)
    async def order(ctx):
        await ctx.step("long", asyncio.sleep, 4)

    run = await app.start(order)
    first = await process(app, 1, lease=6.0)
    await asyncio.sleep(1)
    first.stop()
    second = await process(app, 2, lease=6.0)
    await app.final(run.id, 100)
    first.go_on()
    await asyncio.sleep(20)
    second.kill()
    first.kill()
    found = values(recorder)
    assert found["leases_lost_total", TYPE] == 1
    assert (found["executions_total", TYPE, "lost"], found["executions_total", TYPE, "succeeded"]) == (1, 1)


@pytest.mark.spec("OPS-2")
async def test_slots_are_read_from_the_workers_that_work_now(app, recorder):
    @app.workflow(TYPE)
    async def order(ctx):
        await ctx.step("long", asyncio.sleep, 10)

    def slots():
        return tuple(values(recorder)[name,] for name in ("worker_slots", "worker_slots_busy"))

    await app.start_many([(order, None)] * 3)
    async with app.worker(slots=2), app.worker(slots=5):
        await asyncio.sleep(1)
        assert slots() == (7, 3)
        assert values(recorder)["worker_stragglers",] == 0
    assert slots() == (0, 0)


@pytest.mark.spec("OPS-2")
async def test_messages_are_counted_by_sink(app, recorder):
    answers = [ValueError("no"), None]

    @app.sink("mail")
    async def mail(delivery):
        answer = answers.pop(0)
        if answer is not None:
            raise answer

    @app.workflow(TYPE)
    async def order(ctx):
        ctx.send("mail", 1)

    async with app.worker():
        await (await app.start(order)).result(100)
        await asyncio.sleep(30)
    found = values(recorder)
    assert (found["messages_failed_total", "mail"], found["messages_sent_total", "mail"]) == (1, 1)


@pytest.mark.spec("OPS-2")
async def test_schedules_are_counted_with_their_lateness(app, recorder):
    await app.publish()
    made = report(app)
    await app.publish()
    await app.schedule("hourly", made, every=3600)
    app.world.leap(3600 + 50)
    async with app.worker():
        await asyncio.sleep(5)
        await passes(app, 3600)
    found = values(recorder)
    assert found["schedules_fired_total",] == found["schedule_lateness_seconds_count",] == 2
    assert 49 < found["schedule_lateness_seconds_sum",] < 60


@pytest.mark.spec("OPS-2")
async def test_calls_of_the_store_are_measured_and_errors_counted(app, recorder):
    """An error of the engine, which is no error of the store, counts as one."""

    @app.workflow(TYPE)
    async def order(ctx):
        await ctx.step("a", lambda: 1)

    app.store = faulty = Faulty(app.store.inner)
    faulty.plan("claim", 1, fail_before)
    faulty.plan("claim", 2, break_down)
    async with app.worker():
        await (await app.start(order)).result(100)
    found = values(recorder)
    assert found["store_errors_total", "claim", "Unavailable"] == 1
    assert found["store_errors_total", "claim", "ValueError"] == 1
    assert found["engine_errors_total",] == 1
    assert found["store_call_seconds_count", "commit"] >= 1
    assert found["store_call_seconds_count", "claim"] == faulty.calls["claim"]
    verbs = {labels[0] for name, *labels in found if name == "store_call_seconds_count"}
    assert not verbs & {"hears", "listen", "open"}, "these ask the store nothing"


async def test_an_app_that_is_measured_twice_counts_once_and_at_other_stores_too(app, recorder):
    measure(app, recorder)
    other = app.at(app.store)

    @app.workflow(TYPE)
    async def order(ctx):
        return 1

    async with other.worker():
        await (await app.start(order)).result(100)
    found = values(recorder)
    assert found["executions_total", TYPE, "succeeded"] == 1
    assert found["store_call_seconds_count", "start"] == 1


def test_labels_are_bounded(monkeypatch):
    """The 501st type, sink and class of error is `other`."""
    recorder = Recorder()
    for n in range(600):
        recorder.executed(f"t{n}", "succeeded")
        recorder.tried(f"t{n}", "retried", 1)
        recorder.relayed(f"s{n}", sent=True)
        recorder.refused("claim", f"E{n}")
    found = values(recorder)
    assert found["executions_total", "other", "succeeded"] == 100
    assert found["step_retries_total", "other"] == 100
    assert found["messages_sent_total", "other"] == 100
    assert found["store_errors_total", "claim", "other"] == 100
    assert sum(name == "executions_total" for name, *_ in found) == 501


def test_a_time_before_its_due_time_is_in_time():
    """Clocks of two machines differ: no histogram gets a negative sum."""
    recorder = Recorder()
    recorder.claimed("a", -5.0)
    assert values(recorder)["claim_latency_seconds_sum", "a"] == 0


@pytest.mark.spec("OPS-2")
async def test_measures_that_raise_harm_no_run(app, caplog):
    """Neither a start that is recorded, nor a claim, nor a commit. Each failing method is logged once."""

    class Broken(Recorder):
        def __getattribute__(self, name):
            if not name.startswith("_") and callable(getattr(type(self), name, None)):
                raise ValueError("the exporter is broken")
            return super().__getattribute__(name)

    measure(app, Broken())

    @app.workflow(TYPE)
    async def order(ctx):
        await ctx.sleep(5)
        return await ctx.step("one", lambda: 1)

    runs = [await app.start(order) for _ in range(3)]
    async with app.worker():
        assert [await run.result(100) for run in runs] == [1, 1, 1]
    said = [one.getMessage() for one in caplog.records if one.name == "holdfast.metrics"]
    assert "metrics: claimed fails, its measurements are dropped" in said
    assert len(said) == len(set(said))


@pytest.mark.spec("OPS-2")
def test_only_measures_that_raise_get_a_guard_and_the_others_count_on(caplog):
    class Broken(Recorder):
        def claimed(self, type_, late_seconds):
            raise ValueError("the exporter is broken")

    good = Recorder()
    assert guarded(good) is good
    both = guarded(Several((Broken(), good)))
    both.claimed(TYPE, 1.0)
    both.claimed(TYPE, 1.0)
    assert values(good)["claim_latency_seconds_count", TYPE] == 2
    assert "claimed fails" in caplog.text
