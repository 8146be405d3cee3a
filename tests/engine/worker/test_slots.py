"""Slots: the number of runs that a worker executes at once, and the moment when a slot is free again."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import Status, Task
from holdfast.engine.commit.journal import Journal
from holdfast.records import Answer, Verdict
from holdfast.testing.faulty import Faulty, delay_reply


@pytest.mark.spec("LEASE-21", "LEASE-16")
@pytest.mark.parametrize("kind", ["code", "steps", "plan"])
async def test_a_worker_never_executes_more_runs_at_once_than_its_slots(app, kind):
    """The store may count one more run while the last commit of another is in flight: its code has ended."""
    store = app.store = Faulty(app.store)
    store.always("commit", delay_reply(0.05))
    now, most = set(), 0

    async def work(run):
        nonlocal most
        now.add(run)
        most = max(most, len(now))
        await asyncio.sleep(0.01)
        now.discard(run)

    @app.workflow("shop.order.v1")
    async def order(ctx):
        await (ctx.step("a", work, ctx.run_id) if kind == "steps" else work(ctx.run_id))

    if kind == "plan":
        order = app.plan("shop.fulfil.v1", [Task("a"), Task("b")])
        for name in ("a", "b"):
            order.task(name)(lambda task: work(task.run_id))
    await app.publish()
    runs = [await app.start(order) for _ in range(40)]
    async with app.worker(slots=3):
        for run in runs:
            await run.result(100)
    assert most == 3


@pytest.mark.spec("LEASE-21")
async def test_a_slot_is_free_again_if_the_end_of_its_run_could_not_be_sent(app, monkeypatch):
    """An earlier item was refused, so no commit of the end is sent or waited for."""

    @app.workflow("shop.order.v1")
    async def order(ctx):
        return "done"

    async def unsent(*_args, **_fields):
        return Verdict(answer=Answer.LOST, status=Status.PENDING)

    monkeypatch.setattr(Journal, "outcome", unsent)

    async with app.worker(slots=1, lease=3) as worker:
        await app.start(order)
        await asyncio.sleep(1)
        assert (worker.busy, worker.free) == (0, 1)
