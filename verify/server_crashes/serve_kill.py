"""serve-kill: the server of the HTTP API is killed again and again, under load from another process.

What it has answered is there, exactly once. A client that repeats a start gets the same run. Event streams
that reconnect with Last-Event-ID miss nothing and see nothing twice.
"""

from __future__ import annotations

import asyncio
import random
import socket
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

from holdfast.engine.app.app import App
from holdfast.engine.code.context import Context
from holdfast.http.server import asgi
from holdfast.http.serving import Server
from holdfast.lifecycle import FINAL
from holdfast.records import Scope
from verify import sabotage as sabotages
from verify.checks.report import Check, Report, progress
from verify.environment.environment import LOOK_SECONDS, STALL_SECONDS
from verify.environment.processes import CONTEXT, Fleet, die_with_parent, quiet
from verify.environment.stores import SQLITE, store_url

from .client import BrokenConnection, HttpClient
from .load import TYPE, Seen, clients

TENANT = "default"
BACK_SECONDS = 1.0
CALM_SECONDS = (0.2, 0.8)  # from the time that the server is back to the next kill
LEASE_SECONDS, SLOTS, STEP_SECONDS = 5.0, 20, 0.02
BROKE_SECONDS = 1.0  # a connection that broke so soon after a kill was under way
SCOPES = (Scope.RUNS_READ, Scope.RUNS_WRITE, Scope.PAYLOADS_READ)


def application(url: str) -> App:
    """An app whose runs have two short steps."""
    app = App(url)

    @app.workflow(TYPE)
    async def served(ctx: Context, value: dict[str, int]) -> int:
        await ctx.step("first", asyncio.sleep, STEP_SECONDS)
        await ctx.step("second", asyncio.sleep, STEP_SECONDS)
        return value["n"]

    return app


def labour(url: str, log: str) -> None:
    """Work until killed: the process of a worker."""
    die_with_parent()
    quiet(log)
    application(url).run(slots=SLOTS, lease=LEASE_SECONDS)


def serve(url: str, port: int, log: str, sabotage: str | None) -> None:
    """Serve the HTTP API until killed."""
    die_with_parent()
    quiet(log)

    async def served() -> None:
        app = application(url)
        await app.store.open()
        sabotages.apply_to_server(sabotage, app)
        await Server(asgi(app), "127.0.0.1", port).begin()
        await asyncio.Event().wait()

    asyncio.run(served())


async def serve_kill(
    kills: int = 50,
    seed: int = 0,
    *,
    store: str = SQLITE,
    sabotage: str | None = None,
    back_seconds: float = BACK_SECONDS,
) -> Report:
    """Kill the server `kills` times; compare what clients saw with the store."""
    report, dice, began = Report(f"serve-kill {store}"), random.Random(seed), time.monotonic()
    killed, back, stalled = list[float](), list[float](), list[str]()
    with (
        tempfile.TemporaryDirectory(prefix="hf-", ignore_cleanup_errors=True) as name,
        store_url(store, Path(name)) as url,
    ):
        app, log, port = application(url), f"{name}/processes.log", free_port()
        await app.store.open()
        secret = (await app.create_key("verify", scopes=SCOPES, tenant=TENANT)).secret
        with (
            Fleet(serve, (url, port, log, sabotage), 1) as servers,
            Fleet(labour, (url, log), 1) as workers,
            progress() as tell,
        ):
            await ready(port, secret)
            here, there = CONTEXT.Pipe()
            load: Any = CONTEXT.Process(target=clients, args=(port, secret, seed, there), daemon=True)
            load.start()
            there.close()
            try:
                await asyncio.sleep(1.0)
                for _ in range(kills):
                    await asyncio.sleep(dice.uniform(*CALM_SECONDS))
                    killed.append(time.monotonic())
                    await asyncio.to_thread(servers.kill, servers.members[0])
                    await ready(port, secret)
                    back.append(time.monotonic() - killed[-1])
                    tell(f"{len(killed)} kills, back after {back[-1]:.2f} s")
                here.send("stop")
                runs, rows = await _settled(app, stalled, tell, workers)
                last = rows[-1][0]
                here.send(last)
                seen: Seen = await asyncio.to_thread(_received, here)
            finally:
                load.kill()
                load.join()
        # A run may have ended while the last starts were made: read again, after the last client.
        runs, rows = await _settled(app, stalled, tell, None)
        words = await asyncio.to_thread(_lines, log)
        await app.close()
    for title, cases in _breaches(seen, runs, rows, last):
        report.checks.append(Check(title, len(cases), tuple(cases[:5]), invariant=True))
    late = [f"{seconds:.2f} s" for seconds in back if seconds > back_seconds]
    report.expect(f"back within {back_seconds:g} s each time", not late, " ".join(late))
    report.expect("nothing stalled", not stalled, "\n          ".join([*stalled, *words[-20:]]))
    report.expect(f"planned kills fired: {kills}", len(killed) == kills)
    busy = sum(any(0 <= at - kill < BROKE_SECONDS for at in seen.broken) for kill in killed)
    report.expect("connections broke at each kill", busy == kills, f"at {busy}")
    report.expect("some starts were repeated", seen.repeated > 0 or kills < 10)
    report.figures |= {
        "kills": len(killed), "runs": len(runs), "starts_repeated": seen.repeated,
        "of_these_recorded_before": seen.found, "reads": seen.reads, "followed_runs": len(seen.runs),
        "events_of_all": len(rows), "reconnects": seen.reconnects,
        "back_p50": round(statistics.median(back), 2), "back_max": round(max(back), 2),
        "seconds": round(time.monotonic() - began, 1),
    }  # fmt: skip
    return report


def _lines(file: str) -> list[str]:
    path = Path(file)
    return path.read_text("utf-8", "replace").splitlines() if path.exists() else []


def _received(pipe: Any) -> Seen:
    seen: Seen = pipe.recv()
    return seen


def free_port() -> int:
    """Return a port of loopback that nobody uses."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


async def ready(port: int, key: str) -> None:
    """Wait until the server answers."""
    client, deadline = HttpClient(port, key), time.monotonic() + STALL_SECONDS
    while time.monotonic() < deadline:
        try:
            if (await client.ask("GET", "/readyz")).status == 200:
                client.close()
                return
        except BrokenConnection:
            pass
        await asyncio.sleep(0.01)
    raise RuntimeError("the server did not come back")


Rows = list[tuple[int, UUID]]


async def _settled(
    app: App, stalled: list[str], tell: Any, workers: Fleet | None
) -> tuple[dict[UUID, str | None], Rows]:
    """Wait until all runs have ended; return them with their keys, and the trail of the tenant."""
    deadline = time.monotonic() + STALL_SECONDS
    while True:
        if workers is not None:
            workers.supervise()
        counts = (await app.store.stats()).by_status
        opened = sum(number for status, number in counts.items() if status not in FINAL)
        tell(f"{opened} runs are open")
        if not opened:
            break
        if time.monotonic() > deadline:
            stalled.append(f"{opened} runs are open")
            break
        await asyncio.sleep(LOOK_SECONDS)
    runs: dict[UUID, str | None] = {}
    last = None
    while page := await app.list(limit=500, after=last):
        runs |= {run.id: run.key for run in page}
        last = page[-1].id
    rows: Rows = []
    while entries := await app.trail(after=rows[-1][0] if rows else 0, tenant=TENANT):
        rows += [(entry.seq, entry.run) for entry in entries]
    return runs, rows


def _breaches(
    seen: Seen, runs: dict[UUID, str | None], rows: Rows, last: int
) -> Iterator[tuple[str, list[str]]]:
    """Yield each promise with its breaches. last: the event up to which followers of all runs have waited."""
    by_key = Counter(key for key in runs.values() if key is not None)
    stored = {key: str(run) for run, key in runs.items()}
    of_run: dict[str, list[int]] = {}
    for seq, run in rows:
        of_run.setdefault(str(run), []).append(seq)
    yield "S1 answered starts that are not there", [key for key in seen.ids if key not in stored]
    yield "S2 keys with several runs", [key for key, number in by_key.items() if number > 1]
    yield (
        "S3 keys that were answered with another run",
        [f"{key}: {ids}" for key, ids in seen.ids.items() if key in stored and ids != {stored[key]}],
    )
    yield "S4 keys whose run was new twice", [key for key, times in seen.created.items() if times > 1]
    yield "S5 runs that nobody was told of", [key for key in by_key if key not in seen.ids]
    yield "S6 events of a run missed, or seen twice", [*_different(seen.runs, of_run)]
    every = {
        f"follower {n}": [seq for seq in found if seq <= last] for n, found in enumerate(seen.all_events)
    }
    trail = [seq for seq, _ in rows if seq <= last]
    yield "S7 events of all runs missed, or seen twice", [*_different(every, dict.fromkeys(every, trail))]
    yield "S8 refused requests", seen.wrong


def _different(seen: dict[str, list[int]], stored: dict[str, list[int]]) -> Iterator[str]:
    for name, found in seen.items():
        there = stored.get(name, [])
        if found != there:
            missed, more = sorted({*there} - {*found}), [seq for seq, n in Counter(found).items() if n > 1]
            yield f"{name}: {len(found)} of {len(there)}; missed {missed[:3]}, twice {more[:3]}"
