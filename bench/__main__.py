"""`./hf bench`: the engine beside the bare limit, interleaved, median of the rounds."""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

Row = dict[str, Any]

HERE = Path(__file__).parent


def main() -> None:
    """Run the named measurements, or all."""
    parser = argparse.ArgumentParser(prog="./hf bench", description=__doc__)
    parser.add_argument("what", nargs="*", metavar="NAME", help=f"any of: {', '.join(ALL)} (default: all)")
    parser.add_argument("--rounds", type=int, default=5, help="how often each is measured (default: 5)")
    parser.add_argument("--folder", help="where the files go; a local disk, not a tmpfs (default: here)")
    args = parser.parse_args()
    unknown = set(args.what) - set(ALL)
    if unknown:
        parser.error(f"no measurement {', '.join(sorted(unknown))}; there are {', '.join(ALL)}")
    with tempfile.TemporaryDirectory(dir=args.folder or HERE, prefix=".bench-") as folder:
        for name in args.what or ALL:
            print(f"-- {name}", flush=True)
            ALL[name](Path(folder), args.rounds)


def run(script: str, *args: object) -> Row:
    """One measurement in a process of its own."""
    command = [sys.executable, str(HERE / script), *map(str, args)]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(out.splitlines()[-1])  # type: ignore[no-any-return]  # one JSON object a line


def beside(folder: Path, rounds: int, field: str, goal: str, *load: object) -> None:
    """Engine and limit in turn, and the ratio of their medians."""
    engine, limit = [], []
    for n in range(rounds):
        limit.append(run("limit/sqlite.py", "--file", folder / f"limit{n}.db", *load)[field])
        engine.append(run("engine.py", "throughput", "--file", folder / f"engine{n}.db", *load)[field])
        print(f"   round {n + 1}: engine {engine[-1]}, limit {limit[-1]}", flush=True)
    ours, best = statistics.median(engine), statistics.median(limit)
    print(f"   {field}: engine {ours}, limit {best}, ratio {ours / best:.2f}  (goal {goal})", flush=True)


def steps(folder: Path, rounds: int) -> None:
    """5-step runs, 300 in flight."""
    beside(folder, rounds, "steps_per_s", ">= 0.50", "--runs", 4000, "--steps", 5, "--flight", 300)


def oneshot(folder: Path, rounds: int) -> None:
    """Runs without steps, 300 in flight."""
    beside(folder, rounds, "runs_per_s", ">= 0.40", "--runs", 8000, "--steps", 0, "--flight", 300)


def lone(folder: Path, rounds: int) -> None:
    """One run, one step at a time."""
    beside(folder, rounds, "step_ms_p50", "<= 2.0", "--runs", 1, "--steps", 1000, "--flight", 1)


def latency(folder: Path, rounds: int) -> None:
    """From start to the first line of user code."""
    found = [
        run("engine.py", "latency", "--file", folder / f"latency{n}.db", "--runs", 200) for n in range(rounds)
    ]
    _say("in one process", found, "p50 <= 5 ms")
    found = [_across(folder / f"across{n}.db", 100) for n in range(rounds)]
    _say("across processes", found, "p50 <= 25 ms")


def _across(file: Path, runs: int) -> Row:
    args = ["--file", str(file), "--runs", str(runs)]
    with subprocess.Popen(
        [sys.executable, str(HERE / "engine.py"), "listener", *args], stdout=subprocess.PIPE, text=True
    ) as worker:
        run("engine.py", "sender", *args)
        out, _ = worker.communicate(timeout=60)
    return json.loads(out)  # type: ignore[no-any-return]  # one JSON object


def _say(what: str, found: list[Row], goal: str) -> None:
    p50, p99 = (statistics.median(row[field] for row in found) for field in ("ms_p50", "ms_p99"))
    print(f"   {what}: p50 {p50} ms, p99 {p99} ms  (goal {goal})", flush=True)


def sleeping(folder: Path, _rounds: int) -> None:
    """Memory that sleeping runs cost the worker."""
    row = run("engine.py", "sleeping", "--file", folder / "sleeping.db", "--runs", 10_000)
    print(
        f"   10,000 sleeping runs add {row['rss_kib_added']} KiB to {row['rss_kib_before']} KiB", flush=True
    )


def long(folder: Path, rounds: int) -> None:
    """What a step costs in a run of 5,000 against one of 50."""
    short, tall = [], []
    for n in range(rounds):
        row = run(
            "engine.py",
            "throughput",
            "--file",
            folder / f"short{n}.db",
            "--runs",
            100,
            "--steps",
            50,
            "--flight",
            1,
        )
        short.append(1e6 / row["steps_per_s"])
        row = run(
            "engine.py",
            "throughput",
            "--file",
            folder / f"tall{n}.db",
            "--runs",
            1,
            "--steps",
            5000,
            "--flight",
            1,
        )
        tall.append(1e6 / row["steps_per_s"])
    a, b = statistics.median(short), statistics.median(tall)
    print(f"   a step costs {a:.0f} µs in a run of 50, {b:.0f} µs in one of 5,000", flush=True)
    print(f"   ratio {b / a:.2f}  (goal <= 1.5)", flush=True)


def segment(folder: Path, rounds: int) -> None:
    """5-step runs in segments against one commit a step, one run in flight."""
    found: dict[str, list[float]] = {"step": [], "segment": []}
    for n in range(rounds):
        for mode, rates in found.items():
            load = ("--runs", 400, "--steps", 5, "--flight", 1, "--checkpoint", mode)
            row = run("engine.py", "throughput", "--file", folder / f"{mode}{n}.db", *load)
            rates.append(row["steps_per_s"])
        print(f"   round {n + 1}: segment {found['segment'][-1]}, step {found['step'][-1]}", flush=True)
    ours, plain = statistics.median(found["segment"]), statistics.median(found["step"])
    print(f"   steps_per_s: segment {ours}, step {plain}, ratio {ours / plain:.2f}  (goal >= 3)", flush=True)


def limits(folder: Path, rounds: int) -> None:
    """Claims of twenty under limits, against those where nothing is set."""
    names = ("none", "unrelated", "held", "roomy", "shared")
    found: dict[str, list[float]] = {name: [] for name in names}
    for n in range(rounds):
        for name, rates in found.items():
            rates.append(run("limits.py", name, "--file", folder / f"{name}{n}.db")["claims_per_s"])
    plain = statistics.median(found["none"])
    for name, rates in found.items():
        ours = statistics.median(rates)
        print(f"   {name}: {ours:.0f} claims/s, ratio {ours / plain:.2f}", flush=True)


ALL: dict[str, Callable[[Path, int], None]] = {
    "steps": steps, "oneshot": oneshot, "lone": lone, "latency": latency, "sleeping": sleeping, "long": long,
    "segment": segment, "limits": limits,
}  # fmt: skip

if __name__ == "__main__":
    main()
