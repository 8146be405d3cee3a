"""A load generator for HTTP/1.1, in a process of its own: keep-alive connections over raw sockets.

Each connection sends its next request when the one before is answered. Prints one JSON line: requests a
second, latencies, and the processor time of the server process for each request.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import uvloop

from bench.cpu import cpu_seconds

TYPE = "bench.order.v1"
LIMIT_SECONDS = 60.0
HEAD = (
    "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUser-Agent: bench\r\nAccept: {accept}\r\n"
    "Authorization: Bearer {key}\r\n{more}\r\n"
)


def get(port: int, path: str, key: str, accept: str = "application/json", more: str = "") -> bytes:
    """Return the bytes of a GET request."""
    return HEAD.format(method="GET", path=path, port=port, key=key, accept=accept, more=more).encode()


def post(port: int, path: str, key: str, body: bytes, idempotency: str = "") -> bytes:
    """Return the bytes of a POST request."""
    more = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    more += f"Idempotency-Key: {idempotency}\r\n" if idempotency else ""
    head = HEAD.format(method="POST", path=path, port=port, key=key, accept="application/json", more=more)
    return head.encode() + body


class Connection(asyncio.Protocol):
    """One connection: it sends requests until there are no more."""

    def __init__(
        self, requests: Iterator[bytes], answered: Callable[[int, bytes, float], None], pause: float = 0.0
    ) -> None:
        self._requests, self._answered, self._pause = requests, answered, pause
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._buffer = b""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._next()

    def _next(self) -> None:
        request = next(self._requests, None)
        if request is None:
            self._transport.close()
            if not self.done.done():
                self.done.set_result(None)
            return
        self._sent_at = time.perf_counter()
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, blank, body = self._buffer.partition(b"\r\n\r\n")
        if not blank:
            return
        at = head.lower().index(b"content-length:") + 15
        if len(body) < int(head[at : at + 12].split(b"\r\n")[0]):
            return
        self._buffer = b""
        self._answered(int(head[9:12]), body, time.perf_counter() - self._sent_at)
        if self._pause:
            asyncio.get_running_loop().call_later(self._pause, self._next)
        else:
            self._next()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(error or ConnectionError("the server closed the connection"))


async def sent(
    port: int, requests: Iterator[bytes], connections: int, pause: float = 0.0
) -> tuple[list[float], list[bytes]]:
    """Send the requests over so many connections; return latencies in seconds, and bodies."""
    took: list[float] = []
    bodies: list[bytes] = []

    def answered(status: int, body: bytes, seconds: float) -> None:
        if status not in {200, 201}:
            raise SystemExit(f"status {status}: {body.decode()}")
        took.append(seconds)
        bodies.append(body)

    loop = asyncio.get_running_loop()
    made = [
        await loop.create_connection(lambda: Connection(requests, answered, pause), "127.0.0.1", port)
        for _ in range(connections)
    ]
    async with asyncio.timeout(LIMIT_SECONDS):
        await asyncio.gather(*(connection.done for _, connection in made))
    return took, bodies


def starts(port: int, key: str, name: str, count: int) -> Iterator[bytes]:
    """Requests that start runs, each with a key of its own."""
    for n in range(count):
        body = {"type": TYPE, "params": {"order": n, "amount": 12.5, "lines": ["a", "b"]}}
        yield post(port, "/runs", key, json.dumps(body).encode(), f"{name} {n}")


def figures(took: list[float], seconds: float, cpu: float) -> dict[str, float]:
    """Return rate, latencies and processor time."""
    took.sort()
    return {
        "per_s": len(took) / seconds,
        "ms_p50": took[len(took) // 2] * 1e3,
        "ms_p99": took[int(len(took) * 0.99)] * 1e3,
        "cpu_us": cpu / len(took) * 1e6,
    }


async def load(args: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Send starts, then reads of the started runs."""
    port, key = args.port, args.key
    _, bodies = await sent(port, starts(port, key, f"{args.name} warm", 300), args.connections)
    ids = [json.loads(body)["id"] for body in bodies]
    await sent(port, (get(port, f"/runs/{one}", key) for one in ids), args.connections)
    found = {}
    for name in ("post", "get"):
        requests: Iterator[bytes] = starts(port, key, args.name, args.requests)
        if name == "get":
            requests = (get(port, f"/runs/{ids[n % len(ids)]}", key) for n in range(args.requests))
        began, used = time.perf_counter(), cpu_seconds(args.pid)
        took, _ = await sent(port, requests, args.connections)
        found[name] = figures(took, time.perf_counter() - began, cpu_seconds(args.pid) - used)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--key", required=True)
    parser.add_argument("--pid", type=int, required=True, help="the server process")
    parser.add_argument("--name", default="load", help="the beginning of all idempotency keys")
    parser.add_argument("--requests", type=int, default=4000)
    parser.add_argument("--connections", type=int, default=16)
    print(json.dumps(uvloop.run(load(parser.parse_args()))))
