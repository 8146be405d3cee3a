"""Many open pages with live updates on one server process, with real connections from a second process.

    python -m bench.pages.live                       500 pages of two views, on SQLite
    python -m bench.pages.live --store postgres --sessions

The server is a process of its own, in a store with some thousand runs. This process opens the connections,
starts a run each second, and loads other pages meanwhile. It prints how often the store is asked for each
view, the processor time and the memory of the server, how late a change comes, and how long other requests
take before the pages are open and while they are. `--sessions`: a server with keys, where each page has a
session of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import json
import resource
import statistics
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from bench import stores
from bench.measurements import say
from holdfast.contract import Store
from holdfast.contract.forwarding import VERBS
from holdfast.engine.app.app import App
from holdfast.http.connections import raise_file_limit
from holdfast.http.server import asgi
from holdfast.http.serving import Server
from holdfast.records import Scope
from holdfast.stores import make_store

SECONDS = 15
RUNS = 2_000  # in the store before
BETWEEN_SECONDS = 0.1  # other requests
SIGN_IN_AT_ONCE = 20
KEYS = 10  # a key has at most 100 sessions
VIEWS = ("/", "/runs")
OTHERS = ("/runs?q=status%3Dfailed", "/workflows", "/bulk")
TYPE = "bench.live.v1"


# The server -----------------------------------------------------------------------------------------------


def counted(store: Store) -> Counter[str]:
    """Count the calls of each verb of the store from now on."""
    calls: Counter[str] = Counter()

    def counting(name: str, verb: Any) -> Any:
        async def call(*args: Any, **options: Any) -> Any:
            calls[name] += 1
            return await verb(*args, **options)

        return call

    for name in VERBS:
        verb = getattr(store, name)
        if inspect.iscoroutinefunction(verb):
            setattr(store, name, counting(name, verb))
    return calls


async def serve(url: str, *, keyed: bool) -> None:
    """Serve the pages; print the numbers so far for each line that comes."""
    raise_file_limit()
    store = make_store(url)
    app = App(store)
    await store.open()
    scopes = [Scope.RUNS_READ, Scope.RUNS_WRITE, Scope.METRICS]
    keys = [(await app.create_key(f"bench {n}", scopes=scopes)).secret for n in range(KEYS if keyed else 0)]
    for _ in range(RUNS):
        await app.start(TYPE, delay=3600)
    calls = counted(store)
    made = asgi(app, open=not keyed)
    assert made.pages is not None
    server = Server(made, "127.0.0.1", 0)
    await server.begin()
    print(json.dumps({"port": server.port, "keys": keys}), flush=True)
    while await asyncio.to_thread(sys.stdin.readline):
        numbers = {
            "calls": dict(calls), "reads": made.pages.views.reads, "streams": made.api.streams.count,
            "cpu": time.process_time(), "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            "memory": _resident(),
        }  # fmt: skip
        print(json.dumps(numbers), flush=True)
    await server.stop()
    await made.close()
    await store.close()


def _resident() -> float:
    """Return the memory of this process in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


# The browsers ---------------------------------------------------------------------------------------------


class Site:
    """Requests to the server."""

    def __init__(self, port: int, keys: Sequence[str]) -> None:
        self.port, self._keys = port, keys

    async def send(self, method: str, path: str, headers: Sequence[str] = (), body: str = "") -> Any:
        """Send a request on a connection of its own; return the reader, the writer, and the head."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=2**22)
        lines = [f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{self.port}", *headers]
        if body:
            lines.append(f"Content-Length: {len(body)}")
        writer.write(("\r\n".join(lines) + "\r\n\r\n" + body).encode())
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        return reader, writer, head

    async def load(self, path: str, cookie: str = "") -> float:
        """Load a page to its end; return the milliseconds."""
        began = time.perf_counter()
        reader, writer, head = await self.send("GET", f"/ui{path}", [*_cookies(cookie), "Connection: close"])
        await reader.read()
        writer.close()
        assert " 200 " in head.splitlines()[0], head
        return (time.perf_counter() - began) * 1000

    async def sign_in(self, number: int = 0) -> str:
        """Begin a session; return its cookie. A server without keys needs none."""
        if not self._keys:
            return ""
        key = self._keys[number % len(self._keys)]
        form = ["Content-Type: application/x-www-form-urlencoded", "Connection: close"]
        _, writer, head = await self.send("POST", "/ui/sign-in", form, f"key={key}")
        writer.close()
        (line,) = [one for one in str(head).splitlines() if one.lower().startswith("set-cookie:")]
        return line.partition(":")[2].partition(";")[0].strip()

    async def start_run(self) -> None:
        """Start a run over the API."""
        said = ["Content-Type: application/json", "Connection: close"]
        said += [f"Authorization: Bearer {self._keys[0]}"] if self._keys else []
        _, writer, head = await self.send("POST", "/runs", said, json.dumps({"type": TYPE, "delay": 3600}))
        writer.close()
        assert " 201 " in head.splitlines()[0], head


def _cookies(cookie: str) -> list[str]:
    return [f"Cookie: {cookie}"] if cookie else []


class Followers:
    """Open pages. late: milliseconds between the start of a run and its event, of each page."""

    def __init__(self, site: Site) -> None:
        self._site, self.late, self.began_at, self.open = site, list[float](), 0.0, 0

    async def follow(self, path: str, cookie: str) -> None:
        """Follow a view until the end."""
        accept = [*_cookies(cookie), "Accept: text/event-stream"]
        reader, writer, head = await self._site.send("GET", f"/ui{path}", accept)
        assert " 200 " in head.splitlines()[0], head
        seen, is_first = 0.0, True
        try:
            while line := await reader.readline():
                if not line.startswith(b"data:"):
                    continue
                if is_first:
                    is_first, self.open = False, self.open + 1
                elif self.began_at > seen:  # the first event after a start
                    seen = self.began_at
                    self.late.append((time.perf_counter() - self.began_at) * 1000)
        finally:
            writer.close()


async def others(site: Site, cookie: str, seconds: float) -> list[float]:
    """Load other pages for some time; return the milliseconds of each."""
    took, ends, number = list[float](), time.perf_counter() + seconds, 0
    while time.perf_counter() < ends:
        took.append(await site.load(OTHERS[number % len(OTHERS)], cookie))
        number += 1
        await asyncio.sleep(BETWEEN_SECONDS)
    return took


async def measure(url: str, pages: int, *, keyed: bool) -> None:
    """Open the pages, and print what they cost."""
    raise_file_limit()
    args = [sys.executable, "-m", "bench.pages.live", "--serve", url, *(["--sessions"] if keyed else [])]
    server = await asyncio.create_subprocess_exec(
        *args, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    given, said = server.stdin, server.stdout
    assert given is not None
    assert said is not None

    async def numbers() -> dict[str, Any]:
        given.write(b"\n")
        found: dict[str, Any] = json.loads(await said.readline())
        return found

    try:
        began = json.loads(await said.readline())
        site = Site(began["port"], began["keys"])
        first = await site.sign_in()
        alone = await others(site, first, SECONDS / 3)
        before = await numbers()
        gate = asyncio.Semaphore(SIGN_IN_AT_ONCE)

        async def signed_in(number: int) -> str:
            async with gate:
                return await site.sign_in(number)

        cookies = await asyncio.gather(*(signed_in(number) for number in range(pages)))
        followers = Followers(site)
        opening = time.perf_counter()
        tasks = [
            asyncio.create_task(followers.follow(VIEWS[number % len(VIEWS)], cookie))
            for number, cookie in enumerate(cookies)
        ]
        while followers.open < pages and not any(one.done() for one in tasks):
            await asyncio.sleep(0.05)
        for one in tasks:
            if one.done():
                one.result()
        say(f"{pages} pages are open after {time.perf_counter() - opening:.1f} s")
        start = await numbers()
        loading = asyncio.create_task(others(site, first, SECONDS))
        for _ in range(SECONDS):
            followers.began_at = time.perf_counter()
            await site.start_run()
            await asyncio.sleep(1.0)
        beside = await loading
        _told(pages, before, start, await numbers(), alone, beside, followers.late)
        for one in tasks:
            one.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(2.0)
        after, left = await numbers(), await numbers()
        say(f"after all pages are closed: {left['streams']} streams, {left['reads'] - after['reads']} reads")
    finally:
        given.close()
        with suppress(ProcessLookupError):
            await asyncio.wait_for(server.wait(), 30)


def _told(
    pages: int,
    before: dict[str, Any],
    start: dict[str, Any],
    end: dict[str, Any],
    alone: list[float],
    beside: list[float],
    late: list[float],
) -> None:
    calls = Counter(end["calls"])
    calls.subtract(start["calls"])
    loads = len(beside) / SECONDS
    reads = (end["reads"] - start["reads"]) / SECONDS
    say(f"views: {len(VIEWS)}; reads of a view: {reads / len(VIEWS):.2f} a second for each view")
    say(f"calls of the store a second, with {loads:.0f} other pages a second and one start a second:")
    say("  " + ", ".join(f"{name} {number / SECONDS:.1f}" for name, number in calls.most_common() if number))
    say(f"processor time of the server: {(end['cpu'] - start['cpu']) / SECONDS:.2f} s a second")
    more = end["memory"] - before["memory"]
    say(f"memory of the server: {end['memory']:.0f} MB, {more * 1024 / pages:.0f} KB more for each page")
    say(f"a change comes after: {_spread(late)} ms ({len(late)} events of {pages * SECONDS})")
    say(f"other pages alone: {_spread(alone)} ms; beside the open pages: {_spread(beside)} ms")


def _spread(numbers: list[float]) -> str:
    ordered = sorted(numbers)
    if not ordered:
        return "none"
    high = ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]
    return f"median {statistics.median(ordered):.0f}, p99 {high:.0f}, most {ordered[-1]:.0f}"


def main(argv: list[str] | None = None) -> None:
    """Follow the pages, and print what that costs."""
    parser = argparse.ArgumentParser(prog="python -m bench.pages.live", description=__doc__)
    parser.add_argument("--pages", type=int, default=500)
    parser.add_argument("--store", choices=["sqlite", "postgres"], default="sqlite")
    parser.add_argument("--sessions", action="store_true", help="a server with keys, a session for each page")
    parser.add_argument("--folder", help="where the file goes (default: here)")
    parser.add_argument("--pg", type=int, metavar="VERSION", help="of Postgres (default: the first there is)")
    parser.add_argument("--serve", metavar="URL", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.serve:
        asyncio.run(serve(args.serve, keyed=args.sessions))
        return
    place = stores.sqlite(args.folder) if args.store == "sqlite" else stores.postgres(args.pg, {})
    with place as one:
        asyncio.run(measure(one.fresh(), args.pages, keyed=args.sessions))


if __name__ == "__main__":
    main()
