"""Servers of the HTTP benchmarks, each in a process of its own.

api     the HTTP API of an app, as `holdfast serve` runs it, with an API key
bare    two Starlette endpoints without Holdfast (JSON in, JSON out), with the same settings of uvicorn
direct  no server: some tasks call `start` or `known` of the same client, one after the other

`api` and `bare` print one JSON line when they listen, and one more for each line that they read.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import uvloop
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

import holdfast as hf
from bench.cpu import rss_kib
from holdfast.engine.app.client import StartedBy
from holdfast.engine.app.tenants import bound_client
from holdfast.engine.worker.worker import Worker
from holdfast.http.server import asgi
from holdfast.http.serving import Server
from holdfast.records import Scope
from holdfast.world import RealWorld

TYPE = "bench.order.v1"
TASKS = 16
KEYS = 3  # a key may have 1,000 streams
SCOPES = tuple(one for one in Scope if one is not Scope.OPERATOR)
COUNTED = ("follow", "follow_all", "get", "present", "start", "find_key", "now", "claim", "keys")
RUN = {
    "id": "019a9209-5b0c-7b3e-8a27-6f2f3a3f7d10", "type": TYPE, "status": "queued", "tenant": "default",
    "key": "order 4711", "priority": 100, "attempts": 0, "max_attempts": 3, "crashes": 0, "rev": 1,
    "created_at": "2026-01-01T00:00:00.000000Z", "updated_at": "2026-01-01T00:00:00.000000Z",
    "run_at": "2026-01-01T00:00:00.000000Z", "params": {"order": 4711, "amount": 12.5, "lines": ["a", "b"]},
    "labels": {}, "parent": None, "result": None, "error": None, "progress": None, "waiting_on": [],
}  # fmt: skip


def application(url: str) -> hf.App:
    """An app with one workflow, which nobody executes."""
    app = hf.App(url)

    @app.workflow(TYPE)
    async def order(ctx: hf.Context, order: dict[str, Any]) -> None:
        await ctx.await_event("never")

    return app


async def api(args: argparse.Namespace) -> None:
    """Serve the HTTP API until the input ends."""
    app = application(args.url)
    await app.store.open()
    keys = [
        await app.create_key(f"bench {os.getpid()} {n}", scopes=SCOPES, tenant="default") for n in range(KEYS)
    ]
    calls = _counted(app.store) if args.counted else Counter[str]()
    served = asgi(app)
    server = Server(served, "127.0.0.1", 0)
    await server.begin()
    bulk = Worker(app.store, app.world, {}, name="serve", slots=5, keeper=False, relay=False)
    async with nullcontext() if args.without_worker else bulk:
        await _answered(
            lambda: {
                "port": server.port,
                "keys": [one.secret for one in keys],
                "calls": {**calls},
                "streams": served.api.streams.count,
            }
        )
    await server.stop()
    await app.close()


def _counted(store: Any) -> Counter[str]:
    """Count the calls of the store's verbs."""
    calls: Counter[str] = Counter()

    def counting(name: str, verb: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def called(*args: Any, **options: Any) -> Any:
            calls[name] += 1
            return await verb(*args, **options)

        return called

    for name in COUNTED:
        if (verb := getattr(store, name, None)) is not None:
            setattr(store, name, counting(name, verb))
    return calls


def bare_application() -> Any:
    """Two endpoints of Starlette without Holdfast."""

    async def post(request: Request) -> JSONResponse:
        body = await request.json()
        return JSONResponse({"id": RUN["id"], "type": body["type"], "created": True}, 201)

    async def get(request: Request) -> JSONResponse:
        return JSONResponse({**RUN, "id": request.path_params["run"]})

    return Starlette(
        routes=[Route("/runs", post, methods=["POST"]), Route("/runs/{run}", get, methods=["GET"])]
    )


async def bare(_: argparse.Namespace) -> None:
    """Serve the bare endpoints until the input ends."""
    app = bare_application()

    async def nothing() -> None: ...

    app.api = SimpleNamespace(stop=nothing, world=RealWorld())  # what the server uses
    server = Server(app, "127.0.0.1", 0)
    await server.begin()
    await _answered(lambda: {"port": server.port, "keys": ["none"] * KEYS})
    await server.stop()


async def _answered(figures: Callable[[], dict[str, Any]]) -> None:
    """Print the figures now, and once for each line of the input."""
    lines = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    print(json.dumps(figures()), flush=True)
    while await lines.readline():
        print(json.dumps({**figures(), "rss_kib": rss_kib()}), flush=True)


async def direct(args: argparse.Namespace) -> None:
    """Call the client itself: the share of the library and the store in a request."""
    app = application(args.url)
    await app.store.open()
    client = bound_client(app, "default", StartedBy("bench", "k" * 12, None))
    ids: list[UUID] = []

    async def start(n: int) -> None:
        handle = await client.start(
            TYPE, {"order": n, "amount": 12.5, "lines": ["a", "b"]}, key=f"{args.name} {n}"
        )
        ids.append(handle.id)

    async def known(n: int) -> None:
        await client.known(ids[n % len(ids)])

    figures = {}
    await _shared(start, 200, 0, args.tasks)
    for name, verb in (("post", start), ("get", known)):
        began, used = time.perf_counter(), time.process_time()
        await _shared(verb, args.requests, 1000, args.tasks)
        seconds, cpu = time.perf_counter() - began, time.process_time() - used
        figures[name] = {"per_s": args.requests / seconds, "cpu_us": cpu / args.requests * 1e6}
    await app.close()
    print(json.dumps(figures))


async def _shared(verb: Callable[[int], Awaitable[None]], count: int, first: int, tasks: int) -> None:
    numbers = iter(range(first, first + count))

    async def task() -> None:
        for n in numbers:
            await verb(n)

    await asyncio.gather(*(task() for _ in range(tasks)))


ALL = {each.__name__: each for each in (api, bare, direct)}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=sorted(ALL))
    parser.add_argument("--url", default="")
    parser.add_argument("--name", default="direct")
    parser.add_argument("--requests", type=int, default=4000)
    parser.add_argument("--tasks", type=int, default=TASKS, help="of direct")
    parser.add_argument("--without-worker", action="store_true", help="no worker for bulk operations")
    parser.add_argument("--counted", action="store_true", help="count the calls of the store")
    arguments = parser.parse_args()
    uvloop.run(ALL[arguments.what](arguments))
