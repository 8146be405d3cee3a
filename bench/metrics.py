"""The cost of metrics: processor time of a worker for each step, with and without them, and of one scrape.

    python -m bench.metrics                       SQLite: nothing configured, counted, OpenTelemetry
    python -m bench.metrics --store postgres      the same on Postgres
    python -m bench.metrics --against ../other    also another checkout, without metrics: ratios are to it

Each measurement is a process of its own with a new store; the kinds take turns, and the medians are compared.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from bench import stores

ROOT = Path(__file__).resolve().parent.parent

CHILD = """
import argparse, asyncio, json, sys
from bench import engine
kind, url, runs, flight = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
if kind == "counted":
    import holdfast as hf
    from holdfast.telemetry import measure
    made = hf.App
    def counted(*args, **options):
        app = made(*args, **options)
        measure(app)
        return app
    engine.hf.App = counted
elif kind == "otel":
    from opentelemetry import metrics
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    metrics.set_meter_provider(MeterProvider([InMemoryMetricReader()], shutdown_on_exit=False))
args = argparse.Namespace(url=url, steps=5, checkpoint="step", plan=False, runs=runs, flight=flight, server=0)
import uvloop
print(json.dumps(uvloop.run(engine.throughput(args))))
"""


def measured(kind: str, tree: Path, url: str, runs: int, flight: int) -> float:
    """Return the microseconds of processor time that a worker takes for one step."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD, kind, url, str(runs), str(flight)],
        env={**os.environ, "PYTHONPATH": f"{tree / 'src'}:{tree}"},
        cwd=tree,
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
    )
    return float(json.loads(done.stdout.splitlines()[-1])["cpu_us"])


def compare(args: argparse.Namespace, place: stores.Place) -> None:
    """Print the medians of all kinds."""
    kinds = [("off", ROOT), ("counted", ROOT), ("otel", ROOT)]
    if args.against is not None:
        kinds.insert(0, ("other", args.against.resolve()))
    kinds = [one for one in kinds if one[0] in args.kinds or not args.kinds]
    found: dict[str, list[float]] = {kind: [] for kind, _ in kinds}
    for _ in range(args.rounds):
        for kind, tree in kinds:
            found[kind].append(measured(kind, tree, place.fresh(), args.runs, args.flight))
    base = statistics.median(found[kinds[0][0]])
    for kind, times in found.items():
        pairs = [one / other for one, other in zip(times, found[kinds[0][0]], strict=True)]
        print(
            f"{place.name} {kind:8} {statistics.median(times):7.1f} us a step  "
            f"{statistics.median(times) / base:.3f} (pairs {statistics.median(pairs):.3f}, "
            f"least {min(times) / min(found[kinds[0][0]]):.3f})  {times}"
        )


def scrape() -> None:
    """Print the time of one scrape of a process with 50 types."""
    from holdfast import App
    from holdfast.telemetry.prometheus import exposition
    from holdfast.telemetry.recorder import PROCESS

    for n in range(50):
        for outcome in ("succeeded", "failed", "retried", "cancelled"):
            PROCESS.tried(f"shop.order{n}.v1", outcome, 0.1)
        PROCESS.claimed(f"shop.order{n}.v1", 0.1)
        PROCESS.resumed(f"shop.order{n}.v1", 0.1)
        PROCESS.executed(f"shop.order{n}.v1", "succeeded")
    for verb in range(30):
        PROCESS.called(f"verb{verb}", 0.1)
    gc.collect()
    app, times, size = App("memory://"), list[float](), 0
    for _ in range(20):
        began = time.process_time()
        _, text = asyncio.run(exposition(app, store=False))
        times.append(time.process_time() - began)
        size = len(text)
    print(f"one scrape, 50 types: {statistics.median(times) * 1e3:.1f} ms, {size / 1024:.0f} KiB")


def recorded() -> None:
    """Print the time of one observation."""
    from holdfast.telemetry.recorder import Recorder

    recorder, many = Recorder(), 200_000
    began = time.process_time()
    for _ in range(many):
        recorder.tried("shop.order.v1", "succeeded", 0.01)
    print(f"one observation: {(time.process_time() - began) / many * 1e9:.0f} ns")


def main() -> None:
    """Print all of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--against", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--runs", type=int, default=3000)
    parser.add_argument("--flight", type=int, default=300)
    parser.add_argument("kinds", nargs="*")
    args = parser.parse_args()
    recorded()
    scrape()
    with stores.sqlite(None) if args.store == "sqlite" else stores.postgres(None) as place:
        compare(args, place)


if __name__ == "__main__":
    main()
