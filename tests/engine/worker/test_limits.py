"""Limits with many workers, crashes and recovery: caps hold, and no run waits longer than it must."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from itertools import pairwise

import pytest

import holdfast as hf
from holdfast.lifecycle import Status
from holdfast.records import Ask, NewRun, Presence
from tests.engine.kit import outcome, process, until, working

LET_GO = {"succeeded", "failed", "released", "retried", "lease_expired"}


async def most_at_once(app):
    """Return the largest number of leased runs at one instant, from the trail in its own order."""
    held, most, after = set(), 0, 0
    while page := await app.trail(after=after, limit=1000):
        after = page[-1].seq
        for entry in page:
            if entry.type == "leased":
                held.add(entry.run)
            elif entry.type in LET_GO:
                held.discard(entry.run)
            most = max(most, len(held))
    return most


async def all_ended(app, runs, within=100_000.0):
    async with asyncio.timeout(within):
        return [await app.final(run.id) for run in runs]


@pytest.mark.slow
@pytest.mark.spec("LIMIT-1")
async def test_a_cap_holds_when_workers_die_and_others_take_over(app):
    """200 runs, three workers, two of them killed: the trail never shows more leased runs than the cap."""

    @app.workflow("shop.order.v1", retry=hf.Backoff.fixed(1, attempts=9))
    async def order(ctx):
        await ctx.step("work", asyncio.sleep, 0.7)

    await app.limit(key="api", concurrency=5)
    runs = await app.start_many([(order, None, {"limit_key": "api"})] * 200)
    doomed = [await process(app, seed, slots=20, lease=5) for seed in (1, 2)]
    async with working(app, slots=20, lease=5):
        for one in doomed:
            await asyncio.sleep(6)
            one.kill()
        ended = await all_ended(app, runs)
    assert {str(run.status) for run in ended} == {"succeeded"}
    assert await most_at_once(app) == 5
    assert len(await app.trail(types=("lease_expired",))) >= 2


@pytest.mark.spec("LIMIT-1")
async def test_the_next_run_begins_as_soon_as_a_limit_slot_is_free(app):
    """Two workers, one slot: the wake-up at the end brings the other worker, not its poll."""
    began = []

    @app.workflow("shop.order.v1")
    async def order(ctx):
        began.append(app.world.monotonic())
        await ctx.step("work", asyncio.sleep, 30)

    await app.limit(type=order, concurrency=1)
    runs = [await app.start(order) for _ in range(4)]
    other = await process(app, 1, slots=1, lease=60)
    async with working(app, slots=1, lease=60):
        await all_ended(app, runs)
    other.kill()
    assert len(began) == 4
    assert all(30 <= later - earlier < 30.1 for earlier, later in pairwise(began))


@pytest.mark.slow
@pytest.mark.spec("LIMIT-2")
async def test_a_rate_holds_over_several_workers_and_is_used_to_the_full(app):
    """Three workers, ten claims in any ten seconds: 100 runs take as long as the rate needs, not longer."""

    @app.workflow("shop.order.v1")
    async def order(ctx):
        pass

    await app.limit(tenant="%", rate=(10, 10))
    begun = app.world.monotonic()
    others = [await process(app, seed, slots=5) for seed in (1, 2)]
    runs = await app.start_many([(order, None)] * 100)
    async with working(app, slots=5):
        await all_ended(app, runs)
    for one in others:
        one.kill()
    claims = [entry.at for entry in await app.trail(types=("leased",))]
    assert len(claims) == 100
    assert all(
        later - earlier >= timedelta(seconds=10) for earlier, later in zip(claims, claims[10:], strict=False)
    )
    assert 90 <= app.world.monotonic() - begun < 95


@pytest.mark.spec("LIMIT-2")
async def test_a_paused_limit_key_holds_its_runs_until_its_time(app):
    """A step that meets a 429 pauses the key for all. Runs of other keys continue."""
    calls = []

    @app.workflow("api.call.v1", retry=hf.Backoff.fixed(5, attempts=3))
    async def call(ctx, name: str):
        await ctx.step("call", ask_api, name)

    async def ask_api(name):
        calls.append((name, app.world.monotonic()))
        if name == "first" and len(calls) == 1:
            await app.pause_key("api", 60)
            raise RuntimeError("429")

    first = await app.start(call, "first", limit_key="api")
    async with working(app, slots=1):
        while not calls:  # noqa: ASYNC110
            await asyncio.sleep(0.01)  # virtual time
        second = await app.start(call, "second", limit_key="api")
        free = await app.start(call, "free", limit_key="web")
        assert await outcome(app, free, within=10) == ("succeeded", None)
        explanation = await app.explain(second.id)
        hold = explanation.data["held_back"][0]
        assert (hold.why, hold.name) == ("paused", "api")
        await all_ended(app, [first, second])
    at = dict(reversed(calls))
    begun = calls[0][1]
    assert at["free"] - begun < 5
    assert begun + 60 <= min(time for name, time in calls[1:] if name != "free") < begun + 61


@pytest.mark.slow
@pytest.mark.spec("LIMIT-3")
async def test_a_flood_of_one_tenant_does_not_delay_another(app):
    """Ten thousand runs before ten: a worker with one slot alternates, and the small tenant is soon done."""
    served = []

    @app.workflow("shop.order.v1")
    async def order(ctx, whose: str):
        served.append(whose)

    await app.limit(tenant="%", weight=1)
    await app.start_many([(order, "flood", {"tenant": "flood", "priority": 0})] * 10_000)
    small = await app.start_many([(order, "small", {"tenant": "small"})] * 10)
    async with working(app, slots=1):
        await all_ended(app, small)
    assert Counter(served[:20]) == {"flood": 10, "small": 10}


@pytest.mark.spec("REG-2", "LEASE-12", "LEASE-16")
async def test_a_run_of_another_runtime_waits_for_a_worker_of_that_runtime_and_explain_says_so(app):
    """Switching the runtime back moves the run without losing an attempt.

    A disabled type names its remedy.
    """

    @app.workflow("shop.order.v1")
    async def order(ctx):
        return "done"

    await app.register(order, runtime="go", description="moved")
    run = await app.start(order)
    async with working(app):
        await asyncio.sleep(5)
        explanation = await app.explain(run.id)
        assert explanation.reason == "runtime"
        assert "runtime go" in explanation.text
        assert (await app.doctor()).level == "warning"
        await app.register(order, runtime="python", enabled=False)
        await asyncio.sleep(5)
        explanation = await app.explain(run.id)
        assert explanation.reason == "disabled"
        assert (await app.get(run.id)).attempt == 0
        await app.register(order, enabled=True)
        assert await outcome(app, run, within=2) == ("succeeded", "done")
    other = await app.start(order)
    await app.register(order, runtime="legacy")
    async with working(app, runtime="legacy", slots=1):
        assert await outcome(app, other, within=2) == ("succeeded", "done")
        await app.limit(type=order, concurrency=0)
        held = await app.start(order)
        explanation = await app.explain(held.id)
        assert explanation.reason == "concurrency", (
            "a worker of its runtime is here: that is not what holds it"
        )


async def test_an_idle_worker_does_not_spin_on_runs_that_it_may_not_take(app):
    """Runs that are held back cost a look now and then, not a look at once."""

    @app.workflow("shop.order.v1")
    async def order(ctx):
        pass

    looks = []
    claim = app.store.claim

    async def counted(ask):
        looks.append(app.world.monotonic())
        return await claim(ask)

    app.store.claim = counted
    await app.register(order, enabled=False)
    await app.limit(key="k", concurrency=0)
    await app.start(order)
    await app.start(order, limit_key="k")
    async with working(app, keeper=False):
        await asyncio.sleep(100)
    assert len(looks) <= 130


@pytest.mark.spec("LIMIT-1")
async def test_explain_says_which_limit_is_full_and_when_a_slot_is_free(app):
    """The text has the counts, and the limit that applies."""

    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.step("work", asyncio.sleep, 60)

    await app.limit(key="api.%", concurrency=1)
    await app.limit(tenant="default", rate=(1, hf.minutes(5)))
    runs = [await app.start(order, limit_key="api.a") for _ in range(2)]
    async with working(app):
        await until(app, runs[0], Status.LEASED)
        explanation = await app.explain(runs[1].id)
        await app.cancel(runs[0].id)
    rate, concurrency = explanation.data["held_back"]
    assert (rate.why, rate.scope, rate.name, rate.used, rate.allowed) == ("rate", "tenant", "default", 1, 1)
    assert (concurrency.why, concurrency.name, concurrency.rule) == ("concurrency", "api.a", "api.%")
    assert "api.a" in explanation.text
    assert "default" in explanation.text


async def test_explain_names_a_command_for_everything_that_holds_a_run_back(app):
    """One command for each hold, with the name by which it was set. A missing worker is named beside them."""
    await app.limit(key="api.%", concurrency=0)
    await app.limit(tenant="default", rate=(1, 60))
    await app.store.start([NewRun(id=app.world.uuid7(), type="a.b.v1")])
    await app.store.claim(Ask(worker="w", types=("a.b.v1",), limit=1, lease_seconds=30))
    run = await app.start("a.b.v1", limit_key="api.a")
    await app.pause_key("api.a", 60)
    await app.register("a.b", enabled=False)
    explanation = (await app.explain(run.id)).text
    parts = (
        "`holdfast registry enable a.b`",
        "`holdfast limit set --key api.% …`",
        "`holdfast limit set --tenant default …`",
        "`holdfast limit resume api.a`",
        "`holdfast limit ls`",
        (
            "No live worker can run a.b.v1 (live workers can run: none): "
            "start one with `holdfast worker MODULE:APP`"
        ),
    )
    assert [part for part in parts if part not in explanation] == []


async def test_explain_says_that_workers_serve_other_tenants_only(app):
    """Workers for other tenants can run the type, so it would be wrong to say that they cannot."""
    run = await app.start("a.b.v1")
    there = Presence(
        worker="w2",
        types=("a.b.v1",),
        tenants=("other",),
        slots=1,
        stragglers=0,
        seen_at=await app.store.now(),
    )
    await app.store.present(there)
    explanation = await app.explain(run.id)
    assert explanation.reason == "no_worker"
    assert (
        "No live worker serves tenant default (w2 can run a.b.v1, but only for other tenants)"
        in explanation.text
    )
    assert "`holdfast worker MODULE:APP --tenant default`" in explanation.text
    bound = await app.of("default").explain(run.id)
    assert "(a worker can run a.b.v1, but only for other tenants)" in bound.text


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda app: app.limit(concurrency=1), "a limit needs exactly one of type=, tenant= and key="),
        (
            lambda app: app.limit(type="a.b.v1", key="k", concurrency=1),
            "a limit needs exactly one of type=, tenant= and key=",
        ),
        (lambda app: app.limit(key="k"), "give concurrency, rate or weight"),
        (lambda app: app.limit(key="k", concurrency=-1), "a whole number from 0 to 2,147,483,647"),
        (lambda app: app.limit(key="k", concurrency=True), "a whole number from 0 to 2,147,483,647"),
        (lambda app: app.limit(key="k", rate=5), "as in rate=(100, 60)"),
        (lambda app: app.limit(key="k", rate=(0, 60)), "as in rate=(100, 60)"),
        (lambda app: app.limit(key="k", rate=(1, 0)), "as in rate=(100, 60)"),
        (lambda app: app.limit(key="k", weight=2), "a weight is a tenant's share"),
        (lambda app: app.limit(tenant="a", weight=0), "a number from 0.001 to 1,000"),
        (lambda app: app.limit(key="a%b", concurrency=1), "% is allowed only at the end"),
        (lambda app: app.limit(type="shop.order", concurrency=1), "is not a workflow type"),
        (lambda app: app.pause_key("k", -1), "a duration from 0 s to 1,000 years, or a datetime"),
        (lambda app: app.register("shop%"), "is not a workflow type"),
        (lambda app: app.register("shop.order.v1", enabled="no"), "True or False"),
    ],
)
async def test_a_bad_limit_is_refused_in_one_line(app, call, message):
    """Nothing is written."""
    with pytest.raises(hf.UsageError) as error:
        await call(app)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert (await app.limits(), await app.registry()) == ([], [])
