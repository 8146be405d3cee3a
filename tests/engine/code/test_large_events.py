"""Large events that came before their waits: every branch gets its own event, whatever other branches do."""

from __future__ import annotations

import asyncio

import pytest

from tests.engine.kit import outcome

COUNT = 7
LARGE = "z" * 4_000


@pytest.fixture(autouse=True)
def _small_budget(monkeypatch):
    """Lower the limit so that two of these values fill one read."""
    monkeypatch.setattr("holdfast.bounds.BATCH_BYTES", 8_000)


async def before_it_waits(app, workflow):
    run = await app.start(workflow)
    for n in range(COUNT):
        await app.emit(f"t{n}", LARGE)
    return run


@pytest.mark.slow
@pytest.mark.spec("EVENT-4", "FLOW-9")
async def test_branches_get_their_events_beside_a_step_of_an_hour(app, world):
    got = {}

    @app.workflow("shop.gather.v1")
    async def gather(ctx):
        async def event(n):
            await ctx.await_event(f"t{n}")
            got.setdefault(n, world.now())

        await asyncio.gather(ctx.step("hour", lambda: asyncio.sleep(3600)), *(event(n) for n in range(COUNT)))

    run = await before_it_waits(app, gather)
    begun = world.now()
    async with app.worker():
        assert (await outcome(app, run, 20_000))[0] == "succeeded"
    assert sorted(got) == list(range(COUNT))
    assert (max(got.values()) - begun) / 1e6 < 60


@pytest.mark.spec("EVENT-4", "FLOW-9")
async def test_a_step_that_waits_for_the_events_of_other_branches_ends(app):
    @app.workflow("shop.gather.v1")
    async def gather(ctx):
        left, done = set(range(COUNT)), asyncio.Event()

        async def event(n):
            await ctx.await_event(f"t{n}")
            left.discard(n)
            if not left:
                done.set()

        await asyncio.gather(ctx.step("until all came", done.wait), *(event(n) for n in range(COUNT)))

    run = await before_it_waits(app, gather)
    async with app.worker(grace=0):
        assert (await outcome(app, run, 600))[0] == "succeeded"
