"""An experiment with real processes: a folder, a ledger, a store on disk, workers, and a watcher."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

from holdfast.engine.app import App
from holdfast.engine.handle import Handle
from holdfast.lifecycle import FINAL, OPEN, Status
from holdfast.records import RunFilter

from .evidence import Evidence, gathered
from .ledger import Ledger, ledger, read
from .processes import Fleet
from .work import work

STALL_SECONDS = 60.0
LOOK_SECONDS = 0.05


class Scene:
    """What an experiment has in hand."""

    def __init__(self, folder: Path, app: App, fleet: Fleet, book: Ledger, file: Path, log: Path) -> None:
        self.folder, self.app, self.fleet, self.book = folder, app, fleet, book
        self._file, self._log = file, log
        self.acked: list[UUID] = []
        self.stalled: list[str] = []

    async def start(self, type_: str, params: dict[str, Any], count: int = 1, **options: Any) -> list[UUID]:
        """Start runs; those that are acknowledged count from now on."""
        handles = await self.app.start_many([(type_, params, options)] * count)
        ids = [handle.id for handle in handles if isinstance(handle, Handle)]
        self.acked += ids
        return ids

    async def counts(self) -> dict[str, int]:
        return (await self.app.store.stats()).by_status

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
        """Watch until all are finished and `done`; a stall is put down in `stalled` and ends it."""
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
                await self._dump()
                return False
            await asyncio.sleep(LOOK_SECONDS)

    async def _dump(self) -> None:
        """Everything about the runs that stand still: without it a stall cannot be understood."""
        for run in await self.app.store.list(RunFilter(statuses=tuple(OPEN), tenant=None), 10):
            self.stalled.append(str(run))
            self.stalled += [f"  {step}" for step in await self.app.store.steps(run.id)]
            self.stalled += [
                f"  {row.type} {row.at} {row.data_json}" for row in await self.app.store.trail(run.id)
            ]
        if self._log.exists():
            self.stalled += self._log.read_text("utf-8", "replace").splitlines()[-20:]

    async def evidence(self) -> Evidence:
        return await gathered(self.app.store, read(self._file), self.acked)

    async def holders(self) -> dict[UUID, tuple[int, int]]:
        """Which process holds which run, and under which fence."""
        leased = await self.app.store.list(RunFilter(statuses=(Status.LEASED,), tenant=None), 1000)
        return {run.id: (pid_of(run.leased_by or ""), run.fence) for run in leased}


def pid_of(worker: str) -> int:
    """Worker ids are readable: name:host:pid:suffix."""
    parts: Sequence[str] = worker.split(":")
    return int(parts[2]) if len(parts) == 4 else 0


@asynccontextmanager
async def scene(workers: int, sabotage: str | None = None, **options: Any) -> AsyncIterator[Scene]:
    """Everything up; and everything gone at the end, however it comes."""
    with tempfile.TemporaryDirectory(prefix="hf-") as name:
        folder = Path(name)
        with ledger(folder) as (socket, file):
            url, log = f"sqlite:///{folder / 'holdfast.db'}", folder / "workers.log"
            app = App(url)
            await app.store.open()
            try:
                with Fleet(work, (url, socket, str(log), sabotage, options), workers) as fleet:
                    yield Scene(folder, app, fleet, Ledger(socket), file, log)
            finally:
                await app.close()
