"""purging: many expired runs are removed while workers work; no commit may wait long for it."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import apsw

from holdfast.contract import TTL_SECONDS
from holdfast.engine.app.app import App
from holdfast.engine.app.handle import Handle
from holdfast.engine.code.context import Context
from holdfast.engine.worker.keeper import Keeper
from holdfast.records import SECOND, Item, Purged, Verdict
from verify.checks.report import Report, progress
from verify.environment.processes import Fleet, die_with_parent, quiet

STEADY = "verify.steady.v1"
EXTRA_SECONDS = 0.1
LOOPS = 12
STEPS = 40
STEP_SECONDS = 0.004
FLUSH = 50

# Rows of runs of five steps that ended long ago, as the verbs would have written them, in much less time.
FILL = (
    """
    insert into workflow_run (
        id, type, status, run_at, fence, attempt, result, created_at, updated_at, started_at, finished_at
    )
    with recursive n (i) as (select 1 union all select i + 1 from n where i < :runs)
    select printf('%08x-0000-7000-8000-000000000000', i), 'verify.old.v1', 'succeeded', :at, 1, 1,
        '{"total":15}', :at, :at + i, :at, :at + i
    from n
    """,
    """
    insert into workflow_step (
        run_id, seq, key, kind, status, attempts, output, fence, number, started_at, finished_at
    )
    select workflow_run.id, value, 'step-' || value, 'task', 'succeeded', 1, '{"amount":' || value || '}', 1,
        value, :at, :at
    from workflow_run cross join json_each('[1,2,3,4,5]') where workflow_run.type = 'verify.old.v1'
    """,
    """
    insert into workflow_event (workflow_id, event_type, data, created_at)
    select workflow_run.id, iif(value between 4 and 8, 'step_succeeded', 'leased'),
        '{"step":"step-' || value || '"}', :at
    from workflow_run cross join json_each('[1,2,3,4,5,6,7,8,9]') where workflow_run.type = 'verify.old.v1'
    """,
)

Waits = list[tuple[float, float]]  # the time at which a commit was answered, and its duration


class Timed:
    """A wrapper that writes the duration of each commit to a file; all else is the store's own."""

    def __init__(self, store: Any, file: Path) -> None:
        self._store, self._file, self._waits = store, file, Waits()

    def __getattr__(self, name: str) -> Any:
        """Return any other verb of the store."""
        return getattr(self._store, name)

    async def commit(self, batch: Sequence[Item]) -> list[Verdict]:
        begun = time.monotonic()
        verdicts: list[Verdict] = await self._store.commit(batch)
        ended = time.monotonic()
        self._waits.append((ended, ended - begun))
        if len(self._waits) >= FLUSH:
            with self._file.open("a") as file:
                file.writelines(f"{at} {took}\n" for at, took in self._waits)
            self._waits.clear()
        return verdicts


def steady(url: str, folder: str, log: str) -> None:
    """Run a worker until the process is killed."""
    from holdfast.stores import make_store

    die_with_parent()
    quiet(log)
    app = App(Timed(make_store(url), Path(folder) / f"{os.getpid()}.waits"), name="verify")

    @app.workflow(STEADY)
    async def loop(ctx: Context) -> None:
        for n in range(STEPS):
            await ctx.step(f"step{n}", asyncio.sleep, STEP_SECONDS)
        ctx.continue_as(None)

    app.run(slots=LOOPS)


class Slices:
    """A store that a keeper purges, and the duration of each slice."""

    def __init__(self, store: Any) -> None:
        self._store, self.took, self.runs, self.traits = store, list[float](), 0, store.traits

    async def purge(self, **terms: Any) -> Purged:
        begun = time.monotonic()
        purged: Purged = await self._store.purge(**terms)
        self.took.append(time.monotonic() - begun)
        self.runs += purged.runs
        return purged


@dataclass(slots=True)
class Played:
    """The measurements of one round."""

    slices: Slices
    waits: Waits
    began: float
    purged: tuple[float, float]
    loops: int
    kept: int
    lost: int

    def beside(self) -> list[float]:
        return [took for at, took in self.waits if self._is_beside(at)]

    def alone(self) -> list[float]:
        return [took for at, took in self.waits if at >= self.began and not self._is_beside(at)]

    def _is_beside(self, at: float) -> bool:
        return self.purged[0] <= at <= self.purged[1] + EXTRA_SECONDS

    @property
    def extra(self) -> float:
        """Return how much longer the longest commit took than the longest one without a purge."""
        return max(self.beside(), default=0.0) - max(self.alone(), default=0.0)


async def purging(runs: int = 100_000, calm: float = 15.0, workers: int = 2) -> Report:
    """Compare the longest commit of a working run with and without a purge beside it."""
    played = await _play(runs, calm, workers)
    if played.extra > EXTRA_SECONDS:
        # The machine itself may have stood still for a moment; a delay by the purge shows each time.
        played = await _play(runs, calm, workers)
    return _judged(played, runs)


async def _play(runs: int, calm: float, workers: int) -> Played:
    with tempfile.TemporaryDirectory(prefix="hf-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        url, log = f"sqlite:///{folder / 'holdfast.db'}", str(folder / "workers.log")
        app = App(url)
        await app.store.open()
        try:
            _fill(folder / "holdfast.db", runs)
            with Fleet(steady, (url, name, log), workers) as fleet, progress() as tell:
                handles = await app.start_many([(STEADY, None)] * LOOPS)
                loops = [handle.id for handle in handles if isinstance(handle, Handle)]
                await _until_busy(folder)
                began, slices = time.monotonic(), Slices(app.store)
                await asyncio.sleep(calm)
                purged = await _purged(slices, runs, tell)
                await asyncio.sleep(calm)
                lost = fleet.supervise()
            kept = len([run for run in loops if await app.get(run) is not None])
            return Played(slices, _read(folder), began, purged, len(loops), kept, lost)
        finally:
            await app.close()


def _fill(path: Path, runs: int) -> None:
    at = time.time_ns() // 1000 - round(2 * TTL_SECONDS * SECOND)
    with closing(apsw.Connection(str(path))) as db:
        db.execute("pragma synchronous = off")
        db.execute("begin immediate")
        for sql in FILL:
            db.execute(sql, {"runs": runs, "at": at}).fetchall()
        db.execute("commit")
        db.execute("pragma wal_checkpoint(truncate)").fetchall()


async def _until_busy(folder: Path) -> None:
    async with asyncio.timeout(30.0):
        while len(_read(folder)) < FLUSH:  # noqa: ASYNC110  # other processes: there is no event to wait for
            await asyncio.sleep(0.05)


async def _purged(slices: Slices, runs: int, tell: Any) -> tuple[float, float]:
    """Purge as a keeper does; return the times of its begin and end."""
    began = time.monotonic()
    purge = asyncio.create_task(Keeper(slices).purge())  # type: ignore[arg-type]  # of a store it purges alone
    while not purge.done():
        tell(f"{slices.runs} of {runs} runs removed")
        await asyncio.sleep(0.1)
    await purge
    return began, time.monotonic()


def _read(folder: Path) -> Waits:
    lines = [line.split() for file in folder.glob("*.waits") for line in file.read_text().splitlines()]
    return [(float(line[0]), float(line[1])) for line in lines if len(line) == 2]


def _judged(played: Played, runs: int) -> Report:
    report, slices = Report("purging"), played.slices
    beside, alone = played.beside(), played.alone()
    longest, usual = max(beside, default=0.0), max(alone, default=0.0)
    report.expect("all that had expired was removed", slices.runs == runs, f"{slices.runs} of {runs}")
    report.expect("nothing else was", played.kept == played.loops, f"{played.kept} of {played.loops} left")
    report.expect("no worker was lost", not played.lost, f"{played.lost} were")
    report.expect("work went on beside it", len(beside) > runs / 1000, f"{len(beside)} commits")
    report.expect(
        f"no commit waited {EXTRA_SECONDS * 1000:.0f} ms longer than without",
        played.extra <= EXTRA_SECONDS,
        f"{longest * 1000:.0f} ms, and {usual * 1000:.0f} ms without",
    )
    took = played.purged[1] - played.purged[0]
    report.figures |= {
        "runs": slices.runs,
        "runs_per_second": round(slices.runs / took),
        "commits_beside": len(beside),
        "longest_ms_beside": round(longest * 1000, 1),
        "longest_ms_without": round(usual * 1000, 1),
        "median_ms_beside": round(median(beside or [0.0]) * 1000, 2),
        "median_ms_without": round(median(alone or [0.0]) * 1000, 2),
        "longest_slice_ms": round(max(slices.took) * 1000, 1),
        "seconds": round(took, 1),
    }
    return report
