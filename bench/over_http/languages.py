"""Workers in Go and TypeScript over HTTP: 5-step runs through one server process, and what batching saves."""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.cpu import cpu_seconds
from bench.measurements import Row, median, say
from bench.over_http.remote import server
from bench.stores import Place
from holdfast.engine.app.app import App
from holdfast.lifecycle import FINAL
from servers import golang
from servers.typescript import TypeScript

TYPE, STEPS = "tour.steps.v1", 5
WHO = ("worker", "server", "database")
TOGETHER, FEW, ALONE = (2000, 300), (600, 10), (200, 1)  # runs, and how many are in flight
ROOT = Path(__file__).resolve().parent.parent.parent
BATCH, LOOK_SECONDS, SAMPLE = 500, 0.02, 300


def languages(place: Place, rounds: int) -> None:
    """Measure 5-step runs of Go and TypeScript workers: 300 and 10 in flight, and one by one. The fewer are
    in flight, the fewer items share a request: that is the effect of batching.
    """
    with tempfile.TemporaryDirectory() as name:
        go = golang.built(golang.find(Path(name)), ROOT / "clients" / "go", "examples/tour", Path(name))
        programs = {"Go": [str(go)], "TypeScript": TypeScript().program("test/flows")}
        found: dict[tuple[str, int], list[Row]] = {}
        for n in range(rounds):
            for language, command in programs.items():
                for runs, flight in (TOGETHER, FEW, ALONE):
                    row = asyncio.run(_measured(place, command, runs, flight))
                    found.setdefault((language, flight), []).append(row)
                    say(f"round {n + 1}: {language}, {flight} in flight: {row['runs_per_s']:.0f} runs/s")
    for (language, flight), rows in found.items():
        used = {who: median(rows, who) for who in WHO}
        whole = sum(used.values())
        shares = ", ".join(f"{who} {each:.0f} µs ({each / whole:.0%})" for who, each in used.items())
        say(
            f"{language}, {flight} in flight: {median(rows, 'runs_per_s'):.0f} runs/s, "
            f"claim to code {median(rows, 'begin_ms'):.1f} ms (p50), {median(rows, 'cores'):.2f} cores busy; "
            f"processor time of a step: {shares}"
        )


async def _measured(place: Place, command: Sequence[str], runs: int, flight: int) -> Row:
    """Let a worker execute runs that are waiting; its start is not counted."""
    url = place.fresh()
    app = App(url)
    try:
        await app.store.open()
        with server(url) as (address, server_pid):
            await _start(app, 1)
            with _worker(command, address, flight) as worker_pid:
                await _ended(app)
                pids = {"worker": worker_pid, "server": server_pid, "database": place.server_pid}
                await app.register(TYPE, runtime="nobody")  # until all runs are there
                await _start(app, runs)
                await app.unregister(TYPE)
                before, began = {who: cpu_seconds(pid) for who, pid in pids.items()}, time.monotonic()
                await _ended(app)
                took = time.monotonic() - began
                used = {who: cpu_seconds(pid) - before[who] for who, pid in pids.items()}
        begin_ms = await _begin_ms(app)
    finally:
        await app.close()
    steps = {who: seconds / (runs * STEPS) * 1e6 for who, seconds in used.items()}
    return {"runs_per_s": runs / took, "begin_ms": begin_ms, "cores": sum(used.values()) / took, **steps}


@contextmanager
def _worker(command: Sequence[str], address: str, flight: int) -> Iterator[int]:
    """Run a worker program while the block runs; yield its process id."""
    env = {**os.environ, "HOLDFAST_URL": address, "HOLDFAST_SLOTS": str(flight)}
    silent = subprocess.DEVNULL
    with subprocess.Popen(command, env=env, stdout=silent, stderr=silent) as process:
        try:
            yield process.pid
        finally:
            process.terminate()


async def _start(app: App, runs: int) -> None:
    for first in range(0, runs, BATCH):
        await app.start_many([(TYPE, 1)] * min(BATCH, runs - first))


async def _ended(app: App) -> None:
    while any(n for status, n in (await app.store.stats()).by_status.items() if status not in FINAL):
        await asyncio.sleep(LOOK_SECONDS)


async def _begin_ms(app: App) -> float:
    """Return the median time from a claim to the begin of the code, as the trail has it."""
    found = []
    for run in await app.list(limit=SAMPLE):
        at = {row.type: row.at for row in await app.trail(run.id)}
        found.append((at["started"] - at["leased"]).total_seconds() * 1000)
    return statistics.median(found)
