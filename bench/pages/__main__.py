"""Pages of the dashboard in a store with a million runs, and the page of a run with 10,000 steps: the
milliseconds in which the server renders them, median and slowest, the processor time of this process and
of the database server, and their size.

    python -m bench.pages                        both stores, a million runs (some minutes, 3 GB)
    python -m bench.pages --store sqlite --rows 100000

The runs are those of `bench.lists`. Goals: each page in 200 ms; the run with 10,000 steps in 300 ms and below
500 KB.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from starlette.types import ASGIApp, Message

import holdfast as hf
from bench import stores
from bench.cpu import cpu_seconds
from bench.lists import SETTINGS, fill_postgres, fill_sqlite
from bench.measurements import say
from holdfast.http import asgi
from holdfast.http.pages.page import menu_pages
from holdfast.lifecycle import Status
from holdfast.records import RunFilter

ROUNDS, STEPS = 7, 10_000
GOAL_MS, LONG_MS, LONG_KB = 200, 300, 500
LINES = (
    "status=failed", "label=customer=77", "since=2d", "type=bench.list7.v1", "waiting-on=event",
    "status=failed type=bench.list7.v1", "error=ValueError%",
    "label=env=prod roots status=waiting",  # no index fits, and no run does: it is given up
)  # fmt: skip


async def answer(app: ASGIApp, path: str, query: str = "") -> tuple[int, int]:
    """Load a page without a network; return its status and its bytes."""
    scope = {
        "type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "root_path": "",
        "query_string": query.encode(), "scheme": "http", "http_version": "1.1", "client": ("127.0.0.1", 1),
        "headers": [(b"host", b"localhost"), (b"accept", b"text/html")],
    }  # fmt: skip
    status, size = 0, 0

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        nonlocal status, size
        status = message.get("status", status)
        size += len(message.get("body", b""))

    await app(scope, receive, send)
    return status, size


async def _long_run(app: hf.App) -> str:
    @app.workflow("bench.long.v1")
    async def long(ctx: hf.Context, steps: int) -> int:
        for number in range(steps):
            await ctx.step(
                f"step {number}", lambda number=number: {"number": number, "text": "some words " * 4}
            )
        return steps

    run = await app.start(long, STEPS)
    async with app.worker(poll=0.05):
        await run.result(timeout=600)
    return str(run.id)


async def _addresses(app: hf.App, long: str) -> list[tuple[str, str]]:
    """Return paths and queries: all pages of the menu, filters of runs, and runs in several statuses."""
    found = [(page.path, "") for page in menu_pages()]
    found += [("/runs", f"q={quote(line)}") for line in LINES]
    found += [
        ("/runs/bulk", f"verb={verb}") for verb in ("cancel&q=status%3Dwaiting", "retry&q=status%3Dfailed")
    ]
    found += [("/workflows/bench.list7.v1", ""), ("/bulk", "")]
    for status in (Status.SUCCEEDED, Status.FAILED, Status.WAITING):
        runs = await app.list(RunFilter(statuses=(status,), values=False), 1)
        found += [(f"/runs/{run.id}", "") for run in runs]
    return [
        *found,
        *((f"/runs/{long}", query) for query in ("", "name=99", "before=5000", "step=step+17&at=18")),
    ]


def _goals(path: str, long: str, slow: float, size: int) -> Iterator[str]:
    is_long = long in path
    if slow > (LONG_MS if is_long else GOAL_MS):
        yield "too slow"
    if is_long and size > LONG_KB * 1024:
        yield "too large"


async def measure(url: str, rows: int, server_pid: int = 0) -> None:
    """Print one line for each page. server_pid: the process of the database server; 0: it has none."""
    app = hf.App(url)
    long = await _long_run(app)
    pages = asgi(app, open=True)
    say(f"{rows:,} runs: median ms, slowest ms, ms on a core of this process and of the database server, KB")
    for path, query in await _addresses(app, long):
        took, used, status, size = list[float](), list[float](), 0, 0
        server_before = cpu_seconds(server_pid)
        for _ in range(ROUNDS):
            began, before = time.perf_counter(), time.process_time()
            status, size = await answer(pages, f"/ui{path}", query)
            took.append((time.perf_counter() - began) * 1000)
            used.append((time.process_time() - before) * 1000)
        middle, slow = statistics.median(took), max(took[1:])
        server = (cpu_seconds(server_pid) - server_before) * 1000 / ROUNDS
        shown = f"{path.replace(long, 'LONG')}{'?' * bool(query)}{query}"
        verdict = "" if status == 200 else f"status {status}"
        words = ", ".join([*filter(None, [verdict]), *_goals(path, long, middle, size)])
        times = f"{middle:8.1f}{slow:8.1f}{statistics.median(used):8.1f}{server:8.1f}"
        say(f"{shown:<60}{times}{size / 1024:8.1f}  {words}")
    await app.close()


async def _made(url: str) -> None:
    app = hf.App(url)
    await app.store.open()
    await app.close()


def main(argv: list[str] | None = None) -> None:
    """Fill the stores, and measure."""
    parser = argparse.ArgumentParser(prog="python -m bench.pages", description=__doc__)
    parser.add_argument("--store", choices=["sqlite", "postgres", "all"], default="all")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--folder", help="where the file goes (default: here)")
    parser.add_argument("--pg", type=int, metavar="VERSION", help="of Postgres (default: the first there is)")
    args = parser.parse_args(argv)
    if args.store != "postgres":
        with stores.sqlite(args.folder) as place:
            url = place.fresh()
            asyncio.run(_made(url))
            fill_sqlite(str(Path(url.removeprefix("sqlite:///"))), args.rows, 0)
            asyncio.run(measure(url, args.rows))
    if args.store != "sqlite":
        with stores.postgres(args.pg, SETTINGS) as server:
            name = server.database()
            url = server.server.url(name)
            asyncio.run(_made(url))
            fill_postgres(server.server.dsn(name), args.rows, 0)
            asyncio.run(measure(url, args.rows, server.server_pid))


if __name__ == "__main__":
    main()
