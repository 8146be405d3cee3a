"""The app of the experiment `hostile`: canaries that must end, and workflows with hostile values."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.engine.app.app import App
from holdfast.engine.code.context import Context
from holdfast.engine.plans.elements import Approval, Task
from holdfast.engine.plans.task import PlanTask
from holdfast.errors import Fatal
from verify.environment.processes import die_with_parent, quiet

from .values import HostileValues

CANARY = "canary.sings.v1"
NAP_SECONDS = 0.05


class Wanted(msgspec.Struct):
    """Params of a type that few hostile values fit."""

    amount: int
    note: str = ""


def song(run: Any) -> str:
    """Return the topic that a canary waits for."""
    return f"song of {run}"


def make_hostile_app(app: App) -> App:
    """Define the workflows in an app."""

    @app.workflow(CANARY)
    async def canary(ctx: Context, n: int) -> int:
        doubled = await ctx.step("double", lambda: 2 * n)
        await ctx.sleep(NAP_SECONDS)
        await ctx.await_event(song(ctx.run_id))
        return doubled

    @app.workflow("hostile.echo.v1")
    async def echo(_ctx: Context, said: Any) -> Any:
        return said

    @app.workflow("hostile.typed.v1")
    async def typed(_ctx: Context, wanted: Wanted) -> int:
        return wanted.amount

    @app.workflow("hostile.waiter.v1")
    async def waiter(ctx: Context, said: Any) -> Any:
        return [said, (await ctx.await_event("hostile")).payload]

    @app.workflow("hostile.says.v1")
    async def says(ctx: Context, _said: Any) -> Any:
        values = HostileValues(int(ctx.random() * 2**32))
        ctx.log(values.text(), level=values.text(), more=values.text())
        ctx.progress(values.dice.random(), note=values.text())
        await ctx.step(f"s{values.text()}", values.text)
        if values.chance(0.5):
            raise Fatal(values.text() * 3)
        await ctx.approval(f"g{values.text()}", ask=values.text(), data={"x": values.text()}, timeout=2.0)
        return values.text()

    plan = app.plan("hostile.plan.v1", [Task("PACK"), Approval("GATE"), Task("SHIP")])

    @plan.task("PACK")
    async def pack(task: PlanTask) -> Any:
        return task.params

    @plan.task("SHIP")
    async def ship(_task: PlanTask) -> str:
        return "shipped"

    return app


def run_hostile_worker(url: str, log: str, options: dict[str, Any]) -> None:
    """Run a worker until the process is killed."""
    from holdfast.stores import make_store

    die_with_parent()
    quiet(log)
    make_hostile_app(App(make_store(url), name="hostile")).run(**options)


def __getattr__(name: str) -> Any:
    """Make `app` for `holdfast dev verify.hostile.app:app` at its first use, on the store of that command."""
    if name != "app":
        raise AttributeError(name)
    return make_hostile_app(App(name="dev"))
