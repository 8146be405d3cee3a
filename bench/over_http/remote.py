"""Workers over HTTP beside workers at the store: 5-step runs, through one server process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from bench.cpu import cpu_seconds
from bench.measurements import Row, load, median, run, say
from bench.stores import Place

LOAD = ("--runs", 2000, "--steps", 5, "--flight", 300)


def remote(place: Place, rounds: int) -> None:
    """Measure 5-step runs, 300 in flight, of a worker at the store and of one behind a server."""
    direct: list[Row] = []
    behind: list[Row] = []
    for n in range(rounds):
        direct.append(load(place, *LOAD))
        behind.append(_behind(place))
        one, other = direct[-1], behind[-1]
        say(f"round {n + 1}: at the store {one['runs_per_s']} runs/s, over HTTP {other['runs_per_s']} runs/s")
    ours, theirs = median(behind, "runs_per_s"), median(direct, "runs_per_s")
    say(f"runs_per_s: over HTTP {ours:g}, at the store {theirs:g}, ratio {ours / theirs:.2f}")
    lag = median(behind, "step_ms_p50"), median(direct, "step_ms_p50")
    say(f"median of a step: over HTTP {lag[0]:.1f} ms, at the store {lag[1]:.1f} ms")
    shares = {"worker": "cpu_us", "server": "server_cpu_us", "database": "database_cpu_us"}
    used = [f"{name} {median(behind, field):.0f} µs" for name, field in shares.items()]
    alone = f"worker {median(direct, 'cpu_us'):.0f} µs, database {median(direct, 'server_cpu_us'):.0f} µs"
    say(f"processor time of a step: over HTTP {', '.join(used)}; at the store {alone}")


def _behind(place: Place) -> Row:
    url = place.fresh()
    with server(url) as (address, pid):
        database = cpu_seconds(place.server_pid)
        row = run("engine", "throughput", "--url", address, "--server", pid, *LOAD)
        used = cpu_seconds(place.server_pid) - database
    return {**row, "database_cpu_us": used / (row["runs"] * row["steps"]) * 1e6}


@contextmanager
def server(url: str) -> Iterator[tuple[str, int]]:
    """Run `holdfast serve` while the block runs; yield its address and its process id."""
    command = [sys.executable, "-m", "holdfast.cli", "serve", "--store", url, "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        try:
            for line in process.stderr:
                if line.startswith("serving "):
                    yield line.split()[1].rstrip(";"), process.pid
                    return
            raise SystemExit("the server has not started")
        finally:
            process.terminate()
            process.communicate(timeout=60)
