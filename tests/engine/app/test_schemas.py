"""Workers publish the JSON Schemas of their workflows; params of a wrong shape are refused at start."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pydantic
import pytest

from holdfast import Task
from holdfast.bounds import SCHEMA_BYTES
from holdfast.engine.schemas import schema_of
from holdfast.errors import UsageError


@dataclass
class Order:
    number: int
    note: str = ""


class Parcel(pydantic.BaseModel):
    weight: float


async def published(app):
    await app.publish()
    return {one.type: one for one in await app.definitions()}


@pytest.mark.spec("START-11")
async def test_schemas_of_params_and_result_are_published_with_the_definition(app):
    @app.workflow("shop.order.v1")
    async def order(ctx, order: Order) -> list[str]: ...

    @app.workflow("shop.bare.v1")
    async def bare(ctx): ...

    @app.workflow("shop.any.v1")
    async def untyped(ctx, params): ...

    app.plan("shop.plan.v1", [Task("A")], params=Order)
    found = await published(app)
    params = json.loads(found["shop.order.v1"].params_schema)
    assert params["$defs"]["Order"]["required"] == ["number"]
    assert json.loads(found["shop.order.v1"].result_schema) == {"type": "array", "items": {"type": "string"}}
    bare_one, any_one = found["shop.bare.v1"], found["shop.any.v1"]
    assert (bare_one.params_schema, bare_one.result_schema) == ('{"type":"null"}', None)
    assert (any_one.params_schema, any_one.result_schema) == (None, None)
    assert json.loads(found["shop.plan.v1"].params_schema) == params
    assert found["shop.plan.v1"].result_schema is None


@pytest.mark.spec("START-11")
async def test_a_worker_publishes_them_and_the_same_again_writes_nothing(app):
    @app.workflow("shop.order.v1")
    async def order(ctx, order: Order) -> int: ...

    async with app.worker():
        (found,) = await app.definitions()
    assert json.loads(found.result_schema) == {"type": "integer"}


@pytest.mark.spec("START-11")
@pytest.mark.parametrize("wrong", [{"number": "x"}, {"note": "y"}, 7, None])
async def test_params_of_a_wrong_shape_are_refused_at_start(app, wrong):
    @app.workflow("shop.order.v1")
    async def order(ctx, order: Order): ...

    with pytest.raises(UsageError):
        await app.start(order, wrong)
    with pytest.raises(UsageError):
        await app.start("shop.order.v1", wrong)
    assert await app.list() == []


@pytest.mark.spec("START-11")
def test_a_schema_that_is_too_large_or_cannot_be_made_is_left_out():
    class Broken(pydantic.BaseModel):
        @classmethod
        def model_json_schema(cls, *_: Any, **__: Any) -> dict[str, Any]:
            raise ZeroDivisionError

    large = pydantic.create_model("Large", **{f"field_{n}": (int, ...) for n in range(1000)})
    assert len(json.dumps(large.model_json_schema())) > SCHEMA_BYTES
    assert schema_of(large) is None
    assert schema_of(Broken) is None
    assert schema_of(Any) is None
    assert json.loads(schema_of(Parcel))["required"] == ["weight"]
    assert json.loads(schema_of(list[Parcel]))["items"]["required"] == ["weight"]
