"""When a worker stands in for an older version of a plan, and when it leaves it to others."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from holdfast import Approval, Status, Task
from tests.engine.kit import outcome, trail
from tests.engine.planned import V1, V2, at_the_gate, plan_of


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
    """Both are live, and the params of one are not the other's: no run is taken by the wrong one."""
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
async def test_two_that_stand_in_do_not_block_each_other(deploy):
    """What a worker stands in for is shown as not its own."""
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
    """That read counts all runs."""
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
