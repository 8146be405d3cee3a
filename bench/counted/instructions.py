"""The cost of metrics for a step, in instructions of the processor: a busy machine does not change them.

    python -m bench.counted.instructions                     SQLite; needs valgrind, some minutes
    python -m bench.counted.instructions --store postgres    the worker's process, without the server

Callgrind counts the instructions. One process reports each kind of happening, with measures and without. A
worker's process executes 5-step runs without metrics, N and then 3N of them: the difference is the cost of
2N runs, because the start and the end of the worker are in both. Another one, without callgrind, tells how
many calls of the store there are for a step. Whole steps with and without metrics are not compared: they
differ by a tenth from time to time, because a commit takes as many items as are there. The reports
differ by 0.5 % at most. The garbage collector is off: a full collection falls into some measurements only.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import uvloop

import holdfast as hf
from bench import stores
from bench.engine import TYPE, Load, fill
from holdfast.engine.measured import measured
from holdfast.engine.worker.held_run import HeldRun
from holdfast.telemetry import measure
from holdfast.telemetry.catalog import STORE_CALL
from holdfast.telemetry.recorder import PROCESS, Distribution, Recorder
from holdfast.world import RealWorld

STEPS = 5
SECONDS = 1800
CALLS = 1000
COUNTED = re.compile(r"^summary: (\d+)", re.MULTILINE)
MARK = "getloadavg"  # a function of the C library that nothing else calls: callgrind writes its counts there
CALLGRIND = ("valgrind", "--tool=callgrind", "--fair-sched=yes", f"--dump-before={MARK}")


class Idle:
    """A store with one verb, which does nothing."""

    traits = None

    async def commit(self, items: object) -> object:
        """Return the items."""
        return items


class Held(HeldRun):
    """A leased run of no worker, whose execution does nothing."""

    def __init__(self, world: RealWorld) -> None:
        self.claim = SimpleNamespace(type=TYPE)  # type: ignore[assignment]
        self.lease_clock = SimpleNamespace(claimed_at=world.monotonic())  # type: ignore[assignment]
        self.world, self.clock_at_claim, self.ended_as = world, 0, "succeeded"

    async def _run(self) -> None:
        return None

    async def _execute_once(self) -> bool:
        return False


async def happenings() -> None:
    """Report each kind of happening many times, without measures and with them; a mark before and after."""
    world = RealWorld()
    recorder, idle = Recorder(), Idle()
    store: Any = measured(idle, recorder, world.monotonic)  # type: ignore[arg-type]
    run = Held(world)
    gc.disable()
    for measures, front in ((None, idle), (store.measures, store)) * 2:  # the first round warms up
        run.measures = measures
        os.getloadavg()
        for _ in range(CALLS):
            run.tried("succeeded", 0)
        os.getloadavg()
        for _ in range(CALLS):
            if measures is not None:
                measures.claimed(TYPE, 0.01)
        os.getloadavg()
        for _ in range(CALLS):
            await run.run()
        os.getloadavg()
        for _ in range(CALLS):
            await front.commit(())
        os.getloadavg()


async def work(url: str, sizes: list[int], slots: int, *, count: bool) -> None:
    """Execute so many runs, one size after the other, with a mark before and after each."""
    app = hf.App(url)
    if count:
        measure(app)
    load = Load(app, STEPS, "step")
    gc.disable()
    for runs in sizes:
        await fill(app, runs)
        load.last += runs
        load.done.clear()
        os.getloadavg()
        async with app.worker(slots=slots) as worker:
            await load.done.wait()
            while worker.busy:
                await asyncio.sleep(0.001)
        os.getloadavg()
    await app.close()
    if count:
        family = next(one for one in PROCESS.families() if one.metric is STORE_CALL)
        calls = sum(sum(one.counts) for one in family.values.values() if isinstance(one, Distribution))
        print(json.dumps(calls / sum(sizes) / STEPS))


def child(*args: object, callgrind: bool = True) -> list[float]:
    """Return the instructions between two marks; without callgrind, the number that is printed."""
    with tempfile.TemporaryDirectory() as folder:
        valgrind = (*CALLGRIND, f"--callgrind-out-file={folder}/out") if callgrind else ()
        done = subprocess.run(
            [*valgrind, sys.executable, "-m", "bench.counted.instructions", *map(str, args)],
            env={**os.environ, "PYTHONHASHSEED": "0"},
            cwd=Path(__file__).parent.parent,
            check=True,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        if not callgrind:
            return [float(done.stdout)]
        # One file for each mark, with the instructions since the one before; the last is of the end.
        files = sorted(Path(folder).glob("out.*"), key=lambda file: int(file.suffix[1:]))
        return [float(COUNTED.findall(file.read_text())[0]) for file in files]


def reports() -> list[float]:
    """Return what a try, a claim, an execution and a call of the store cost more with measures."""
    found = child("--happenings")
    # Each of the four parts has five marks; what is before the first mark of a part is no report.
    parts = [found[1 + 5 * part : 5 + 5 * part] for part in range(4)]
    off, on = parts[2], parts[3]
    return [(one - other) / CALLS for one, other in zip(on, off, strict=True)]


def step(place: stores.Place, args: argparse.Namespace) -> float:
    """Return the instructions of a step of a worker without metrics."""
    sizes = [args.runs, args.runs, 3 * args.runs]  # the first warms up
    found = child("--url", place.fresh(), "--slots", args.slots, "--sizes", *sizes)
    return (found[5] - found[3]) / (2 * int(args.runs) * STEPS)


def compare(place: stores.Place, args: argparse.Namespace) -> None:
    """Print what metrics add to a step."""
    tried, claimed, executed, called = reports()
    print(
        f"try {tried:,.0f}, claim {claimed:,.0f}, execution {executed:,.0f}, call of the store {called:,.0f}"
    )
    (calls,) = child("--url", place.fresh(), "--slots", 300, "--count", "--sizes", 3000, callgrind=False)
    added = tried + (claimed + executed) / STEPS + calls * called
    print(f"{place.name}: {calls:.3f} calls a step, metrics add {added:,.0f} instructions", flush=True)
    bases = [step(place, args) for _ in range(args.rounds)]
    print(
        f"{place.name}: a step without metrics {statistics.median(bases):,.0f} "
        f"({', '.join(f'{one:,.0f}' for one in bases)}); metrics: {1 + added / min(bases):.4f} of the least"
    )


def main() -> None:
    """Compare on one store."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", choices=("sqlite", "postgres", "redis"), default="sqlite")
    parser.add_argument("--rounds", type=int, default=2, help="of the whole step")
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--slots", type=int, default=100)
    for name in ("--happenings", "--count"):
        parser.add_argument(name, action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    parser.add_argument("--sizes", type=int, nargs="*", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.happenings:
        uvloop.run(happenings())
    elif args.url:
        uvloop.run(work(args.url, args.sizes, args.slots, count=args.count))
    elif args.store == "redis":
        with stores.redis() as server:
            compare(server, args)
    else:
        with stores.sqlite(None) if args.store == "sqlite" else stores.postgres(None) as place:
            compare(place, args)


if __name__ == "__main__":
    main()
