"""The environment of an experiment with real processes: folder, ledger, store, workers, and a client."""

from __future__ import annotations

import asyncio
import itertools
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

from holdfast import StartOptions
from holdfast.engine.app.app import App
from holdfast.engine.app.handle import Handle
from holdfast.errors import HoldfastError, Unavailable
from holdfast.lifecycle import FINAL, OPEN, Status
from holdfast.records import ANY, RunFilter
from verify import sabotage as sabotages
from verify.checks.evidence import Evidence, gathered
from verify.workloads.workflows import work

from .ledger import Entry, Ledger, ledger, read
from .processes import Fleet
from .stores import SQLITE, is_postgres, is_redis, store_url

STALL_SECONDS = 60.0
BROKEN_SECONDS = 3.0  # the same with a bug switched in: enough for the bug to show
LOOK_SECONDS = 0.05
AGAIN_SECONDS = 0.1

T = TypeVar("T")


_numbers = itertools.count(1)


class Environment:
    """The store, the worker processes, the ledger, and a client that starts and watches runs."""

    def __init__(self, url: str, app: App, fleet: Fleet, ledger: Ledger, file: Path, log: Path) -> None:
        self.url, self.app, self.fleet, self.ledger = url, app, fleet, ledger
        self._file, self.log = file, log
        self.acked: list[UUID] = []
        self.acked_at: dict[UUID, float] = {}  # seconds, by the clock of the machine
        self.stalled: list[str] = []
        self.unanswered = 0  # calls that this client had to repeat
        self.refused: list[str] = []  # calls that this client was told to have failed

    async def ask(self, call: Callable[[], Awaitable[T]]) -> T:
        """Repeat a call until the store answers, as any client may."""
        deadline = time.monotonic() + STALL_SECONDS
        while True:
            try:
                return await call()
            except Unavailable:
                if time.monotonic() > deadline:
                    raise
                self.unanswered += 1
            except HoldfastError as error:
                self.refused.append(str(error))
                raise
            await asyncio.sleep(AGAIN_SECONDS)

    async def start(self, type_: str, params: Any, count: int = 1) -> list[UUID]:
        """Start runs, and note those that are acknowledged. Each has a key, so that a repeat is safe."""
        keys = [StartOptions(key=f"{type_} {next(_numbers)}") for _ in range(count)]
        starts = [(type_, params, key) for key in keys]
        answers = await self.ask(lambda: self.app.start_many(starts))
        self.refused += [str(answer) for answer in answers if not isinstance(answer, Handle)]
        ids = [answer.id for answer in answers if isinstance(answer, Handle)]
        self.acked += ids
        self.acked_at |= dict.fromkeys(ids, time.time())
        return ids

    async def counts(self) -> dict[str, int]:
        return (await self.ask(self.app.store.stats)).by_status

    async def finished(self) -> int:
        counts = await self.counts()
        return sum(counts.get(status, 0) for status in FINAL)

    async def until(
        self,
        done: Callable[[], bool],
        total: int,
        each: Callable[[int], None],
        patience: float = STALL_SECONDS,
    ) -> bool:
        """Watch until all runs are finished and `done` is true; a stall is noted in `stalled` and ends it."""
        mark, marked_at = (0, 0), time.monotonic()
        while True:
            self.fleet.supervise()
            finished = await self.finished()
            each(finished)
            if finished >= total and done():
                return True
            now = (finished, self._file.stat().st_size if self._file.exists() else 0)
            if now != mark:
                mark, marked_at = now, time.monotonic()
            elif time.monotonic() - marked_at > patience:
                self.stalled += await self.ask(self.standing_still)
                return False
            await asyncio.sleep(LOOK_SECONDS)

    async def standing_still(self, log_lines: int = 20) -> list[str]:
        """Return rows, steps and trails of open runs, and the end of the log: they explain a stall."""
        lines: list[str] = []
        for run in await self.app.store.list(RunFilter(statuses=tuple(OPEN), tenant=ANY), 10):
            lines.append(str(run))
            lines += [f"  {step}" for step in await self.app.store.steps(run.id, ANY)]
            lines += [
                f"  {row.type} {row.at} {row.data_json}" for row in await self.app.store.trail(run.id, ANY)
            ]
        if self.log.exists():
            lines += self.log.read_text("utf-8", "replace").splitlines()[-log_lines:]
        return lines

    async def until_at_work(self) -> None:
        """Wait until every worker has executed a step: a worker that cannot begin ends instead."""
        deadline = time.monotonic() + STALL_SECONDS
        while not self.fleet.pids <= {entry.pid for entry in self.entries()}:
            if time.monotonic() > deadline:
                raise TimeoutError("a worker has not begun to work")
            await asyncio.sleep(LOOK_SECONDS)

    def entries(self) -> list[Entry]:
        """Return the entries of the ledger so far."""
        return read(self._file)

    async def evidence(self) -> Evidence:
        evidence = await self.ask(lambda: gathered(self.app.store, read(self._file), self.acked))
        if is_redis(self.url):
            from verify.checks.redis_drift import found_drift

            evidence.drift = await asyncio.to_thread(found_drift, self.url)
            found = await self.app.store.check_sets()  # type: ignore[attr-defined] # Redis only
            evidence.drift += [one.what for one in found if one.level != "ok"]
        return evidence

    async def holders(self) -> dict[UUID, tuple[int, int]]:
        """Return the process and the fence of each leased run."""
        leased = await self.app.store.list(RunFilter(statuses=(Status.LEASED,), tenant=ANY), 1000)
        return {run.id: (pid_of(run.leased_by or ""), run.fence) for run in leased}


def pid_of(worker: str) -> int:
    """Return the process id in a worker id: name:host:pid:suffix."""
    parts: Sequence[str] = worker.split(":")
    return int(parts[2]) if len(parts) == 4 else 0


@asynccontextmanager
async def environment(
    workers: int, sabotage: str | None = None, store: str = SQLITE, **options: Any
) -> AsyncIterator[Environment]:
    """Start everything, and remove everything at the end of the block. `store`: a kind of store, or a URL."""
    with (
        tempfile.TemporaryDirectory(prefix="hf-", ignore_cleanup_errors=True) as name,
        ledger(Path(name)) as (socket, file),
    ):
        folder = Path(name)
        with store_url(store, folder) as url:
            log, app = folder / "workers.log", App(url)
            await app.store.open()
            if sabotage == sabotages.NO_FENCE and is_postgres(url):
                sabotages.unfence_at(url)
            try:
                with Fleet(work, (url, socket, str(log), sabotage, options), workers) as fleet:
                    yield Environment(url, app, fleet, Ledger(socket), file, log)
            finally:
                await app.close()
