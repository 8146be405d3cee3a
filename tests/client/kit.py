"""A real server of the HTTP API in a thread, on a free port of this machine."""

from __future__ import annotations

import asyncio
import threading
from contextlib import asynccontextmanager, suppress

import holdfast as hf
from holdfast.http import asgi
from holdfast.http.serving import Server
from holdfast.records import Scope

EVERY = tuple(Scope)
ALL = tuple(one for one in Scope if one is not Scope.OPERATOR)


def shop(store="memory://"):
    """An app with a few workflows."""
    app = hf.App(store)

    @app.workflow("shop.order.v1")
    async def order(ctx, order: dict):
        receipt = await ctx.step("charge", lambda: f"receipt {order['id']}")
        await ctx.await_event(f"paid:{order['id']}")
        return receipt

    @app.workflow("shop.quick.v1")
    async def quick(ctx, value=None):
        return value

    @app.workflow("shop.report.v1")
    async def report(ctx):
        return "report"

    @app.workflow("shop.gated.v1")
    async def gated(ctx, amount: int = 1):
        decision = await ctx.approval("manager", ask="Pay?", data={"amount": amount})
        return decision.approved

    @app.workflow("shop.broken.v1", retry=hf.Backoff.fixed(0, attempts=1))
    async def broken(ctx):
        raise ValueError("the card 4111 was declined")

    @app.workflow("shop.chain.v1")
    async def chain(ctx, left: int):
        await ctx.step("count", lambda: left)
        if left:
            await ctx.continue_as(left - 1)
        return "done"

    @app.workflow("shop.slow.v1")
    async def slow(ctx, steps: int):
        for n in range(steps):
            await ctx.step(f"step {n}", lambda n=n: n)
            await ctx.sleep(0.01)
        return steps

    return app


class Faults:
    """An ASGI application in front of another: it loses answers, or refuses, as a test asks."""

    def __init__(self, app):
        self.app, self.api = app, None
        self.seen = []  # requests: method, path and status
        self.lose = []  # functions: (method, path) -> lose the answer, after the work was done
        self.refuse = []  # (status, headers, body) of the next requests, before any work is done

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        what = scope["method"], scope["path"]
        if self.refuse:
            status, headers, body = self.refuse.pop(0)
            self.seen.append((*what, status))
            await send({"type": "http.response.start", "status": status, "headers": headers})
            return await send({"type": "http.response.body", "body": body})
        losing = next((one for one in self.lose if one(*what)), None)
        if losing is None:
            return await self.app(scope, receive, self._noted(what, send))
        self.lose.remove(losing)
        said = []

        async def kept(message):
            said.append(message)

        await self.app(scope, receive, kept)
        self.seen.append((*what, "lost"))
        # The answer begins and breaks off: the client cannot know what was done.
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"9")]})
        raise ConnectionResetError("the test has lost this answer")

    def _noted(self, what, send):
        async def noted(message):
            if message["type"] == "http.response.start":
                self.seen.append((*what, message["status"]))
            await send(message)

        return noted


class Serving:
    """An app, its worker if asked, and its server, on an event loop of their own."""

    def __init__(self, app=None, *, worker=False, wrap=None, open=True, **options):
        self.app = app or shop()
        self._worker, self._open, self._options, self._wrap = worker, open, options, wrap
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.port, self.server = 0, None

    def __enter__(self):
        self._thread.start()
        self.run(self._begun())
        return self

    def __exit__(self, *error):
        self.run(self._ended())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(10)
        self.loop.close()

    def run(self, work):
        """Run a coroutine on the loop of the server."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(30)

    async def _begun(self):
        await self.app.publish()
        self._stack = self.app.worker(grace=0) if self._worker else _nothing()
        await self._stack.__aenter__()
        await self._serve()

    async def _serve(self):
        self.api = asgi(self.app, open=self._open, **self._options)
        outer = self._wrap(self.api) if self._wrap else self.api
        self.faults = Faults(outer)
        self.faults.api = self.api.api
        self.server = Server(self.faults, "127.0.0.1", self.port)
        await self.server.begin()
        self.port, self.url = self.server.port, self.server.url

    async def _ended(self):
        await self._stopped()
        await self.api.api.close()  # a mounted API is not told that its server has stopped
        await self._stack.__aexit__(None, None, None)
        await self.app.close()

    async def _stopped(self):
        if self.server is not None:
            await self.server.stop()
            self.server = None

    def stop(self):
        """Stop the server; connections to it are refused."""
        self.run(self._stopped())

    def begin(self):
        """Start the server again, on the same port."""
        self.run(self._serve())

    def key(self, *scopes, name="test", tenant="default", **options):
        """Create an API key and return its text."""
        made = self.app.create_key(name, scopes=scopes or ALL, tenant=tenant, **options)
        return self.run(made).secret

    def client(self, **options):
        return hf.Client(self.url, **{"timeout": 10, **options})

    def begin_later(self, seconds):
        """Start the server again after a time."""

        async def later():
            await asyncio.sleep(seconds)
            with suppress(Exception):
                await self._serve()

        asyncio.run_coroutine_threadsafe(later(), self.loop)


@asynccontextmanager
async def _nothing():
    yield
