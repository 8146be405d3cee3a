"""Plans with sealed values: handlers see opened values, and a run that cannot be opened is released
unchanged."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import Status, Task, Wait, Waiting
from holdfast.sealing import Encrypt
from tests.engine.kit import until
from tests.sealing.conftest import NEW, OLD


def define(app, seen=None):
    plan = app.plan("shop.fulfil.v1", [Task("A"), Wait("PAID", "paid"), Task("SHIP")])

    async def work(task):
        if seen is not None:
            seen.append((task.name, task.reason))
        if task.name == "A":
            return task.params
        if task.event is None:
            return Waiting("carrier")
        return [task.outputs["A"], task.outputs["PAID"].payload, task.event.payload]

    for name in ("A", "SHIP"):
        plan.task(name)(work)
    return app


@pytest.mark.spec("OPS-5")
@pytest.mark.parametrize("early", [True, False])
async def test_handlers_see_what_was_sealed(app, early):
    """Events that are there already come with the answer to a commit, others with the claim."""
    define(app)
    await app.publish()
    run = await app.start("shop.fulfil.v1", "secret")
    for topic in ("paid", "carrier") if early else ():
        await app.emit(topic, f"{topic} secret", run=run.id)
    async with app.worker():
        for topic in () if early else ("paid", "carrier"):
            await until(app, run, Status.WAITING)
            await app.emit(topic, f"{topic} secret", run=run.id)
        assert await run.result(60) == ["secret", "paid secret", "carrier secret"]


@pytest.mark.spec("OPS-5", "PLAN-6")
@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("topic", ["paid", "carrier"])
async def test_an_event_that_cannot_be_opened_here_sends_the_run_back(opened, topic, early):
    """For an output and for the reason of a call. A worker with both keys goes on with the run."""
    ours, theirs = opened(Encrypt({"new": NEW})), opened(Encrypt({"old": OLD}))
    both, seen = opened(Encrypt({"new": NEW, "old": OLD}, newest="new")), []
    for app in (ours, both):
        define(app, seen)
    await ours.publish()
    run = await ours.start("shop.fulfil.v1", "p")
    other = "paid" if topic == "carrier" else "carrier"
    await ours.emit(other, other, run=run.id)
    if early:
        await theirs.emit(topic, topic, run=run.id)
    async with ours.worker() as worker:
        if not early:
            await until(ours, run, Status.WAITING)
            await theirs.emit(topic, topic, run=run.id)
        await asyncio.sleep(100)
        assert worker.busy == 0
        found = await ours.get(run.id)
        assert (found.status, found.attempt, found.crashes) == (Status.PENDING, 0, 0)
        assert found.last_error.startswith("sealed: ")
    async with both.worker():
        assert await both.result(run.id, 120) == ["p", "paid", "carrier"]
    assert seen.count(("A", "start")) == 1
    assert seen[-1] == ("SHIP", "event")
