"""Measurements in separate processes, taken in turns, and their medians."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.stores import Place

Row = dict[str, Any]
Limit = dict[str, Callable[[], Row]]

HERE = Path(__file__).parent
SECONDS = 600


def begun(script: str, *args: object) -> subprocess.Popen[str]:
    """Start a module of this folder, or a script below it."""
    way = [str(HERE / script)] if script.endswith(".py") else ["-m", f"bench.{script}"]
    command = [sys.executable, *way, *map(str, args)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def wait_for(process: subprocess.Popen[str], word: str) -> None:
    """Wait until the process prints this word."""
    assert process.stdout
    for line in process.stdout:
        if line.strip() == word:
            return
    raise SystemExit(f"{process.args!r} ended before it said {word!r}")


def send_go(process: subprocess.Popen[str]) -> None:
    """Let the process go on."""
    assert process.stdin
    process.stdin.write("go\n")
    process.stdin.flush()


def ended(process: subprocess.Popen[str]) -> Row:
    """Wait for the end of the process, and return its last line."""
    out, _ = process.communicate(timeout=SECONDS)
    if process.returncode:
        raise SystemExit(f"{process.args!r} ended with {process.returncode}")
    return json.loads(out.splitlines()[-1])  # type: ignore[no-any-return]  # one JSON object a line


def run(script: str, *args: object) -> Row:
    """Make one measurement in a separate process."""
    return ended(begun(script, *args))


def load(place: Place, *args: object) -> Row:
    """Measure the engine under this load, in a new store."""
    return run("engine", "throughput", "--url", place.fresh(), "--server", place.server_pid, *args)


def median(rows: list[Row], field: str) -> float:
    return statistics.median(float(row[field]) for row in rows)


def beside(
    place: Place, rounds: int, field: str, goal: str, *args: object, limit: Limit | None = None
) -> None:
    """Measure engine and limit in turn, and print the ratio of their medians."""
    limits: Limit = {"limit": lambda: run(*place.limit(), *args), **(limit or {})}
    engine: list[Row] = []
    best: dict[str, list[Row]] = {name: [] for name in limits}
    for n in range(rounds):
        for name, measure in limits.items():
            best[name].append(measure())
        engine.append(load(place, *args))
        others = ", ".join(f"{name} {rows[-1][field]}" for name, rows in best.items())
        say(f"round {n + 1}: engine {engine[-1][field]}, {others}")
    ours = median(engine, field)
    for name, rows in best.items():
        theirs = median(rows, field)
        say(f"{field}: engine {ours:g}, {name} {theirs:g}, ratio {ours / theirs:.2f}  (goal {goal})")
    say_shares(place, engine, "of each")


def say_shares(place: Place, engine: list[Row], what: str) -> None:
    """Print the processor time of the worker and the server."""
    shares = [f"worker {median(engine, 'cpu_us'):.0f} µs"]
    if place.server_pid:
        shares.append(f"server {median(engine, 'server_cpu_us'):.0f} µs")
    say(f"processor time {what}: {', '.join(shares)}")


def say(line: str) -> None:
    print(f"   {line}", flush=True)
