"""bulk: failed runs are retried in bulk, while everybody who takes part in it is killed.

The process that asked is killed as soon as the operation is recorded, and the worker that executes it twice;
in between the operation is stopped and resumed. A limit allows few of the retried runs at once.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from uuid import UUID

from holdfast.engine.app.app import App
from holdfast.engine.bulk.asked import BulkReport
from holdfast.engine.bulk.workflow import BULK, LANES
from holdfast.engine.code.context import Context
from holdfast.errors import Fatal
from holdfast.lifecycle import FINAL, Status
from holdfast.records import ANY, Run, RunFilter
from verify.checks.report import Report, progress
from verify.environment.environment import LOOK_SECONDS, STALL_SECONDS, pid_of
from verify.environment.processes import CONTEXT, Fleet, die_with_parent, quiet
from verify.environment.run_counts import Counting, counting
from verify.environment.stores import SQLITE, store_url

BROKEN = "verify.broken.v1"
LIMIT, LEASE_SECONDS, STEP_SECONDS, STILL_SECONDS = 50, 2.0, 0.05, 2.0
WORKERS, SLOTS, PAGE = 2, 100, 500


def application(url: str, mended: str) -> App:
    """An app whose runs fail until the file `mended` exists."""
    app = App(url)

    @app.workflow(BROKEN)
    async def broken(ctx: Context) -> str:
        if not Path(mended).exists():  # noqa: ASYNC240 - on a local disk
            raise Fatal("not mended yet")
        await ctx.step("work", asyncio.sleep, STEP_SECONDS)
        return "mended"

    return app


def labour(url: str, mended: str, log: str) -> None:
    """Work until killed: the process of a worker."""
    die_with_parent()
    quiet(log)
    application(url, mended).run(slots=SLOTS, lease=LEASE_SECONDS)


def ask(url: str, mended: str, rate: int) -> None:
    """Start the operation and wait for its end, until killed: the process of a person."""
    die_with_parent()

    async def asked() -> None:
        app = application(url, mended)
        handle = await app.bulk.retry(RunFilter(type=BROKEN), rate=rate, by="verify")
        Path(f"{mended}.asked").write_text(str(handle.id))  # noqa: ASYNC240
        await handle.result()

    asyncio.run(asked())


class _Operation:
    """The operation as the experiment sees it, and the highest number of runs that it saw at work."""

    def __init__(self, app: App, fleet: Fleet, count: Counting, run: UUID, stalled: list[str]) -> None:
        self._app, self._fleet, self._count, self.id, self._stalled = app, fleet, count, run, stalled
        self.most = self.kills = 0

    async def present(self) -> Run:
        return await self._app.present(self.id)

    async def retried(self) -> int:
        counts = await self._count(BROKEN)
        self.most = max(self.most, counts.get("leased", 0))
        return sum(counts.values()) - counts.get("failed", 0)

    async def until(self, what: str, reached: Callable[[Run, int], bool]) -> Run:
        """Watch until a condition holds; a condition that is never reached is noted."""
        deadline = time.monotonic() + STALL_SECONDS
        before = -1
        while True:
            self._fleet.supervise()
            run, retried = await self.present(), await self.retried()
            if reached(run, retried):
                return run
            if retried != before:
                before, deadline = retried, time.monotonic() + STALL_SECONDS
            if time.monotonic() > deadline:
                self._stalled.append(f"{what}: the operation is {run.status} after {retried} runs")
                return run
            await asyncio.sleep(LOOK_SECONDS)

    async def kill_holder(self, at: int) -> None:
        """Kill the worker that executes the operation, once it has retried so many runs."""
        run = await self.until(
            f"kill at {at}",
            lambda run, retried: run.status in FINAL or (run.status is Status.LEASED and retried >= at),
        )
        pid = pid_of(run.leased_by or "")
        for process in [one for one in self._fleet.members if one.pid == pid]:
            self._fleet.kill(process)
            self.kills += 1


async def bulk(runs: int = 5000, rate: int = 200, *, store: str = SQLITE) -> Report:
    """Retry failed runs in bulk, with kills, a stop and a resume: each is retried once, at the rate."""
    report, stalled = Report(f"bulk {store}"), list[str]()
    with (
        tempfile.TemporaryDirectory(prefix="hf-", ignore_cleanup_errors=True) as name,
        store_url(store, Path(name)) as url,
    ):
        mended, log = f"{name}/mended", f"{name}/workers.log"
        app = application(url, mended)
        await app.store.open()
        with Fleet(labour, (url, mended, log), WORKERS) as fleet, counting(url) as count, progress() as tell:
            ids = await _failed(app, fleet, count, runs, tell)
            await app.limit(type=BROKEN, concurrency=LIMIT)
            Path(mended).touch()  # noqa: ASYNC240
            began = time.monotonic()
            operation = _Operation(app, fleet, count, await _asked(url, mended, rate), stalled)
            still = await _disturbed(operation, app, runs)
            ended = await operation.until("the end", lambda run, _: run.status in FINAL)
            took = round(time.monotonic() - began, 1)
            await _succeeded(operation, count, runs, stalled, tell)
            rows = await _rows(app)
            failed = (await count(BROKEN)).get("failed", 0)
        await app.close()
    found: BulkReport = BULK.result.decode(ended.result_json or "{}", "the report")
    times = Counter(run for run, _ in rows)
    report.expect("nothing stalled", not stalled, "\n          ".join(stalled))
    report.expect("none was retried twice", max(times.values(), default=0) <= 1, str(times.most_common(3)))
    report.expect("none was left out", set(times) == set(ids), f"{len(times)} of {len(ids)}")
    report.expect("every run succeeded", not failed, f"{failed} failed")
    report.expect("the report is whole", (found.done, found.seen) == (runs, runs), str(found))
    report.expect("the worker was killed twice", operation.kills == 2, str(operation.kills))
    report.expect("while it was stopped nothing moved", still == 0, f"{still} runs")
    most = _in_a_second([at for _, at in rows])
    report.expect("never above the rate", most <= rate + LANES, f"{most} in a second")
    report.expect(f"at most {LIMIT} at work", 0 < operation.most <= LIMIT, str(operation.most))
    report.figures |= {
        "runs": runs, "rate": rate, "seconds": took, "kills": operation.kills + 1,
        "most_in_a_second": most, "most_at_work": operation.most,
    }  # fmt: skip
    return report


async def _failed(
    app: App, fleet: Fleet, count: Counting, runs: int, tell: Callable[[str], None]
) -> list[UUID]:
    ids = list[UUID]()
    for at in range(0, runs, PAGE):
        answers = await app.start_many([(BROKEN, None)] * min(PAGE, runs - at))
        ids += [answer.id for answer in answers if not isinstance(answer, Exception)]
    while (failed := (await count(BROKEN)).get("failed", 0)) < runs:
        fleet.supervise()
        tell(f"{failed} of {runs} runs have failed")
        await asyncio.sleep(LOOK_SECONDS)
    return ids


async def _asked(url: str, mended: str, rate: int) -> UUID:
    """Start the operation from a process that is killed right afterwards; return its id."""
    file, process = (
        Path(f"{mended}.asked"),
        CONTEXT.Process(target=ask, args=(url, mended, rate), daemon=True),
    )
    process.start()
    while not file.exists() or not file.read_text():  # noqa: ASYNC110, ASYNC240 - another process writes it
        await asyncio.sleep(LOOK_SECONDS)
    process.kill()
    process.join()
    return UUID(file.read_text())  # noqa: ASYNC240


async def _disturbed(operation: _Operation, app: App, runs: int) -> int:
    """Kill, stop, resume, kill. Return the number of runs that were retried while it was stopped."""
    await operation.kill_holder(runs // 5)
    await operation.until("half", lambda run, retried: run.status in FINAL or retried >= runs // 2)
    await app.pause(operation.id, by="verify")
    await operation.until("the stop", lambda run, _: run.status is Status.PAUSED)
    before = await operation.retried()
    await asyncio.sleep(STILL_SECONDS)
    still = await operation.retried() - before
    await app.resume(operation.id, by="verify")
    await operation.kill_holder(runs * 7 // 10)
    return still


async def _succeeded(
    operation: _Operation, count: Counting, runs: int, stalled: list[str], tell: Callable[[str], None]
) -> None:
    before, deadline = -1, time.monotonic() + STALL_SECONDS
    while (done := (await count(BROKEN)).get("succeeded", 0)) < runs:
        await operation.retried()
        tell(f"{done} of {runs} runs have succeeded")
        if done != before:
            before, deadline = done, time.monotonic() + STALL_SECONDS
        if time.monotonic() > deadline:
            stalled.append(f"{runs - done} runs have not succeeded")
            return
        await asyncio.sleep(LOOK_SECONDS)


async def _rows(app: App) -> list[tuple[UUID, datetime]]:
    """Return the retries by people, from the trail."""
    rows, after = list[tuple[UUID, datetime]](), 0
    while page := await app.trail(types=("retried",), after=after, tenant=ANY):
        rows += [(row.run, row.at) for row in page if "by" in row.data]
        after = page[-1].seq
    return rows


def _in_a_second(times: list[datetime]) -> int:
    """Return the highest number of times within any second."""
    most, first, times = 0, 0, sorted(times)
    for last, at in enumerate(times):
        while at - times[first] >= timedelta(seconds=1):
            first += 1
        most = max(most, last - first + 1)
    return most
