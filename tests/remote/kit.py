"""A server for workers over HTTP, an app that works there, and helpers to wait in real time."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager

import holdfast as hf
from holdfast.client.work.store import RemoteStore
from holdfast.engine.app.client import StoreClient
from holdfast.lifecycle import FINAL
from holdfast.stores import make_store
from holdfast.world import RealWorld
from tests.client import kit

PATIENCE_SECONDS = 30.0


class Bare(StoreClient):
    """The store of a server that knows no workflows."""

    async def publish(self):
        await self.store.open()

    async def close(self):
        await self.store.close()


class Serving(kit.Serving):
    """A server without an app."""

    def __init__(self, url, **options):
        super().__init__(Bare(make_store(url), RealWorld()), **options)

    @property
    def store(self):
        """The verbs of the store itself, on the loop of the server: `server.store.get(run)`."""
        return _Direct(self)

    def key(self, *scopes, name="test", tenant="default", **options):
        made = self.run(self.app.create_key(name, scopes=scopes, tenant=tenant, **options))
        return made.secret


class _Direct:
    def __init__(self, server):
        self._server = server

    def __getattr__(self, verb):
        method = getattr(self._server.app.store, verb)
        return lambda *args, **kwargs: self._server.run(method(*args, **kwargs))


def shop(store, *, key=None, world=None):
    """An app with a few workflows; `ran` lists the steps that were executed."""
    if isinstance(store, str) and key is not None:
        store = RemoteStore(store, key, world)
    app = hf.App(store, name="remote", world=world)
    app.ran = []

    def ran(name):
        app.ran.append(name)
        return name

    @app.workflow("shop.order.v1")
    async def order(ctx, n: int = 0):
        await ctx.step("charge", lambda: ran(f"charge {n}"))
        await ctx.sleep(0.05)
        await ctx.step("ship", lambda: ran(f"ship {n}"))
        return n

    @app.workflow("shop.held.v1")
    async def held(ctx, seconds: float):
        async def work():
            ran("begun")
            try:
                await asyncio.sleep(seconds)
            except asyncio.CancelledError:
                ran("interrupted")
                raise
            return ran("ended")

        await ctx.step("work", work)
        return await ctx.step("after", lambda: ran("after"))

    return app


async def ended(app, *runs, seconds=PATIENCE_SECONDS):
    """Wait for the ends of runs, and return them."""
    async with asyncio.timeout(seconds):
        while True:
            found = [await app.get(run) for run in runs]
            if all(one.status in FINAL for one in found):
                return found
            await asyncio.sleep(0.02)


async def until(holds, seconds=PATIENCE_SECONDS):
    """Wait in real time for what a server or another process does."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it does not happen"
        await asyncio.sleep(0.01)


@asynccontextmanager
async def working(app, **options):
    """A worker of an app, whose connections are closed at the end."""
    try:
        async with app.worker(**{"grace": 0, **options}) as worker:
            yield worker
    finally:
        await app.close()
