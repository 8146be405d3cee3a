"""Workflows of the experiment `largest`: each one writes the largest values that a field may have."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from holdfast.backoff import Backoff
from holdfast.bounds import RUN_BYTES, VALUE_BYTES
from holdfast.engine.app.app import App
from holdfast.engine.code.context import Context
from verify.environment.processes import die_with_parent, quiet

SMALL, ECHO, HEAVY, HISTORY = "bulk.small.v1", "bulk.echo.v1", "bulk.heavy.v1", "bulk.history.v1"
STEPS, WAITER, HERD, GATHER = "bulk.steps.v1", "bulk.waiter.v1", "bulk.herd.v1", "bulk.gather.v1"
LIMITS = f"bulk.{'l' * 240}.v1"  # a type of nearly 255 characters
GO, NEWS, STAMPEDE = "go", "news", "stampede"
NOISE_BYTES = 4_000_000
STORED_BYTES = NOISE_BYTES + 2  # as JSON
TOPIC_LENGTH, NAME_LENGTH, KEY_LENGTH, TENANT_LENGTH = 512, 255, 640, 128
SINK = "bulk"

# JSON writes these characters with 1, 2, 2, 6 and 4 bytes each; inside another JSON text they grow again.
CHARACTERS = {"letters": "x", "quotes": '"', "backslashes": "\\", "controls": "\x01", "astral": "\U0001f600"}
_WRITTEN = {"letters": 1, "quotes": 2, "backslashes": 2, "controls": 6, "astral": 4}


def largest_text(kind: str, size: int = VALUE_BYTES) -> str:
    """Return a text whose JSON is as large as a value may be, or up to 5 bytes smaller."""
    return CHARACTERS[kind] * ((size - 2) // _WRITTEN[kind])


def noise(size: int, seed: int = 0) -> str:
    """Return a text that no database can compress."""
    return random.Random(seed).randbytes(size // 2 + 1).hex()[:size]


def wide(length: int, seed: int) -> str:
    """Return a name of `length` characters of four bytes each, which does not compress."""
    dice = random.Random(seed)
    return "".join(chr(dice.randrange(0x20000, 0x2A000)) for _ in range(length))


def topic_of(n: int) -> str:
    return f"part {n}"


def make_large_app(app: App, bytes_max: int = RUN_BYTES) -> App:
    """Define the workflows in an app. bytes_max: the recorded bytes that a run of `history` may have."""

    @app.workflow(SMALL)
    async def small(ctx: Context, n: int) -> int:
        return await ctx.step("double", lambda: 2 * n)

    @app.workflow(ECHO)
    async def echo(_ctx: Context, said: Any) -> Any:
        return said

    @app.workflow(HEAVY)
    async def heavy(ctx: Context, values: int) -> int:
        for n in range(values):
            await ctx.step(f"value {n}", noise, NOISE_BYTES, n)
        await ctx.await_event(GO)
        return values

    @app.workflow(HISTORY, bytes_max=bytes_max)
    async def history(ctx: Context, values: int) -> int:
        for n in range(values):
            await ctx.step(f"value {n}", noise, NOISE_BYTES, n)
        await ctx.sleep(0.1)  # it parks, and all of its values are loaded again
        return values

    @app.workflow(STEPS)
    async def steps(ctx: Context, count: int) -> int:
        for n in range(count):
            await ctx.step(f"step {n}", lambda n=n: n)
            if n == count // 2:
                await ctx.sleep(0.1)
        return count

    _name_waiters(app)
    _name_limits(app)
    return app


def _name_waiters(app: App) -> None:
    @app.workflow(WAITER)
    async def waiter(ctx: Context) -> int:
        return len((await ctx.await_event(NEWS)).payload)

    @app.workflow(HERD)
    async def herd(ctx: Context) -> None:
        await ctx.await_event(STAMPEDE)

    @app.workflow(GATHER)
    async def gather(ctx: Context, count: int) -> int:
        return len(await asyncio.gather(*(ctx.await_event(topic_of(n)) for n in range(count))))


def _name_limits(app: App) -> None:
    @app.sink(SINK)
    async def sink(message: Any) -> None:
        pass

    @app.workflow(LIMITS)
    async def limits(ctx: Context, said: str) -> str:
        topic, tries = wide(TOPIC_LENGTH, 1), 0

        async def fails_once() -> str:
            nonlocal tries
            tries += 1
            if tries == 1:
                raise ValueError(largest_text("controls"))
            return "at last"

        await ctx.step(wide(KEY_LENGTH, 2), lambda: said)
        await ctx.step("fails", fails_once, retry=Backoff(attempts=3, base_seconds=0.01))
        ctx.log(largest_text("quotes", VALUE_BYTES // 2), more=noise(VALUE_BYTES // 4))
        ctx.progress(2**53, 2**53, note="\x1b" * 200)
        ctx.send(SINK, largest_text("quotes"), key=wide(NAME_LENGTH, 3))
        ctx.emit(topic, largest_text("backslashes"))
        event = await ctx.await_event(topic)
        called = await ctx.call(ECHO, event.payload, labels=labels())
        await ctx.approval("boss", ask="?" * 200, data=largest_text("letters", VALUE_BYTES // 2))
        return str(called)


def labels() -> dict[str, str]:
    """Return labels of the largest length."""
    return {wide(NAME_LENGTH, n): wide(NAME_LENGTH, -n) for n in range(1, 21)}


def run_large_worker(url: str, log: str, options: dict[str, Any]) -> None:
    """Run a worker until the process is killed."""
    from holdfast.stores import make_store

    die_with_parent()
    quiet(log)
    make_large_app(App(make_store(url), name="bulk"), options.pop("bytes_max")).run(**options)
