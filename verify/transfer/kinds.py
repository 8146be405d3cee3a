"""Workflows of all kinds for the experiment `move`. Every effect is one line of a file outside the stores."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from holdfast import App, Approval, Backoff, Context, PlanTask, Sleep, Task
from verify.environment.processes import die_with_parent, quiet

STRAIGHT, SLEEPER, LISTENER = "move.straight.v1", "move.sleeper.v1", "move.listener.v1"
GATE, PARENT, CHAIN, PLAN, RETRIED = (
    "move.gate.v1", "move.parent.v1", "move.chain.v1", "move.plan.v1", "move.retried.v1",
)  # fmt: skip
KID, FAILING = "move.kid.v1", "move.failing.v1"
KINDS = (STRAIGHT, SLEEPER, LISTENER, GATE, PARENT, CHAIN, PLAN, RETRIED, FAILING)
STEP_SECONDS = 0.03
LINKS = 3  # runs of a chain


class Effects:
    """A file to which many processes append lines."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    async def happen(self, run: object, step: str, value: int) -> int:
        """Write an effect; time passes before and after it."""
        await asyncio.sleep(STEP_SECONDS / 2)
        line = {"run": str(run), "step": step, "at": time.time_ns() // 1000, "pid": os.getpid()}
        os.write(self._fd, json.dumps(line).encode() + b"\n")
        await asyncio.sleep(STEP_SECONDS / 2)
        return value


def define(app: App, effects: Effects) -> App:
    """Define the workflows in an app."""
    _define_waits(app, effects)
    _define_related(app, effects)
    _define_tries(app, effects)
    return app


Step = Callable[[Context, str, int], Awaitable[int]]


def _step_of(effects: Effects) -> Step:
    async def step(ctx: Context, name: str, value: int) -> int:
        return await ctx.step(name, effects.happen, ctx.run_id, name, value)

    return step


def _define_waits(app: App, effects: Effects) -> None:
    step = _step_of(effects)

    @app.workflow(STRAIGHT)
    async def straight(ctx: Context, n: int) -> int:
        return sum([await step(ctx, f"s{i}", n + i) for i in range(5)])

    @app.workflow(SLEEPER)
    async def sleeper(ctx: Context, n: int) -> int:
        before = await step(ctx, "before", n)
        await ctx.sleep(1 + n % 50)
        return before + await step(ctx, "after", 1)

    @app.workflow(LISTENER)
    async def listener(ctx: Context, n: int) -> int:
        before = await step(ctx, "before", n)
        event = await ctx.await_event(f"news.{n}")
        heard: int = event.payload
        return before + heard + await step(ctx, "after", 1)

    @app.workflow(GATE)
    async def gate(ctx: Context, n: int) -> int:
        before = await step(ctx, "before", n)
        decision = await ctx.approval("ok", ask="Go on?")
        return before + decision.approved + await step(ctx, "after", 1)


def _define_related(app: App, effects: Effects) -> None:
    step = _step_of(effects)

    @app.workflow(KID)
    async def kid(ctx: Context, n: int) -> int:
        one = await step(ctx, "one", n)
        await ctx.sleep(1 + n % 30)
        return one + await step(ctx, "two", 1)

    @app.workflow(PARENT)
    async def parent(ctx: Context, n: int) -> int:
        before = await step(ctx, "before", n)
        kids: list[int] = await asyncio.gather(*(ctx.call(KID, n + i, key=f"kid{i}") for i in range(2)))
        return before + sum(kids) + await step(ctx, "after", 1)

    @app.workflow(CHAIN)
    async def chain(ctx: Context, n: int) -> int:
        link = n % 1000
        value = await step(ctx, f"link{link}", n)
        await ctx.sleep(6)
        if link < LINKS - 1:
            ctx.continue_as(n + 1)
        return value


def _define_tries(app: App, effects: Effects) -> None:
    step = _step_of(effects)

    @app.workflow(RETRIED, retry=Backoff.fixed(1.5, attempts=5))
    async def retried(ctx: Context, n: int) -> int:
        async def flaky() -> int:
            if ctx.attempt < 3:
                raise ValueError("not yet")
            return await effects.happen(ctx.run_id, "flaky", n)

        return await ctx.step("flaky", flaky) + await step(ctx, "after", 1)

    @app.workflow(FAILING, retry=Backoff.fixed(0.1, attempts=1))
    async def failing(ctx: Context, n: int) -> int:
        await step(ctx, "before", n)
        await ctx.sleep(n % 20)
        raise ValueError("it fails")

    plan = app.plan(PLAN, [Task("PACK"), Approval("OK"), Sleep("NAP", 1.0), Task("SHIP")])

    @plan.task("PACK")
    async def pack(task: PlanTask) -> int:
        return await effects.happen(task.run_id, "PACK", 1)

    @plan.task("SHIP")
    async def ship(task: PlanTask) -> int:
        packed: int = task.outputs["PACK"]
        return packed + await effects.happen(task.run_id, "SHIP", 2)


def work(url: str, file: str, log: str) -> None:
    """Run a worker until the process is killed."""
    die_with_parent()
    quiet(log)
    define(App(url, name="move"), Effects(Path(file))).run(lease=5.0)
