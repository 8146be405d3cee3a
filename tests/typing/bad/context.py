"""Every line that is marked with `# error` must be refused, by both checkers; no other line may be."""

from __future__ import annotations

from shop import Order, app, ask, charge, clock, counted, nothing, order, price, price_later

import holdfast as hf


@app.workflow("typed.bad.v1")
async def wrong_arguments(ctx: hf.Context, given: Order) -> None:
    await ctx.step("charge", charge)  # error
    await ctx.step("charge", charge, "tea")  # error
    await ctx.step("charge", charge, "tea", timeout=5)  # error
    await ctx.step("charge", charge, given, 3)  # error
    await ctx.step("charge", charge, given, 3, timeout=5)  # error
    await ctx.step("charge", charge, given, "a note", "EUR")  # error
    await ctx.step("charge", charge, given, note=3)  # error
    await ctx.step("charge", charge, given, memo="a note")  # error
    await ctx.step("charge", charge(given))  # error
    await ctx.step("price", price, 3)  # error
    await ctx.step("price", price, name="tea")  # error
    await ctx.step("ask", ask, {"role": "user"})  # error
    await ctx.step("clock", clock, 3)  # error
    await ctx.step(charge, given)  # error

    await ctx.map("prices", price, [3])  # error
    await ctx.map("prices", price, 3)  # error
    await ctx.map("prices", price_later, [3])  # error
    await ctx.map("prices", charge, ["tea"])  # error
    await ctx.map("prices", price, ["tea"], limit="three")  # error
    await ctx.map("prices", price, ["tea"], key=len, retries=3)  # error

    await ctx.call(order)  # error
    await ctx.call(order, 3)  # error
    await ctx.call(nothing, 3)  # error
    await ctx.call(counted, "3")  # error
    await ctx.start(order, 3)  # error


@app.workflow("typed.bad_options.v1")
async def wrong_options(ctx: hf.Context, given: Order) -> None:
    await ctx.step("charge", charge, given, timeout="soon")  # error
    await ctx.step("charge", charge, given, retry=3)  # error
    await ctx.step("charge", charge, given, raises=ValueError("no class"))  # error
    await ctx.step("clock", clock, key=3)  # error
    await ctx.step("clock", clock, retries=3)  # error
    await ctx.call(counted, 3, tenant="acme")  # error
    await ctx.call(counted, 3, delay="soon")  # error
    await ctx.start(counted, 3, keey="a")  # error


@app.workflow("typed.bad_await.v1")
async def forgotten_await(ctx: hf.Context, given: Order) -> None:
    ctx.step("charge", charge, given)  # error
    ctx.step("charge", charge, given, timeout=5)  # error
    ctx.step("price", price, "tea")  # error
    ctx.map("prices", price, ["tea"])  # error
    ctx.call(order, given)  # error
    ctx.start(order, given)  # error
    ctx.sleep(5)  # error
    ctx.await_event("paid")  # error
    ctx.approval("boss")  # error


@app.workflow("typed.bad_result.v1")
async def wrong_results(ctx: hf.Context, given: Order) -> None:
    text: str = await ctx.step("charge", charge, given)  # error
    text = await ctx.step("price", price, "tea", timeout=5)  # error
    text = await ctx.call(counted, 3)  # error
    texts: list[str] = await ctx.map("prices", price, ["tea"])  # error
    texts.append((await ctx.step("charge", charge, given)).summ)  # error
    print(text)


@app.workflow("typed.bad_sync_context.v1")
def in_sync_code(ctx: hf.SyncContext, given: Order) -> None:
    ctx.step("charge", charge, "tea")  # error
    ctx.step("charge", charge, "tea", timeout=5)  # error
    ctx.step("charge", charge, given, memo="a note")  # error
    ctx.map("prices", price, [3])  # error
    ctx.call(order, 3)  # error
    ctx.call(nothing, 3)  # error
    ctx.call(counted, 3, tenant="acme")  # error
    ctx.start(order, 3)  # error
    text: str = ctx.step("charge", charge, given)  # error
    print(text)
