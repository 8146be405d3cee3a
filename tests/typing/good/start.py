"""`start` takes the params of its workflow, and its handle gives the workflow's result."""

from __future__ import annotations

from typing import Any, Unpack, assert_type

from shop import (
    Order,
    Receipt,
    app,
    counted,
    fulfil,
    lines,
    maybe,
    nothing,
    order,
    sync_counted,
    sync_nothing,
    untyped,
    weights,
)

import holdfast as hf

assert_type(nothing, hf.Workflow[None, str])
assert_type(order, hf.Workflow[Order, Receipt])
assert_type(counted, "hf.Workflow[int | None, list[int]]")
assert_type(sync_counted, "hf.Workflow[int | None, bool]")
assert_type(sync_nothing, hf.Workflow[None, int])
assert_type(fulfil, hf.Plan[Order])


async def start() -> None:
    assert_type(await app.start(nothing), hf.Handle[str])
    assert_type(await app.start(nothing, None), hf.Handle[str])
    handle = await app.start(order, Order("tea"), key="order:1", delay=hf.minutes(5), labels={"team": "a"})
    assert_type(handle, hf.Handle[Receipt])
    assert_type(await handle.result(timeout=3), Receipt)
    assert_type(await app.start(counted), hf.Handle[list[int]])
    assert_type(await app.start(counted, 3), hf.Handle[list[int]])
    assert_type(await app.start(maybe), hf.Handle[None])
    assert_type(await app.start(maybe, Order("tea")), hf.Handle[None])
    assert_type(await app.start(weights, [1, 2]), hf.Handle[float])
    assert_type(await app.start(lines, [{"sku": "tea"}]), hf.Handle[dict[str, Any]])
    assert_type(await app.start(fulfil, Order("tea")), hf.Handle[Any])
    assert_type(await app.start(untyped), hf.Handle[Any])
    assert_type(await app.start(untyped, {"any": "thing"}), hf.Handle[Any])
    assert_type(await app.start("typed.order.v1", {"sku": "tea"}, priority=5), hf.Handle[Any])
    assert_type(await app.of("acme").start(order, Order("tea"), key="a"), hf.Handle[Receipt])


async def start_many() -> None:
    same = await app.start_many([(counted, n) for n in range(3)])
    assert_type(same, list[hf.Handle[list[int]] | hf.HoldfastError])
    mixed = await app.start_many([(nothing, None), (order, Order("tea"), {"key": "a"}), ("by.name.v1", 3)])
    assert_type(mixed, list[hf.Handle[Any] | hf.HoldfastError])
    assert_type(
        await app.of("acme").start_many([(counted, 1)]), list[hf.Handle[list[int]] | hf.HoldfastError]
    )


async def pass_on(what: hf.Workflow[Order, Receipt], **options: Unpack[hf.StartOptions]) -> Receipt:
    return await (await app.start(what, Order("tea"), **options)).result()


async def any_workflow(what: hf.Workflow | hf.Plan | str) -> hf.Handle[Any]:
    return await app.start(what, 3)


def in_sync_code() -> None:
    handle = app.sync.start(order, Order("tea"), key="a")
    assert_type(handle, hf.SyncHandle[Receipt])
    assert_type(handle.result(timeout=3), Receipt)
    assert_type(app.sync.start(counted, 3).result(), list[int])
    assert_type(app.sync.start(counted).result(), list[int])
    assert_type(app.sync.start(lines, [{"sku": "tea"}]).result(), dict[str, Any])
    assert_type(app.sync.start("typed.order.v1", 3).result(), Any)
    assert_type(app.sync.of("acme").start(counted, 3).result(), list[int])
    assert_type(
        app.sync.start_many([(counted, n) for n in range(3)]),
        list[hf.SyncHandle[list[int]] | hf.HoldfastError],
    )
    assert_type(app.sync.emit("paid", 3).duplicate, bool)
    assert_type(app.sync.schedule("daily", counted, 3, cron="0 0 * * *", priority=5).name, str)
    assert_type(app.sync.get(handle.id), hf.Run | None)
    assert_type(app.sync.cancel(handle.id), hf.Run)
    with app.sync.worker(slots=3, lease=hf.minutes(1)) as worker:
        assert_type(worker, hf.Worker)


async def worker(**options: Unpack[hf.WorkerOptions]) -> None:
    async with app.worker(slots=3, patterns=["typed.%"], poll=0.5, keeper=False) as worker:
        assert_type(worker, hf.Worker)
    await app.work(stores=["memory://"], **options)
