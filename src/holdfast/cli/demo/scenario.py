"""The scenario of the demo: start a run, kill its worker, let another worker finish the run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

from holdfast.engine.app.client import StoreClient
from holdfast.lifecycle import FINAL, Status, StepKind
from holdfast.records import Run, Step, TrailEntry
from holdfast.stores import make_store
from holdfast.world import RealWorld

from .ledger import Executed, Ledger
from .printer import Printer
from .workers import WorkerProcess

WORKFLOW = "shop.order.v1"
ORDER = {"order": 42, "eur": 19.9}
TOPIC = "picked-up:42"
COURIER = "courier 7"
IN_STEP_SECONDS = 0.6
COURIER_SECONDS = 1.2
POLL_SECONDS = 0.03
TIME_MAX_SECONDS = 18.0


class ScenarioFailed(Exception):
    """Something that the scenario expects did not happen."""


class Scenario:
    """One execution of the scenario in one folder. Afterwards its fields are the evidence for `checks`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"sqlite:///{folder / 'demo.db'}"
        self.ledger = Ledger(folder / "ledger.jsonl")
        self.client = StoreClient(make_store(self.url), RealWorld())
        self.workers: list[WorkerProcess] = []
        self.begun_at = time.time()
        self.killed_at = 0.0
        self.run_id: UUID | None = None
        self.run: Run | None = None
        self.steps: list[Step] = []
        self.trail: list[TrailEntry] = []
        self._printer = Printer(self.begun_at)

    async def execute(self) -> None:
        """Execute the scenario; whatever happens, stop all processes at the end."""
        printing: asyncio.Task[None] | None = None
        try:
            async with asyncio.timeout(TIME_MAX_SECONDS):
                await self.client.store.open()
                await self._start()
                printing = asyncio.create_task(self._print())
                await self._kill_and_finish()
                await printing
                await self._keep_evidence()
        except TimeoutError:
            raise ScenarioFailed(
                f"the run did not end within {TIME_MAX_SECONDS:.0f} s: {await self._state()}"
            ) from None
        finally:
            if printing is not None:
                printing.cancel()
            self._stop_workers()
            await self.client.store.close()

    async def _start(self) -> None:
        handle = await self.client.start(WORKFLOW, ORDER)
        self.run_id = handle.id
        self._printer.start(handle.id, WORKFLOW, ORDER)

    async def _kill_and_finish(self) -> None:
        first = self._start_worker()
        await self._until(lambda: self._began("pack"), "worker 1 began to pack", first)
        await asyncio.sleep(IN_STEP_SECONDS)
        await self._load()
        self.killed_at = time.time()
        first.kill()
        self._printer.kill(first.pid)
        second = self._start_worker()
        await self._until(self._waits_for_courier, "the run waited for the courier", second)
        await asyncio.sleep(COURIER_SECONDS)
        emitted = await self.client.emit(TOPIC, COURIER)
        self._printer.emit(TOPIC, COURIER, emitted.woken or 0)
        await self._until(lambda: self.run is not None and self.run.status in FINAL, "the run ended", second)

    def _start_worker(self) -> WorkerProcess:
        worker = WorkerProcess(len(self.workers) + 1, self.folder, self.url, self.ledger.path)
        self.workers.append(worker)
        self._printer.start_worker(worker)
        return worker

    async def _until(self, happened: Callable[[], bool], what: str, worker: WorkerProcess) -> None:
        """Poll until it happened; a worker that ended by itself is an error."""
        while True:
            await self._load()
            if happened():
                return
            if worker.code is not None:
                raise ScenarioFailed(
                    f"{worker.name} ended (exit {worker.code}) before {what}: {worker.last_line()}"
                )
            await asyncio.sleep(POLL_SECONDS)

    async def _load(self) -> None:
        assert self.run_id is not None
        self.run = await self.client.get(self.run_id)

    def _began(self, step: str) -> bool:
        return any(one.step == step for one in self.executed())

    def executed(self) -> list[Executed]:
        """The lines of this run in the ledger."""
        return [one for one in self.ledger.read() if one.run == str(self.run_id)]

    def _waits_for_courier(self) -> bool:
        run = self.run
        return run is not None and run.status is Status.WAITING and run.waiting_on[0].kind is StepKind.EVENT

    async def _print(self) -> None:
        """Print new lines of the ledger and of the trail as they appear."""
        assert self.run_id is not None
        seq, printed, ended = 0, 0, False
        while not ended:
            ended = self.run is not None and self.run.status in FINAL
            entries = await self.client.trail(self.run_id, after=seq)
            seq = entries[-1].seq if entries else seq
            lines = self.executed()
            outputs = (
                {step.key: step.output for step in await self.client.steps(self.run_id)} if entries else {}
            )
            self._printer.print(lines[printed:], entries, outputs)
            printed = len(lines)
            await asyncio.sleep(POLL_SECONDS)

    def _stop_workers(self) -> None:
        for worker in self.workers:
            worker.stop()

    async def _keep_evidence(self) -> None:
        assert self.run_id is not None
        await self._load()
        self.steps = list(await self.client.steps(self.run_id))
        self.trail = list(await self.client.trail(self.run_id))

    async def _state(self) -> str:
        return "it was not started" if self.run_id is None else (await self.client.explain(self.run_id)).text
