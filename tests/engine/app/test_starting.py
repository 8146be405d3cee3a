"""Starting runs: durable before any code runs, never before the due time, with exactly the given values."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from uuid import UUID

import msgspec
import pytest

from holdfast import BadType, BadValue, Conflict, KeyReused, Status, TooLarge, UnknownWorkflow, UsageError
from holdfast.records import moment
from tests.engine.kit import process


@pytest.mark.spec("START-1")
async def test_start_returns_once_the_run_is_durable_and_runs_no_user_code(app):
    executed = []

    @app.workflow("shop.order.v1")
    async def order(ctx):
        executed.append(1)

    run = await app.start(order)
    assert run.created
    assert (await app.get(run.id)).status is Status.PENDING
    await asyncio.sleep(10)
    assert executed == []


@pytest.mark.spec("START-1")
async def test_every_option_of_start_is_recorded(app, world):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        return None

    at = moment(world.now()) + timedelta(hours=1)
    parent = (await app.start(order, tenant="acme")).id
    run = await app.start(
        order, key="k", id="0199c0de-7a31-7c3e-b1de-4b9a5d0c8f10", priority=7, run_at=at, timeout=60,
        max_attempts=9, ttl=3600, budget=2.5, limit_key="l", parent=parent, tenant="acme", labels={"a": "b"},
    )  # fmt: skip
    found = await app.get(run.id)
    assert str(found.id) == "0199c0de-7a31-7c3e-b1de-4b9a5d0c8f10"
    assert (found.key, found.priority, found.run_at, found.max_attempts) == ("k", 7, at, 9)
    assert (found.budget_units, found.limit_key, found.parent, found.tenant) == (
        2_500_000,
        "l",
        parent,
        "acme",
    )
    assert (found.labels, found.timeout_at) == ({"a": "b"}, found.run_at + timedelta(seconds=60))


@pytest.mark.spec("START-1")
@pytest.mark.parametrize(
    "bad",
    [
        {"priority": 1000}, {"priority": -1}, {"priority": 1.5}, {"tenant": ""}, {"key": ""}, {"key": "a\0b"},
        {"key": "a\x1fb"}, {"key": "x" * 256}, {"max_attempts": 0}, {"delay": "5s"}, {"id": "no uuid"},
        {"run_at": datetime(2030, 1, 1, tzinfo=UTC), "delay": 1},
    ],
    ids=str,
)  # fmt: skip
async def test_bad_options_are_refused_and_nothing_is_recorded(app, bad):
    with pytest.raises(UsageError):
        await app.start("shop.order.v1", **bad)
    assert await app.list() == []


@pytest.mark.spec("START-1")
async def test_runs_with_a_lower_priority_number_run_first(app):
    executed = []

    @app.workflow("shop.order.v1")
    async def order(ctx, n: int):
        executed.append(n)

    for n in (5, 999, 0, 100):
        await app.start(order, n, priority=n)
    async with app.worker(slots=1):
        await asyncio.sleep(5)
    assert executed == [0, 5, 100, 999]


@pytest.mark.spec("START-2")
async def test_a_run_is_executed_when_a_worker_that_can_run_its_type_appears(app):
    run = await app.start("shop.later.v1", {"n": 1})

    @app.workflow("shop.other.v1")
    async def other(ctx):
        return None

    async with app.worker():
        await asyncio.sleep(60)
        found = await app.get(run.id)
        assert (found.status, found.attempt) == (Status.PENDING, 0)

    @app.workflow("shop.later.v1")
    async def later(ctx, params):
        return params["n"]

    async with app.worker():
        assert await run.result(10) == 1


@pytest.mark.spec("START-3")
@pytest.mark.parametrize("by", ["run_at", "delay"])
async def test_a_run_begins_soon_after_its_due_time_and_never_before(app, world, by):
    begun = []

    @app.workflow("shop.order.v1")
    async def order(ctx):
        begun.append(world.monotonic())

    async with app.worker():
        at = moment(world.now()) + timedelta(seconds=90)
        run = await app.start(order, **({"run_at": at} if by == "run_at" else {"delay": 90}))
        assert (await app.explain(run.id)).reason == "scheduled"
        await run.result(200)
    assert 90 <= begun[0] < 90.1


@pytest.mark.spec("START-4")
async def test_the_same_key_gives_the_same_run_and_other_params_are_a_conflict(app):
    @app.workflow("shop.order.v1")
    async def order(ctx, n: int):
        return n

    first, again = await app.start(order, 1, key="k"), await app.start(order, 1, key="k")
    assert (again.id, first.created, again.created) == (first.id, True, False)
    with pytest.raises(KeyReused, match="'k'"):
        await app.start(order, 2, key="k")


@pytest.mark.spec("START-5")
async def test_a_conflict_in_start_many_affects_its_item_alone(app):
    @app.workflow("shop.order.v1")
    async def order(ctx, n: int):
        return n

    await app.start(order, 0, key="k")
    answers = await app.start_many([(order, n, {"key": "k" if n == 7 else f"k{n}"}) for n in range(1200)])
    assert [n for n, answer in enumerate(answers) if isinstance(answer, Conflict)] == [7]
    assert sum(answer.created for answer in answers if not isinstance(answer, Conflict)) == 1199


@pytest.mark.spec("START-6")
@pytest.mark.parametrize(
    "bad", ["order", "order.v1", "shop order.v1", "shop.order.v0", "shop..v1", "", "shop.order.v1 "]
)
async def test_a_malformed_type_is_refused_with_an_example(app, bad):
    with pytest.raises((BadType, UnknownWorkflow)) as refused:
        await app.start(bad)
    assert ".v1" in str(refused.value) or "published" in str(refused.value)
    with pytest.raises(BadType, match=r"for example '\w+\.[\w.]+\.v1'"):
        app.workflow(bad)(_nothing)
    assert await app.list() == []


async def _nothing(ctx):
    return None


@pytest.mark.spec("START-6")
async def test_a_bare_name_starts_the_newest_published_version_by_number(app):
    for version in (1, 9, 10):
        app.workflow(f"shop.order.v{version}")(_nothing)
    await app.publish()
    client = type(app)(app.store, world=app.world)
    run = await client.start("shop.order")
    assert (await app.get(run.id)).type == "shop.order.v10"


@pytest.mark.spec("START-6")
async def test_an_unknown_bare_name_is_refused_with_similar_names(app):
    app.workflow("shop.order.v1")(_nothing)
    await app.publish()
    with pytest.raises(UnknownWorkflow, match=r"did you mean shop\.order"):
        await app.start("shop.ordr")


@pytest.mark.spec("START-6", "ROUTE-3")
async def test_versions_coexist_and_a_run_keeps_its_version(app):
    @app.workflow("shop.order.v1")
    async def old(ctx):
        await ctx.sleep(10)
        return "old"

    @app.workflow("shop.order.v2")
    async def new(ctx):
        return "new"

    async with app.worker():
        first = await app.start("shop.order.v1")
        second = await app.start("shop.order")
        assert [await first.result(60), await second.result(60)] == ["old", "new"]


class Colour(Enum):
    RED = "red"


class Line(msgspec.Struct):
    sku: str
    price: Decimal


@dataclass
class Order:
    id: UUID
    at: datetime
    day: date
    total: Decimal
    raw: bytes
    colour: Colour
    lines: list[Line]
    note: str | None = None


ORDER = Order(
    id=UUID(int=7), at=datetime(2026, 5, 1, 12, 30, 15, 123456, tzinfo=UTC), day=date(2026, 5, 1),
    total=Decimal("12.340"), raw=b"\x00\xff", colour=Colour.RED, lines=[Line("a", Decimal("0.1"))],
)  # fmt: skip


@pytest.mark.spec("START-9")
async def test_typed_values_survive_params_steps_events_and_results(app):
    seen = []

    def ship(order: Order) -> Order:
        return order

    @app.workflow("shop.order.v1")
    async def order(ctx, order: Order) -> Order:
        seen.append(order)
        shipped = await ctx.step("ship", ship, order)
        seen.append(shipped)
        await ctx.sleep(1)
        return shipped

    async with app.worker():
        run = await app.start(order, ORDER)
        assert await run.result(60) == ORDER
    assert seen == [ORDER] * 4
    assert all(isinstance(one, Order) for one in seen)


@pytest.mark.spec("START-9")
@pytest.mark.parametrize(
    "value",
    [
        "ünïcödé 🎉", {"a": [], "b": {}}, None, 2**70, -(2**63), 1e16, -0.0, 5e-324, [1.0, 1], {"": ""},
        [[[]]], "a\u2028b",
    ],
    ids=repr,
)  # fmt: skip
async def test_json_values_are_read_back_unchanged_from_every_place(app, value):
    @app.workflow("shop.order.v1")
    async def order(ctx, given):
        event = await ctx.await_event("x")
        return [given, await ctx.step("same", lambda: given), event.payload]

    async with app.worker():
        run = await app.start(order, value)
        await app.emit("x", value)
        back = await run.result(10)
    assert repr(back) == repr([value] * 3)
    assert repr((await app.get(run.id)).params) == repr(value)


@pytest.mark.spec("START-9")
@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": {"b": float("nan")}}, ".a.b"), ({"x": ["ok", "nul\0"]}, ".x[1]"), ("half \ud800", "surrogate"),
        pytest.param({"k": object()}, ".k", id="object"),
        ({1: 2}, "keys are strings"), ({"n": float("inf")}, ".n"),
    ],
    ids=str,
)  # fmt: skip
async def test_values_that_cannot_be_recorded_are_refused_at_start_by_field(app, value, message):
    with pytest.raises(BadValue) as refused:
        await app.start("shop.order.v1", value)
    assert "params of shop.order.v1" in str(refused.value)
    assert message in str(refused.value)
    assert await app.list() == []


@pytest.mark.spec("START-9")
async def test_params_over_the_limit_are_refused_with_their_size(app):
    with pytest.raises(TooLarge, match=r"4,194,30\d bytes.*limit is 4,194,304"):
        await app.start("shop.order.v1", "x" * (4 * 1024 * 1024))
    assert (await app.start("shop.order.v1", "x" * (4 * 1024 * 1024 - 2))).created


@pytest.mark.spec("START-2")
async def test_a_worker_of_another_process_executes_a_started_run(app):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        return "elsewhere"

    run = await app.start(order)
    other = await process(app, 3)
    assert await run.result(10) == "elsewhere"
    assert [entry.data["worker"] for entry in await app.trail(run.id) if entry.type == "leased"] == [
        other.worker.id
    ]
    other.kill()
