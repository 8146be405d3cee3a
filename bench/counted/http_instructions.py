"""The cost of a request to the HTTP API, in instructions: a busy machine does not change them.

    python -m bench.counted.http_instructions                SQLite; needs valgrind, some minutes

Callgrind counts the instructions of one process, which calls the API and bare Starlette endpoints as ASGI
applications: 16 tasks, each with its next request when the one before is answered. uvicorn, the sockets and
the kernel are left out: they are the same for both. The store's thread is included. The garbage collector is
off.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import uvloop

from bench.counted.instructions import CALLGRIND, COUNTED
from bench.http_load import TYPE
from bench.http_servers import SCOPES, application, bare_application
from holdfast.http.parsing import WHOLE
from holdfast.http.server import asgi

TASKS = 16
SECONDS = 3600
KINDS = ("bare POST", "bare GET", "POST /runs", "GET /runs/{id}")
Asgi = Callable[[Any, Any, Any], Awaitable[None]]


def scope(method: str, path: str, key: str, idempotency: str = "", size: int = 0) -> dict[str, Any]:
    """Return the scope of a request, as uvicorn makes it."""
    headers = [(b"host", b"127.0.0.1:8000"), (b"user-agent", b"bench"), (b"accept", b"application/json")]
    headers.append((b"authorization", f"Bearer {key}".encode()))
    if idempotency:
        headers += [(b"content-type", b"application/json"), (b"content-length", b"%d" % size)]
        headers.append((b"idempotency-key", idempotency.encode()))
    return {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "server": ("127.0.0.1", 8000),
        "client": ("127.0.0.1", 1), "scheme": "http", "root_path": "", "headers": headers, "state": {},
        "method": method, "path": path, "raw_path": path.encode(), "query_string": b"",
        "extensions": {WHOLE: {}},
    }  # fmt: skip


async def answered(app: Asgi, asked: dict[str, Any], body: bytes) -> bytes:
    """Send one request; return the body of its answer."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await app(asked, receive, send)
    assert sent[0]["status"] in {200, 201}, sent
    return sent[1]["body"]  # type: ignore[no-any-return]


async def many(app: Asgi, requests: list[tuple[dict[str, Any], bytes]]) -> list[bytes]:
    """Send requests by some tasks; return the answers."""
    left, answers = iter(requests), list[bytes]()

    async def task() -> None:
        for asked, body in left:
            answers.append(await answered(app, asked, body))

    await asyncio.gather(*(task() for _ in range(TASKS)))
    return answers


def begin_to_count() -> None:
    """Let callgrind count from here on: the imports before would take longer than all requests."""
    control = subprocess.Popen(["callgrind_control", "-i", "on", str(os.getpid())], stdout=subprocess.DEVNULL)
    while control.poll() is None:  # valgrind looks for commands while the process does something
        sum(range(1000))


async def work(url: str, requests: int) -> None:
    """Send requests of each kind, with a mark before and after them."""
    app = application(url)
    await app.store.open()
    key = (await app.create_key("bench", scopes=SCOPES, tenant="default")).secret

    def starts(name: str, count: int) -> list[tuple[dict[str, Any], bytes]]:
        params = [{"order": n, "amount": 12.5, "lines": ["a", "b"]} for n in range(count)]
        bodies = [json.dumps({"type": TYPE, "params": one}).encode() for one in params]
        return [(scope("POST", "/runs", key, f"{name} {n}", len(one)), one) for n, one in enumerate(bodies)]

    def gets(ids: list[str], count: int) -> list[tuple[dict[str, Any], bytes]]:
        return [(scope("GET", f"/runs/{ids[n % len(ids)]}", key), b"") for n in range(count)]

    served: tuple[Asgi, ...] = (bare_application(), asgi(app))
    gc.disable()
    begin_to_count()
    for one in served:
        ids = [json.loads(answer)["id"] for answer in await many(one, starts("warm", 4 * TASKS))]
        await many(one, gets(ids, 4 * TASKS))
        for asked in (starts("counted", requests), gets(ids, requests)):
            os.getloadavg()
            await many(one, asked)
            os.getloadavg()
    await app.close()


def counts(url: str, requests: int) -> list[float]:
    """Return the instructions of one request of each kind."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "bench.counted.http_instructions",
            "--url",
            url,
            "--requests",
            str(requests),
        ]
        subprocess.run(
            [*CALLGRIND, "--instr-atstart=no", f"--callgrind-out-file={folder}/out", *command],
            env={**os.environ, "PYTHONHASHSEED": "0"},
            check=True,
            capture_output=True,
            timeout=SECONDS,
        )
        files = sorted(Path(folder).glob("out.*"), key=lambda file: int(file.suffix[1:]))
        found = [float(COUNTED.findall(file.read_text())[0]) for file in files]
    return [one / requests for one in found[1 : 2 * len(KINDS) : 2]]


def main() -> None:
    """Count on SQLite."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=320, help="of each kind")
    parser.add_argument("--url", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.url:
        uvloop.run(work(args.url, args.requests))
        return
    with tempfile.TemporaryDirectory() as folder:
        found = dict(zip(KINDS, counts(f"sqlite:///{folder}/bench.db", args.requests), strict=True))
    print(", ".join(f"{kind} {one:,.0f}" for kind, one in found.items()))
    for kind in ("POST", "GET"):
        ours = next(one for name, one in found.items() if name.startswith(f"{kind} /"))
        print(f"{kind}: {ours - found[f'bare {kind}']:,.0f} instructions above the bare endpoint")


if __name__ == "__main__":
    main()
