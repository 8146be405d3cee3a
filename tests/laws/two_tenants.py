"""Two separate stores, and a tenant that has one thing of each kind."""

from __future__ import annotations

import asyncio
import inspect
from dataclasses import dataclass
from uuid import UUID, uuid4

import holdfast as hf
from holdfast import App
from holdfast.stores.memory import MemoryStore
from holdfast.stores.sqlite import SqliteStore

ORDER = "shop.order.v1"


@dataclass(frozen=True)
class Things:
    """The ids and names of a tenant's things, or of things that do not exist."""

    runs: dict[str, UUID]
    message: str
    key: str
    schedule: str = "nightly"


class CallRecorder:
    """A wrapper of a store that notes the verbs that are called."""

    def __init__(self, inner):
        self.inner, self.calls = inner, []

    def __getattr__(self, name):
        found = getattr(self.inner, name)
        if inspect.iscoroutinefunction(found):
            self.calls.append(name)
        return found


def two_stores(kind, request, folder):
    """Return two separate stores of one kind."""
    if kind == "postgres":
        from holdfast.stores.postgres import PostgresStore

        url = request.getfixturevalue("postgres_database").url
        return [PostgresStore(f"{url}{'&' if '?' in url else '?'}schema={name}") for name in ("full", "bare")]
    if kind == "redis":
        from holdfast.stores.redis import RedisStore

        url = request.getfixturevalue("redis_url")
        return [RedisStore(url.replace("prefix=", f"prefix={name}-")) for name in ("full", "bare")]
    if kind == "sqlite":
        return [SqliteStore(str(folder / f"{name}.db")) for name in ("full", "bare")]
    return [MemoryStore(), MemoryStore()]


def app_of(store, **options):
    app = App(CallRecorder(store), **options)

    @app.workflow(ORDER)
    async def order(ctx, n: int = 1) -> int:
        return n

    @app.workflow("shop.wait.v1")
    async def wait(ctx):
        await ctx.await_event("go")

    @app.workflow("shop.gate.v1")
    async def gate(ctx):
        await ctx.approval("GATE", ask="Ship it?")

    @app.workflow("shop.send.v1")
    async def send(ctx):
        ctx.send("mail", {"to": "ann"})
        return "sent"

    @app.workflow("shop.fail.v1")
    async def fail(ctx):
        raise hf.Fatal("broken")

    app.plan("shop.plan.v1", [hf.Approval("GATE"), hf.Task("SHIP")])
    return app


async def furnished(app, tenant):
    """Create one thing of each kind for a tenant."""
    of = app.of(tenant)
    runs = {}
    async with app.worker(poll=0.01):
        for name in ("wait", "gate", "send", "fail", "plan"):
            runs[name] = (await of.start(f"shop.{name}.v1", key=f"key of {name}")).id
        for name, status in {"send": hf.Status.SUCCEEDED, "fail": hf.Status.FAILED, "wait": hf.Status.WAITING,
                             "gate": hf.Status.WAITING, "plan": hf.Status.WAITING}.items():  # fmt: skip
            while (await of.known(runs[name])).status is not status:  # noqa: ASYNC110 - a worker is at it
                await asyncio.sleep(0.01)
    for name in ("pending", "paused", "deleted"):
        runs[name] = (await of.start(ORDER, 7, key=f"key of {name}", delay=3600, labels={"a": "b"})).id
    await of.pause(runs["paused"])
    await of.delete(runs["deleted"])
    await of.schedule("nightly", ORDER, 7, every=3600)
    (message,) = await of.outbox()
    await of.emit("other", id="e1")
    made = await of.create_key("ci", scopes=["work", "admin"])
    return Things(runs, message.id, made.key.id)


def nothing_like(things):
    return Things({name: uuid4() for name in things.runs}, "no such message", "k00000000000")
