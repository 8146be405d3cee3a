"""Workers that stand in for an older version of a plan, and when they leave its runs to others."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from holdfast import Approval, Backoff, Status, Task
from holdfast.errors import StoreError
from tests.engine.kit import outcome, trail
from tests.engine.plans.plan_helpers import V1, V2, at_the_gate, plan_of


@dataclasses.dataclass
class Sku:
    sku: str


@dataclasses.dataclass
class Items:
    items: list[str]


def shop_of(app, type_, params, seen):
    """A plan whose handlers read its params."""
    plan = app.plan(type_, [Task("PAY"), Task("SHIP")], params=params)
    for name in ("PAY", "SHIP"):

        @plan.task(name)
        async def work(task):
            seen.append((type_[-2:], type(task.params)))

    return plan


@pytest.mark.spec("PLAN-2", "PLAN-15")
async def test_in_a_rolling_deploy_each_version_is_executed_by_its_own_code(deploy):
    """Both versions are live and have different params: no worker takes a run of the other version."""
    seen, old, new = [], deploy(), deploy()
    one, two = shop_of(old, V1, Sku, seen), shop_of(new, V2, Items, seen)
    async with old.worker(slots=2) as first, new.worker(slots=2) as second:
        for _ in range(2):
            runs = [await old.start(one, Sku("a")) for _ in range(10)]
            runs += [await new.start(two, Items(["a"])) for _ in range(10)]
            for run in runs:
                assert (await outcome(new, run))[0] == "succeeded"
                assert "retried" not in await trail(new, run)
            await asyncio.sleep(70)
        assert (first.types, second.types) == ((V1,), (V2,))
    assert set(seen) == {("v1", Sku), ("v2", Items)}


@pytest.mark.spec("PLAN-15")
async def test_a_run_is_left_to_the_worker_that_has_its_version_though_another_has_all_handlers(deploy):
    seen, old, new = [], deploy(), deploy()
    one = plan_of(old, V1, ["A"], seen)
    plan_of(new, V2, ["A"], seen)
    async with new.worker():
        async with old.worker(slots=1):
            await asyncio.sleep(35)
            for run in [await old.start(one) for _ in range(10)]:
                await outcome(old, run)
        assert set(seen) == {"v1 A"}
        run = await old.start(one)
        assert await outcome(new, run, 90) == ("succeeded", "A")
    assert seen[-1] == "v2 A"


@pytest.mark.spec("PLAN-15")
async def test_two_workers_that_stand_in_do_not_block_each_other(deploy):
    """A type that a worker stands in for is shown as not its own."""
    seen, old, new = [], deploy(), deploy()
    one = plan_of(old, V1, ["A"], seen)
    await old.publish()
    plan_of(new, V2, ["A"], seen)
    later = await old.start(one, delay=3000)
    async with new.worker() as first, new.worker() as second:
        await asyncio.sleep(100)
        assert first.types == second.types == (V2, V1)
        assert [one.lacking for one in (await new.store.stats()).workers] == [{V1: ()}] * 2
    assert (await new.get(later.id)).status is Status.PENDING


@pytest.mark.spec("PLAN-15")
async def test_old_code_does_not_take_runs_of_a_newer_version(deploy):
    seen, old, new = [], deploy(), deploy()
    plan_of(old, "shop.fulfil.v9", ["A"], seen)
    run = await new.start(plan_of(new, "shop.fulfil.v10", ["A"], seen))
    async with old.worker() as worker:
        await asyncio.sleep(100)
        assert worker.types == ("shop.fulfil.v9",)
    assert (seen, (await new.get(run.id)).attempt) == ([], 0)


@pytest.mark.spec("PLAN-15")
async def test_a_run_whose_params_another_version_cannot_read_is_given_back(deploy):
    seen, old, new = [], deploy(), deploy()
    one = shop_of(old, V1, Sku, seen)
    run = await old.start(one, Sku("a"))
    shop_of(new, V2, Items, seen)
    async with new.worker():
        await asyncio.sleep(100)
        found, said = await new.get(run.id), await new.explain(run.id)
        assert (found.status, found.attempt, said.reason) == (Status.PENDING, 0, "no_handler")
        assert "params of shop.fulfil.v1" in said.text
    async with old.worker():
        assert (await outcome(old, run))[0] == "succeeded"
    assert set(seen) == {("v1", Sku)}


@pytest.mark.spec("PLAN-15")
async def test_a_run_whose_outputs_another_version_cannot_read_is_given_back(deploy):
    old, new = deploy(), deploy()
    steps = [Task("A"), Approval("GATE"), Task("B")]
    plans = [old.plan(V1, steps), new.plan(V2, steps)]

    @plans[0].task("A")
    async def text_(task) -> str:
        return "a"

    @plans[1].task("A")
    async def number(task) -> int:
        return 1

    for plan in plans:
        plan.task("B")(lambda task: task.outputs["A"])
    async with old.worker():
        run = await at_the_gate(old, plans[0])
    async with new.worker():
        await new.approve(run.id)
        await asyncio.sleep(100)
        assert (await new.get(run.id)).status is Status.PENDING
        assert "output of step 'A'" in (await new.explain(run.id)).text
    async with old.worker():
        assert await outcome(old, run) == ("succeeded", "a")


@pytest.mark.spec("PLAN-15")
@pytest.mark.parametrize(
    ("theirs", "ours", "left"),
    [
        ({"tenants": ["big"]}, {}, False),
        ({"tenants": ["big"]}, {"tenants": ["small", "big"]}, False),
        ({"tenants": ["small", "big"]}, {"tenants": ["small"]}, True),
        ({"runtime": "pypy"}, {}, False),
        ({}, {"tenants": ["small"]}, True),
    ],
)
async def test_a_version_is_left_only_to_a_worker_that_serves_the_same_tenants(deploy, theirs, ours, left):
    seen, old, new = [], deploy(), deploy()
    one = plan_of(old, V1, ["A", "B"], seen)
    await old.publish()
    plan_of(new, V2, ["B"], seen)
    await old.start(one, tenant="small", delay=3000)
    async with old.worker(**theirs), new.worker(**ours) as worker:
        assert (V1 not in worker.versions.claimed) is left


@pytest.mark.spec("PLAN-15")
async def test_the_workers_are_not_read_while_no_run_of_another_version_is_there(deploy, store, monkeypatch):
    """Reading the workers counts all runs."""
    seen, old, new = [], deploy(), deploy()
    plan_of(old, V1, ["A", "B"], seen)
    await old.publish()
    plan_of(new, V2, ["B"], seen)
    read, stats = [], store.stats

    async def counted():
        read.append(1)
        return await stats()

    monkeypatch.setattr(store, "stats", counted)
    async with new.worker():
        await asyncio.sleep(300)
    assert read == []


@pytest.mark.spec("PLAN-15")
async def test_runs_that_cannot_be_executed_here_cost_little_however_many_they_are(
    deploy, store, monkeypatch
):
    """Few of them are claimed between two looks, and own runs do not wait for them."""
    seen, old, new, claimed, claim = [], deploy(), deploy(), [], store.claim

    async def counted(ask):
        claims = await claim(ask)
        claimed.extend(one.type for one in claims)
        return claims

    monkeypatch.setattr(store, "claim", counted)
    one, two = plan_of(old, V1, ["A", "B"], seen), plan_of(new, V2, ["B"], seen)
    await old.publish()
    runs = [await old.start(one, priority=90) for _ in range(30)]
    async with new.worker(slots=4):
        await asyncio.sleep(900)
        assert 20 < claimed.count(V1) <= 31
        assert await outcome(new, await new.start(two, priority=1), 2) == ("succeeded", "B")
    found = await new.get(runs[0].id)
    assert (found.status, found.attempt, seen) == (Status.PENDING, 0, ["v2 B"])


@pytest.mark.slow
@pytest.mark.spec("PLAN-15")
async def test_a_run_that_cannot_be_executed_here_is_claimed_less_and_less_often(deploy):
    seen, old, new = [], deploy(), deploy()
    run = await old.start(plan_of(old, V1, ["A", "B"], seen))
    plan_of(new, V2, ["B"], seen)
    async with new.worker(keeper=False):
        await asyncio.sleep(7200)
    found = await new.get(run.id)
    assert 8 < (await trail(new, run)).count("leased") < 16
    assert 900 < (found.run_at - found.updated_at).total_seconds() <= 3600


@pytest.mark.spec("PLAN-15")
async def test_runs_that_can_be_executed_here_are_not_slowed_down(deploy, world):
    seen, old, new = [], deploy(), deploy()
    one = plan_of(old, V1, ["A", "B"], seen)
    await old.publish()
    runs = [await old.start(one) for _ in range(50)]
    plan_of(new, V2, ["A", "B"], seen)
    async with new.worker(slots=4):
        begun = world.monotonic()
        for run in runs:
            assert await outcome(new, run) == ("succeeded", "B")
        assert world.monotonic() - begun < 10


@pytest.mark.spec("PLAN-15")
async def test_a_worker_that_is_never_idle_finishes_runs_of_another_version_too(deploy):
    seen, old, new = [], deploy(), deploy()
    one = plan_of(old, V1, ["A"], seen)
    plan_of(new, V2, ["A"], seen)

    @new.workflow("shop.busy.v1")
    async def busy(ctx):
        await ctx.step("work", asyncio.sleep, 5)

    for _ in range(100):
        await new.start(busy)
    async with new.worker(slots=1):
        await asyncio.sleep(5)
        run = await old.start(one)
        assert await outcome(new, run, 100) == ("succeeded", "A")


@pytest.mark.spec("PLAN-15")
async def test_a_run_that_is_given_back_keeps_the_error_of_its_own_code(deploy):
    old, new = deploy(), deploy()
    one = old.plan(V1, [Task("A"), Task("B")], retry=Backoff.fixed(100, attempts=3))

    @one.task("A")
    async def fails(task):
        raise ValueError("no such sku")

    one.task("B")(lambda _: None)
    async with old.worker():
        run = await old.start(one)
        while (before := await old.get(run.id)).last_error is None:  # noqa: ASYNC110
            await asyncio.sleep(1)
    plan_of(new, V2, ["B"], [])
    async with new.worker():
        await asyncio.sleep(1000)
    found, went = await new.get(run.id), (await trail(new, run)).count("leased")
    assert (found.last_error, found.error.kind) == (before.last_error, "error")
    assert "no such sku" in found.last_error
    assert 3 < went < 10, "given back, for longer and longer"


@pytest.mark.spec("PLAN-15")
@pytest.mark.parametrize("verb", ["definitions", "due", "stats"])
async def test_a_worker_is_seen_though_it_cannot_look_for_versions(deploy, store, monkeypatch, verb):
    old, new = deploy(), deploy()
    await old.start(plan_of(old, V1, ["A", "B"], []), delay=3000)
    plan_of(new, V2, ["A", "B"], [])

    async def fails(*args, **options):
        raise StoreError("not now")

    async with new.worker():
        stats = store.stats
        with monkeypatch.context() as patched:
            patched.setattr(store, verb, fails)
            await asyncio.sleep(200)
            assert len((await stats()).workers) == 1
