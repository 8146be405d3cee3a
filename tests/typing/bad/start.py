"""Every line that is marked with `# error` must be refused, by both checkers; no other line may be."""

from __future__ import annotations

from shop import Order, app, counted, fulfil, nothing, order

import holdfast as hf


async def wrong_params() -> None:
    await app.start(nothing, 3)  # error
    await app.start(order)  # error
    await app.start(order, "tea")  # error
    await app.start(order, Order)  # error
    await app.start(counted, "3")  # error
    await app.start(fulfil, "tea")  # error
    await app.start(charge, 3)  # error
    await app.of("acme").start(order, "tea")  # error


async def wrong_options() -> None:
    await app.start(order, Order("tea"), keey="a")  # error
    await app.start(order, Order("tea"), key=3)  # error
    await app.start(order, Order("tea"), priority="high")  # error
    await app.start("typed.order.v1", prio=3)  # error
    await app.start_many([(order, Order("tea"), {"keey": "a"})])  # error
    await app.of("acme").start(counted, 3, keey="a")  # error
    await app.schedule("daily", counted, 3, cron="0 0 * * *", prio=3)  # error
    app.worker(slot=3)  # error
    app.worker(slots="many")  # error
    await app.work(slot=3)  # error


async def wrong_results() -> None:
    handle = await app.start(order, Order("tea"))
    text: str = await handle.result()  # error
    print(text)


async def forgotten_await() -> None:
    app.start(order, Order("tea"))  # error
    app.start_many([(counted, 3)])  # error
    app.cancel("id")  # error
    app.of("acme").start(counted, 3)  # error
    app.of("acme").cancel("id")  # error
    (await app.start(counted)).result()  # error


def in_sync_code() -> None:
    app.sync.start(order)  # error
    app.sync.start(order, 3)  # error
    app.sync.start(nothing, 3)  # error
    app.sync.start(counted, 3, keey="a")  # error
    app.sync.of("acme").start(order, 3)  # error
    text: str = app.sync.start(counted, 3).result()  # error
    app.sync.worker(slot=3)  # error
    app.sync.emit()  # error
    print(text)


def charge(count: int) -> None: ...


@app.workflow("typed.bad_sync.v1")  # error
def wrong_context(ctx: hf.Context) -> int:
    return 3


@app.workflow("typed.bad_two.v1")  # error
async def two_values(ctx: hf.Context, one: int, two: int) -> int:
    return one + two
