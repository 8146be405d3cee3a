"""Plans whose worker dies, freezes or gets no answer at any store call: the outcome is the same."""

from __future__ import annotations

import asyncio

import pytest

import holdfast as hf
from holdfast import Approval, Backoff, Completed, Retry, Sleep, Task, Wait, Waiting
from holdfast.engine.outbox.messages import Message
from holdfast.records import ANY
from holdfast.stores.memory import MemoryStore
from holdfast.testing import explore
from holdfast.testing.faulty import Faulty, lose_reply
from tests.engine.kit import outcome, process, trail
from tests.laws.effort import longer


def make():
    """A plan with every kind of element and every kind of answer."""
    plan = hf.App(MemoryStore()).plan(
        "shop.fulfil.v1",
        [
            Task("VALIDATE"),
            Task("CHARGE", attempts=5),
            Approval("MANAGER", ask="Ship?"),
            Sleep("NAP", 20),
            Task("SHIP"),
            Wait("THANKS", "thanks", timeout=hf.days(1)),
            Task("CLOSE"),
        ],
        retry=Backoff.fixed(0.5, attempts=3),
        params=int,
    )
    tried = []

    @plan.task("VALIDATE")
    async def validate(task):
        return Completed(task.params + 1, cost=0.5)

    @plan.task("CHARGE")
    def charge(task):
        tried.append(task.idempotency_key)
        if len(tried) == 1:
            raise ValueError("once")
        return Retry(3) if len(tried) == 2 else Completed("paid", outbound=[Message("mail", "paid")])

    @plan.task("SHIP")
    async def ship(task):
        if task.reason == "event":
            return Completed(task.event.payload, outbound=[Message("mail", "shipped")])
        wanted = [Message("carrier", task.outputs["VALIDATE"], key="7")]
        return Waiting("carrier", timeout=hf.days(2), outbound=wanted)

    @plan.task("CLOSE")
    async def close(task):
        return [task.outputs[name] for name in ("VALIDATE", "CHARGE", "SHIP")] + [
            task.outputs["MANAGER"].by,
            task.outputs["THANKS"].payload,
        ]

    return plan, tried


def play(stage, run, sent):
    stage.advance(minutes=5)
    stage.do(stage.app.store.decide(run.id, approved=True, by="ada", tenant=ANY))
    stage.advance(minutes=5)
    stage.emit("carrier", {"parcel": 9}, id="carrier-1")
    stage.emit("thanks", "!", id="thanks-1")
    stage.finish(run)
    rows = stage.do(stage.app.store.outbox())
    sent.extend((one.sink, one.payload_json, one.key) for one in rows)


@pytest.mark.spec("TEST-2", "PLAN-3", "PLAN-6", "MOVE-2", "LEASE-14")
@pytest.mark.parametrize("store", ["memory", *longer("sqlite")])
def test_the_outcome_is_the_same_whatever_happens_at_any_store_call(store):
    """Tasks, a gate, a wait, a sleep, retries in place and later, a task that waits, and messages."""
    (plan, tried), sent = make(), []

    def reset():
        tried.clear()
        sent.clear()

    report = explore(
        plan,
        1,
        script=lambda stage, run: play(stage, run, sent),
        observe=lambda: sent,
        reset=reset,
        store=store,
    )
    assert report.plays > 100
    assert sent == [("mail", '"paid"', None), ("carrier", "2", "7"), ("mail", '"shipped"', None)]


@pytest.mark.spec("LEASE-6", "PLAN-6")
@pytest.mark.parametrize("at", range(0, 12, 2))
async def test_a_worker_killed_at_any_second_is_replaced_and_no_step_that_succeeded_runs_again(app, at):
    done, again = [], []
    plan = app.plan("shop.fulfil.v1", [Task("A"), Task("B"), Sleep("NAP", 1), Task("C")])

    async def work(task):
        await asyncio.sleep(3)
        again.extend([task.name] if task.name in done else [])
        steps = {step.key: step for step in await app.steps(task.run_id)}
        done.extend(key for key, step in steps.items() if step.status == "succeeded" and key not in done)
        return task.name

    for name in "ABC":
        plan.task(name)(work)
    await app.publish()
    run = await app.start(plan)
    doomed = await process(app, 1, lease=6)
    await asyncio.sleep(at + 0.5)
    doomed.kill()
    heir = await process(app, 2, lease=6)
    assert await run.result(200) == "C"
    assert again == []
    assert (await trail(app, run)).count("step_succeeded") == 3
    heir.kill()


@pytest.mark.spec("LEASE-14", "PLAN-6", "PLAN-13")
@pytest.mark.parametrize("at", range(1, 6))
async def test_a_reply_that_is_lost_is_asked_for_again_and_nothing_is_executed_twice(app, at):
    """The same holds for a wait that was settled in the commit that opened it."""
    seen = []
    plan = app.plan("shop.fulfil.v1", [Task("A"), Wait("W", "w"), Task("B"), Task("C")])

    async def work(task):
        seen.append((task.name, task.reason, None if task.event is None else task.event.payload))
        if task.name == "A" and task.event is None:
            return Waiting("a")
        return task.outputs["W"].payload if task.name == "C" else None

    for name in "ABC":
        plan.task(name)(work)
    await app.publish()
    run = await app.start(plan)
    for topic in "aw":
        await app.emit(topic, topic, run=run.id)
    store = app.store = Faulty(app.store)
    store.plan("commit", at, lose_reply)
    async with app.worker():
        assert await run.result(60) == "w"
    assert seen == [("A", "start", None), ("A", "event", "a"), ("B", "start", None), ("C", "start", None)]
    assert (await trail(app, run)).count("leased") == 1


@pytest.mark.spec("LEASE-6", "RETRY-7")
async def test_a_plan_whose_workers_always_die_fails_at_the_crash_cap(app):
    begun = []
    plan = app.plan("shop.fulfil.v1", [Task("A"), Task("B")], retry=Backoff.fixed(1, attempts=2))

    @plan.task("A")
    async def work(task):
        begun.append((task.attempt, task.reason))
        await asyncio.sleep(10**6)

    plan.task("B")(work)
    await app.publish()
    run = await app.start(plan)
    for seed in range(1, 5):
        doomed = await process(app, seed, lease=6)
        while len(begun) < seed:  # noqa: ASYNC110
            await asyncio.sleep(0.5)
        doomed.kill()
    async with app.worker():
        assert await outcome(app, run, 60) == ("failed", "lease_expired")
    assert begun == [(1, "start"), (2, "retry"), (3, "retry"), (4, "retry")]
    assert [str(step.status) for step in await app.steps(run.id)] == ["failed", "pending"]


@pytest.mark.spec("RETRY-1")
async def test_crashes_use_up_no_attempt_of_a_task(app):
    tried = []
    plan = app.plan("shop.fulfil.v1", [Task("A")], retry=Backoff.fixed(1, attempts=2))

    @plan.task("A")
    async def work(task):
        tried.append(task.attempt)
        if len(tried) == 1:
            await asyncio.sleep(10**6)
        raise ValueError("no")

    await app.publish()
    run = await app.start(plan)
    doomed = await process(app, 1, lease=6)
    await asyncio.sleep(1)
    doomed.kill()
    async with app.worker():
        assert await outcome(app, run, 600) == ("failed", "exhausted")
    assert tried == [1, 2, 3]
