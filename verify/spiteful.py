"""The app of the experiment `hostile`: canaries that must go on, and workflows that say what they like."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.engine.app import App
from holdfast.engine.context import Context
from holdfast.engine.plans.elements import Approval, Task
from holdfast.engine.plans.task import PlanTask
from holdfast.errors import Fatal

from .processes import die_with_parent, quiet
from .spite import Spite

CANARY = "canary.sings.v1"
NAP_SECONDS = 0.05


class Wanted(msgspec.Struct):
    """Params that few hostile values fit."""

    amount: int
    note: str = ""


def song(run: Any) -> str:
    """The topic that a canary waits for."""
    return f"song of {run}"


def make_spiteful(app: App) -> App:
    """Name the workflows in an app."""

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
        spite = Spite(int(ctx.random() * 2**32))
        ctx.log(spite.text(), level=spite.text(), more=spite.text())
        ctx.progress(spite.dice.random(), note=spite.text())
        await ctx.step(f"s{spite.text()}", spite.text)
        if spite.chance(0.5):
            raise Fatal(spite.text() * 3)
        await ctx.approval(f"g{spite.text()}", ask=spite.text(), data={"x": spite.text()}, timeout=2.0)
        return spite.text()

    plan = app.plan("hostile.plan.v1", [Task("PACK"), Approval("GATE"), Task("SHIP")])

    @plan.task("PACK")
    async def pack(task: PlanTask) -> Any:
        return task.params

    @plan.task("SHIP")
    async def ship(_task: PlanTask) -> str:
        return "shipped"

    return app


def spiteful_work(url: str, log: str, options: dict[str, Any]) -> None:
    """Be a worker process, until killed."""
    from holdfast.stores import make_store

    die_with_parent()
    quiet(log)
    make_spiteful(App(make_store(url), name="spiteful")).run(**options)


def __getattr__(name: str) -> Any:
    """`app`, for `holdfast dev verify.spiteful:app`: made when it is asked for, on the store named there."""
    if name != "app":
        raise AttributeError(name)
    return make_spiteful(App(name="dev"))
