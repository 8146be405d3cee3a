"""Params of a wrong shape are refused at the start if the app knows the workflow, however it is named."""

from dataclasses import dataclass

import pytest

from holdfast import BadValue, Task, UsageError
from tests.engine.kit import keys, outcome


@dataclass
class Order:
    n: int


WRONG = [None, 5, [], {}, {"n": "x"}, {"m": 1}, {"n": None}]


def typed(app):
    @app.workflow("shop.ship.v1")
    async def ship(ctx, order: Order) -> int:
        return order.n

    plan = app.plan("shop.fulfil.v1", [Task("SHIP")], params=Order)
    plan.task("SHIP")(lambda task: task.params.n)
    return ship, plan


@pytest.mark.spec("START-11")
@pytest.mark.parametrize("wrong", WRONG)
async def test_params_of_a_wrong_shape_start_nothing(app, wrong):
    ship, plan = typed(app)
    await app.publish()
    for workflow in (ship, plan, "shop.ship.v1", "shop.ship", "shop.fulfil"):
        with pytest.raises(BadValue, match=r"^params of shop\.\w+\.v1 does not match its annotation"):
            await app.start(workflow, wrong)
        refused, started = await app.start_many([(workflow, wrong), (workflow, {"n": 1})])
        assert isinstance(refused, BadValue)
        assert started.created
    with pytest.raises(BadValue):
        await app.schedule("nightly", ship, every=60, params=wrong)
    with pytest.raises(BadValue):
        await app.of("acme").start(ship, wrong)
    assert len(await app.list()) == 5


@pytest.mark.spec("START-11", "FLOW-7")
@pytest.mark.parametrize("named", ["object", "shop.ship.v1", "shop.ship"])
@pytest.mark.parametrize("waits", [True, False])
async def test_a_child_is_not_started_with_params_of_a_wrong_shape(app, named, waits):
    ship, _ = typed(app)

    @app.workflow("shop.order.v1")
    async def order(ctx):
        ask = ctx.call if waits else ctx.start
        return await ask(ship if named == "object" else named, {"n": "x"})

    async with app.worker():
        run = await app.start(order)
        assert await outcome(app, run) == ("failed", "encoding")
    assert await keys(app, run) == []
    assert len(await app.list()) == 1


@pytest.mark.spec("START-11")
async def test_a_workflow_without_params_refuses_params(app):
    @app.workflow("shop.sweep.v1")
    async def sweep(ctx):
        return None

    for workflow in (sweep, "shop.sweep.v1"):
        with pytest.raises(UsageError, match="takes no params"):
            await app.start(workflow, {"n": 1})
    await app.start(sweep)
