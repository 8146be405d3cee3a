"""Export and import of many finished runs: the rate of each store, and the memory of the processes.

    python -m verify.transfer.million RUNS SOURCE_URL TARGET_URL FILE [TARGET_URL ...]

Writes RUNS finished runs into the source, exports them into the file, and imports the file into each target.
The export and each import is a process that is killed with SIGKILL in its middle, and started again. In the
end the file is imported once more, which finds all runs there.
"""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

from holdfast import App
from holdfast.lifecycle import Status, StepKind, StepStatus
from holdfast.records import SECOND
from holdfast.records.transfer import CarriedNote, CarriedRow, CarriedRun, CarriedStep, digest_of
from holdfast.transfer.writing import Writing

BEGIN = 1_790_000_000 * SECOND


def runs(count: int) -> Iterator[CarriedRun]:
    """Yield finished runs of two steps, one after the other in time."""
    for number in range(count):
        at = BEGIN + number * 1000
        name = UUID(int=(at // 1000) << 80 | 7 << 76 | 2 << 62 | number)
        steps = tuple(
            CarriedStep(
                seq=seq, key=f"step {seq}", kind=StepKind.TASK, status=StepStatus.SUCCEEDED, attempts=1,
                output='{"paid":true,"amount":4200}', fence=number, number=seq, started_at=at, finished_at=at,
            )
            for seq in (1, 2)
        )  # fmt: skip
        words = ("created", "leased", "started", "step_succeeded", "step_succeeded", "succeeded")
        row = CarriedRow(
            type="shop.order.v1", run_at=at, created_at=at, updated_at=at, status=Status.SUCCEEDED,
            params=f'{{"order":{number}}}', key=f"order:{number}", attempt=1, fence=number, started_at=at,
            finished_at=at, result='"done"',
        )  # fmt: skip
        run = CarriedRun(
            id=name, tenant="default", row=row, steps=steps,
            notes=tuple(CarriedNote(type=word, at=at, data="{}") for word in words),
        )  # fmt: skip
        run.digest = digest_of(run)
        yield run


def memory() -> int:
    """Return the most memory that this process has had, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def say(what: str, count: int, since: float) -> None:
    seconds = time.monotonic() - since
    print(
        f"{what}: {count:,} runs in {seconds:.0f} s, {count / seconds:,.0f} a second, {memory()} MiB",
        flush=True,
    )


async def write(count: int, source: str) -> None:
    """Write finished runs into a store."""
    app, began = App(source), time.monotonic()
    await app.store.open()
    writing = Writing(app.store)
    for one in runs(count):
        await writing.run(one)
    await writing.flush()
    say("written", count, began)
    await app.close()


async def export(source: str, file: Path) -> None:
    """Export a store, or go on with an export."""
    app, began = App(source), time.monotonic()
    before = file.exists()  # noqa: ASYNC240  # nothing else runs here
    first: list[int] = []

    def progress(number: int) -> None:
        first[:] = first or [number]
        print(number, flush=True)

    report = await app.export(file, resume=before, progress=progress)
    size = f"{report.bytes / 2**20:,.0f} MiB"
    say(f"exported, {size} and {report.runs:,} runs in all", report.runs - (first[0] if before else 0), began)
    await app.close()


async def import_(target: str, file: Path) -> None:
    """Import a file."""
    app, began = App(target), time.monotonic()
    report = await app.import_(file, progress=lambda number: print(number, flush=True))
    assert report.complete
    assert not report.refused_runs
    say(f"imported {report.imported:,}, there {report.there:,}", report.imported + report.there, began)
    await app.close()


def killed(args: list[str], limit: int) -> None:
    """Run a command of this module. Kill it when it has told of so many runs."""
    began = time.monotonic()
    process = subprocess.Popen([*COMMAND, *args], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if line.strip().isdigit() and int(line) >= limit:
            process.kill()
            print(f"{args[0]} killed at {int(line):,} runs, {time.monotonic() - began:.0f} s", flush=True)
            break
    process.wait()


def whole(args: list[str]) -> None:
    """Run a command of this module to its end, and show its last line."""
    done = subprocess.run([*COMMAND, *args], stdout=subprocess.PIPE, text=True, check=True)
    print(done.stdout.splitlines()[-1], flush=True)


COMMAND = [sys.executable, "-m", "verify.transfer.million"]


def main(count: int, source: str, file: Path, targets: list[str]) -> None:
    print(f"load {os.getloadavg()[0]:.1f}", flush=True)
    whole(["write", str(count), source])
    killed(["export", source, str(file)], count // 2)
    whole(["export", source, str(file)])
    for target in targets:
        print(f"{target.partition(':')[0]}, load {os.getloadavg()[0]:.1f}", flush=True)
        killed(["import", target, str(file)], count // 2)
        whole(["import", target, str(file)])
        whole(["import", target, str(file)])


if __name__ == "__main__":
    match sys.argv[1:]:
        case "write", number, url:
            asyncio.run(write(int(number), url))
        case "export", url, path:
            asyncio.run(export(url, Path(path)))
        case "import", url, path:
            asyncio.run(import_(url, Path(path)))
        case number, url, target, path, *more:
            main(int(number), url, Path(path), [target, *more])
        case _:
            sys.exit(__doc__)
