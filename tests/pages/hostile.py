"""An app that has canaries in every field of the operators' pages."""

from __future__ import annotations

import asyncio

import holdfast as hf
from tests.pages.canaries import KEPT


def hostile_app(store="memory://"):
    """An app whose runs put a text into all fields that a producer controls."""
    app = hf.App(store)

    @app.workflow("bad.gate.v1", retry=hf.Backoff.fixed(0, attempts=1))
    async def gate(ctx, text: str):
        """<img src=x onerror=window.hacked=1>."""
        ctx.send("letters", {text: text}, key=text)
        await ctx.approval(text, ask=text, data={text: [text]})

    @app.workflow("bad.wait.v1")
    async def wait(ctx, text: str):
        await ctx.await_event(text)

    @app.sink("letters")
    async def letters(delivery):
        raise hf.Fatal(next(iter(delivery.payload)))

    app.plan("bad.plan.v1", [hf.Task(one) for one in KEPT])
    return app


async def hostile(app):
    """Fill the store of the app."""
    runs = []
    async with app.worker(poll=0.01):
        for text in KEPT:
            options = {"labels": {"text": text}, "limit_key": text}
            runs.append((await app.start("bad.gate.v1", text, key=text, **options)).id)
            runs.append((await app.start("bad.wait.v1", text, **options)).id)
        for run in runs:
            while (await app.known(run)).status != "waiting":  # noqa: ASYNC110 - a worker is at it
                await asyncio.sleep(0.01)
        while len(await app.outbox(hf.OutboxFilter(statuses=("dead",)))) < len(KEPT):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    for text in KEPT:
        await app.schedule(text, "bad.wait.v1", text, every=3600, limit_key=text, labels={"text": text})
        await app.pause_schedule(text, by=text)
        await app.limit(key=text.replace("%", ""), concurrency=1)
        await app.create_key(text, scopes=["runs.read"], by=text)
        await app.start("bad.wait.v1", text, delay=3600, limit_key=text)
    await app.register("bad.wait.v1", runtime=KEPT[0], description=KEPT[0])
    return runs
