"""Chains: runs that continue as another run again and again look like one run from outside."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import Fatal, IllegalMove, RunCancelled, RunFailed, Status, UnknownRun
from holdfast.cli import follow
from holdfast.engine.app.handle import CONTINUED
from holdfast.records import Ask, Item
from holdfast.records.moves import Complete
from tests.engine.children.explored_chain import explore_chain
from tests.engine.kit import until
from tests.laws.effort import longer


def listening(app, count=3, **options):
    """A workflow that takes one event in each run, and returns all of them after so many runs."""

    @app.workflow("shop.listen.v1", **options)
    async def listen(ctx, got: list[int]) -> list[int]:
        event = await ctx.await_event("tick")
        got = [*got, event.payload]
        if len(got) < count:
            ctx.continue_as(got)
        return got

    return listen


@pytest.mark.spec("FLOW-24", "EVENT-4")
async def test_a_chain_gets_the_events_that_arrived_while_an_earlier_run_waited(app):
    """While a run waits, three events come. All arrive in order, and the first handle has the result."""
    listen = listening(app)
    async with app.worker():
        run = await app.start(listen, [])
        await until(app, run, Status.WAITING)
        for n in (1, 2, 3):
            await app.emit("tick", n)
        assert await run.result(60) == [1, 2, 3]
        last = await app.final(run.id)
        assert (last.chain, last.present) == (run.id, last.id)
        assert (await run.get()).result_json.startswith(CONTINUED)


@pytest.mark.spec("FLOW-24")
async def test_the_result_by_any_id_is_the_result_of_the_last_run(app):
    listen = listening(app)
    async with app.worker():
        run = await app.start(listen, [], key="k")
        waiting = asyncio.create_task(run.result(60))
        for n in (1, 2, 3):
            await app.emit("tick", n)
        assert await waiting == [1, 2, 3]
        for one in await app.list():
            assert await app.result(one.id, 1) == [1, 2, 3]
        again = await app.start(listen, [], key="k")
    assert (again.id, again.created) == (run.id, False)


@pytest.mark.spec("FLOW-24", "CANC-1")
async def test_a_chain_can_be_cancelled_by_its_first_id(app):
    listen = listening(app)
    async with app.worker():
        run = await app.start(listen, [])
        await app.emit("tick", 1)
        await until_present(app, run, 2)
        assert (await run.cancel()).id != run.id
        with pytest.raises(RunCancelled):
            await run.result(60)
        with pytest.raises(IllegalMove):
            await app.emit("tick", run=run.id)


@pytest.mark.spec("FLOW-24")
async def test_the_first_id_shows_the_error_of_the_last_run(app):
    @app.workflow("shop.loop.v1")
    async def loop(ctx, n: int):
        if n:
            ctx.continue_as(n - 1)
        raise Fatal("the end")

    async with app.worker():
        run = await app.start(loop, 2)
        with pytest.raises(RunFailed, match="the end") as failure:
            await run.result(60)
        assert (await app.get(failure.value.run_id)).chain == run.id


@pytest.mark.spec("FLOW-24", "PAUSE-1")
async def test_a_pause_request_passes_to_the_next_run_of_a_chain(app):
    @app.workflow("shop.loop.v1")
    async def loop(ctx, n: int):
        if n:
            await app.pause(ctx.run_id, by="ann")
            ctx.continue_as(n - 1)
        return "end"

    async with app.worker():
        run = await app.start(loop, 1)
        await asyncio.sleep(10)
        paused = await app.present(run.id)
        assert (paused.id != run.id, paused.status) == (True, Status.PAUSED)
        assert "paused" in (await app.explain(run.id)).reason
        assert (await app.resume(run.id)).id == paused.id
        assert await run.result(60) == "end"


@pytest.mark.spec("FLOW-24")
async def test_budget_cost_labels_and_limit_key_pass_to_the_next_run(app):
    @app.workflow("shop.loop.v1")
    async def loop(ctx, n: int):
        def work():
            ctx.cost(2)

        await ctx.step("work", work)
        if n:
            ctx.continue_as(n - 1)

    async with app.worker():
        run = await app.start(loop, 9, budget=5, labels={"team": "a"}, limit_key="k")
        await asyncio.sleep(10)
        present = await app.present(run.id)
    assert (present.status, present.cost, present.budget) == (Status.PAUSED, 6, 5)
    assert (present.labels["team"], present.limit_key) == ("a", "k")


@pytest.mark.spec("FLOW-24")
async def test_approve_and_explain_by_the_first_id_act_on_the_current_run(app):
    @app.workflow("shop.loop.v1")
    async def loop(ctx, n: int) -> bool:
        if n:
            ctx.continue_as(n - 1)
        return (await ctx.approval("ship", ask="Ship it?")).approved

    async with app.worker():
        run = await app.start(loop, 2)
        await until_present(app, run, 3)
        await until(app, await app.present(run.id), Status.WAITING)
        assert (await app.explain(run.id)).reason == "waiting"
        decided = await run.approve("ship", by="ann")
        assert decided.run.chain == run.id
        assert await run.result(60) is True


@pytest.mark.spec("FLOW-24")
async def test_a_caller_waiting_by_the_first_id_sees_the_status_of_the_current_run(app):
    """The status line of `holdfast result`, although the first run succeeded long ago."""

    @app.workflow("shop.loop.v1")
    async def loop(ctx, n: int) -> None:
        if n:
            ctx.continue_as(n - 1)
        await ctx.await_event("never")

    async with app.worker():
        run = await app.start(loop, 1)
        await until_present(app, run, 2)
        await until(app, await app.present(run.id), Status.WAITING)
        assert "never" in await follow._position(app, run.id)


@pytest.mark.spec("FLOW-24")
async def test_the_result_of_a_run_continued_by_an_old_version_names_the_next_run(app):
    """Only the result of such a run links it to the next run, and its type is not the workflow's."""

    @app.workflow("shop.loop.v1")
    async def loop(ctx, n: int) -> int:
        return n

    run = await app.start(loop, 1)
    (claim,) = await app.store.claim(Ask(worker="w", types=("shop.loop.v1",), limit=1))
    old = Complete(result=CONTINUED + '"x"}')
    await app.store.commit([Item(run=run.id, fence=claim.fence, number=1, move=old)])
    assert await run.result(60) == {"continued_as": "x"}


@pytest.mark.spec("FLOW-24", "SCHED-1")
async def test_a_schedule_that_skips_runs_one_chain_at_a_time(app):
    @app.workflow("shop.loop.v1")
    async def loop(ctx, n):
        await ctx.sleep(100)
        if n < 3:
            ctx.continue_as(n + 1)

    async with app.worker():
        await app.schedule("loop", loop, 0, every=60, overlap="skip")
        await asyncio.sleep(390)
        chains = {one.chain for one in await app.list()}
        assert len(chains) == 1
        await asyncio.sleep(100)
        assert len({one.chain for one in await app.list()}) == 2


async def until_present(app, run, runs):
    """Wait until the chain has so many runs."""
    async with asyncio.timeout(3600):
        while len([one for one in await app.list() if one.chain == run.id]) < runs:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.spec("FLOW-24", "TEST-2", "MOVE-2", "LEASE-14")
@pytest.mark.parametrize(("store", "runs"), [("memory", 2), *longer(("memory", 3), ("sqlite", 2))])
def test_a_chain_ends_the_same_after_a_crash_at_any_store_call(store, runs):
    """With events, a pause and a parent: no event is lost or delivered twice."""
    assert explore_chain(store, runs) > 20


@pytest.mark.spec("FLOW-24", "FLOW-9")
async def test_an_event_taken_by_a_cancelled_wait_goes_to_the_next_run(app):
    """The store gave the event to the wait. The code cancelled that wait and continued before it knew."""

    @app.workflow("shop.race.v1")
    async def race(ctx, again: bool) -> str:
        if not again:
            late = asyncio.ensure_future(ctx.await_event("x", key="x"))
            await ctx.step("work", asyncio.sleep, 1)
            await app.emit("x", "seen at last")
            late.cancel()
            ctx.continue_as(True)
        return (await ctx.await_event("x", key="x", timeout=5)).payload

    async with app.worker():
        run = await app.start(race, False)
        assert await run.result(60) == "seen at last"


@pytest.mark.spec("FLOW-24")
async def test_a_chain_that_is_being_deleted_has_no_current_run(app, monkeypatch):
    """The middle runs are visible a little longer than the last run. No reader may loop between them."""
    listen = listening(app)
    async with app.worker():
        run = await app.start(listen, [])
        await app.emit("tick", 1)
        await until(app, run, Status.SUCCEEDED)
    first = await app.get(run.id)
    real = app.store.get

    async def get(id_, tenant):
        return None if id_ == first.present else await real(id_, tenant)

    monkeypatch.setattr(app.store, "get", get)
    with pytest.raises(UnknownRun):
        await asyncio.wait_for(app.present(run.id), 5)
