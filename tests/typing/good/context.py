"""`ctx.step`, `ctx.map`, `ctx.call` and the others return what their function or workflow returns."""

from __future__ import annotations

import json
from datetime import datetime
from functools import partial
from typing import Any, assert_type
from uuid import UUID

from shop import (
    Api,
    Order,
    Receipt,
    app,
    ask,
    charge,
    clock,
    counted,
    fetch,
    fulfil,
    lines,
    nothing,
    of_line,
    order,
    price,
    price_later,
    total,
)

import holdfast as hf


@app.workflow("typed.good.v1")
async def body(ctx: hf.Context, given: Order) -> None:
    assert_type(await ctx.step("charge", charge, given), Receipt)
    assert_type(await ctx.step("charge", charge, given, "a note"), Receipt)
    assert_type(await ctx.step("charge", charge, given, note="a note", currency="EUR"), Receipt)
    assert_type(await ctx.step("charge", charge, given, timeout=5, key="charge:1"), Receipt)
    assert_type(await ctx.step("charge", charge, given, "a note", raises=ValueError), Receipt)
    assert_type(await ctx.step("charge", partial(charge, given, currency="EUR"), timeout=5), Receipt)
    assert_type(await ctx.step("price", price, "tea"), float)
    assert_type(await ctx.step("price", price, sku="tea"), float)
    assert_type(await ctx.step("price", price, "tea", retry=hf.Backoff.exponential(attempts=2)), float)
    assert_type(await ctx.step("total", total, [1, 2], {"CHF": 1}), float)
    assert_type(await ctx.step("total", total, [1, 2], {"CHF": 1}, timeout=hf.minutes(1)), float)
    assert_type(await ctx.step("clock", clock), int | None)
    assert_type(await ctx.step("clock", clock, key="clock:1"), int | None)
    assert_type(await ctx.step("json", json.dumps, {"a": 1}, indent=2), str)
    assert_type(await ctx.step("order", Order, "tea", count=3), Order)

    # Any and literals in the parameters of the function
    assert_type(await ctx.step("ask", ask, [{"role": "user"}]), str)
    assert_type(await ctx.step("ask", ask, [{"role": "user"}], model="large"), str)
    assert_type(await ctx.step("ask", ask, [{"role": "user"}], "large", timeout=60), str)
    assert_type(await ctx.step("line", of_line, {"sku": "tea"}), int)
    assert_type(await ctx.step("line", of_line, {"sku": "tea"}, timeout=5), int)
    api = Api()
    assert_type(await ctx.step("get", api.get, "https://shop", page=2), bytes)
    assert_type(await ctx.step("get", api.get, "https://shop", key="get:1"), bytes)

    # an argument that is named like an option
    assert_type(await ctx.step("fetch", fetch, "https://shop", 10), bytes)
    assert_type(await ctx.step("fetch", fetch, "https://shop", 10, timeout=5), bytes)
    assert_type(await ctx.step("fetch", partial(fetch, "https://shop", timeout=10), timeout=5), bytes)

    # lambdas
    assert_type(await ctx.step("late", lambda: price_later("tea")), float)
    assert_type(await ctx.step("late", lambda: price("tea"), timeout=5), float)
    for sku in ("tea", "milk"):
        assert_type(await ctx.step("late", lambda sku=sku: price_later(sku)), float)

    assert_type(await ctx.map("prices", price, ["tea", "milk"], limit=3), list[float])
    assert_type(await ctx.map("prices", price_later, ["tea"], timeout=5, key=str.lower), list[float])
    assert_type(await ctx.map("sizes", lambda sku: len(sku), ["tea"], key=lambda sku: sku), list[int])

    assert_type(await ctx.call(order, Order("tea"), key="child", delay=5), Receipt)
    assert_type(await ctx.call(nothing), str)
    assert_type(await ctx.call(counted), list[int])
    assert_type(await ctx.call(counted, 3, limit_key=None), list[int])
    assert_type(await ctx.call(lines, [{"sku": "tea"}]), dict[str, Any])
    assert_type(await ctx.call(fulfil, Order("tea")), Any)
    assert_type(await ctx.call("typed.order.v1", {"sku": "tea"}), Any)
    assert_type(await ctx.start(order, Order("tea")), UUID)

    assert_type(await ctx.sleep(hours=1), None)
    assert_type((await ctx.await_event("paid")).topic, str)
    assert_type((await ctx.approval("boss")).approved, bool)
    assert_type(ctx.now(), datetime)
    assert_type((ctx.type, ctx.max_attempts, ctx.labels), tuple[str, int, dict[str, str]])


@app.workflow("typed.good_sync.v1")
def sync_body(ctx: hf.SyncContext, given: Order) -> None:
    assert_type(ctx.step("charge", charge, given), Receipt)
    assert_type(ctx.step("charge", charge, given, note="a note"), Receipt)
    assert_type(ctx.step("charge", charge, given, timeout=5), Receipt)
    assert_type(ctx.step("price", price, "tea", retry=hf.Backoff.exponential(attempts=2)), float)
    assert_type(ctx.step("line", of_line, {"sku": "tea"}, timeout=5), int)
    assert_type(ctx.step("late", lambda: price_later("tea")), float)
    assert_type(ctx.map("prices", price_later, ["tea"]), list[float])
    assert_type(ctx.map("prices", price, ["tea"], limit=3), list[float])
    assert_type(ctx.call(order, Order("tea"), key="child"), Receipt)
    assert_type(ctx.call(counted), list[int])
    assert_type(ctx.start(order, Order("tea")), UUID)
    assert_type(ctx.transaction(insert, 3), int)
    assert_type(ctx.sleep(5), None)
    assert_type((ctx.type, ctx.max_attempts, ctx.labels), tuple[str, int, dict[str, str]])


def insert(connection: Any, count: int) -> int:
    return count


@fulfil.task("TELL")
def tell(task: hf.PlanTask) -> None:
    assert_type((task.type, task.max_attempts, task.labels), tuple[str, int, dict[str, str]])
