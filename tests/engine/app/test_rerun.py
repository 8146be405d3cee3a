"""`app.rerun`: a new run that repeats another one."""

from __future__ import annotations

import pytest

from holdfast import BadValue, KeyReused, Status, Task, UnknownRun
from tests.engine.kit import until

OPTIONS = {
    "priority": 7, "labels": {"team": "a"}, "limit_key": "k", "timeout": 60.0, "ttl": 3600.0, "budget": 2.5,
    "tenant": "acme",
}  # fmt: skip


@pytest.mark.spec("RERUN-1")
async def test_a_rerun_is_a_new_run_with_the_same_type_params_and_options(app):
    """It names its origin, and does not take the key of the first run."""

    @app.workflow("shop.order.v1")
    async def order(ctx, n: int):
        return n * 2

    async with app.worker():
        first = await app.start(order, 21, key="once", **OPTIONS)
        await first.result(10)
        again = await app.rerun(first.id)
        assert await again.result(10) == 42
    one, two = await first.get(), await again.get()
    same = (
        "type",
        "params",
        "priority",
        "labels",
        "limit_key",
        "timeout_seconds",
        "ttl_seconds",
        "budget",
        "tenant",
    )
    assert [getattr(one, name) for name in same] == [getattr(two, name) for name in same]
    assert (two.id != one.id, two.origin, two.key, one.origin) == (True, one.id, None, None)
    created = (await app.trail(two.id))[0]
    assert (created.type, created.data["origin"]) == ("created", str(one.id))


@pytest.mark.spec("RERUN-1")
async def test_a_rerun_takes_other_params_and_a_key_of_its_own(app):
    """Params are checked by the type of the workflow. An open run can be repeated too."""

    @app.workflow("shop.order.v1")
    async def order(ctx, n: int | None):
        return n

    first = await app.start(order, 1)
    again = await app.rerun(first.id, None, key="again")
    assert ((await again.get()).params, again.created) == (None, True)
    repeated = await app.rerun(first.id, None, key="again")
    assert (repeated.id, repeated.created) == (again.id, False)
    with pytest.raises(KeyReused):
        await app.rerun(first.id, 5, key="again")
    with pytest.raises(BadValue):
        await app.rerun(first.id, object())


@pytest.mark.spec("RERUN-1")
async def test_a_rerun_of_a_plan_takes_the_steps_of_now(app):
    plan = app.plan("shop.order.v1", [Task("A")])
    first = await app.start(plan)
    await app.append_step(first.id, "EXTRA")
    again = await app.rerun(first.id)
    assert [step.key for step in await app.steps(again.id)] == ["A"]


@pytest.mark.spec("RERUN-1", "TEN-5")
async def test_a_run_that_is_deleted_foreign_or_unknown_cannot_be_repeated(app):
    first = await app.start("shop.order.v1", tenant="acme")
    with pytest.raises(UnknownRun):
        await app.of("beta").rerun(first.id)
    assert (await (await app.of("acme").rerun(first.id)).get()).tenant == "acme"
    await app.delete(first.id)
    with pytest.raises(UnknownRun):
        await app.rerun(first.id)


@pytest.mark.spec("RERUN-1")
async def test_a_rerun_of_a_child_is_a_run_of_its_own(app):
    @app.workflow("shop.child.v1")
    async def child(ctx, n: int):
        return n

    @app.workflow("shop.parent.v1")
    async def parent(ctx):
        return await ctx.call(child, 3)

    async with app.worker():
        await (await app.start(parent)).result(10)
        (first,) = [run for run in await app.list() if run.type == "shop.child.v1"]
        again = await app.rerun(first.id)
        await until(app, again, Status.SUCCEEDED)
    found = await again.get()
    assert (found.parent, found.params, found.origin) == (None, 3, first.id)
