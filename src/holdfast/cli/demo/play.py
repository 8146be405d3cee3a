"""The plot: start, work, kill, take over, wake, end. Nothing is staged but the moment of the kill."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

from holdfast.engine.client import Client
from holdfast.lifecycle import FINAL, Status, StepKind
from holdfast.records import Run, Step, TrailEntry
from holdfast.stores import make_store
from holdfast.world import RealWorld

from .actors import Actor
from .ledger import Executed, Ledger
from .telling import Teller

WORKFLOW = "shop.order.v1"
ORDER = {"order": 42, "eur": 19.9}
TOPIC = "picked-up:42"
COURIER = "courier 7"
INTO_THE_STEP_SECONDS = 0.6
ON_THE_ROAD_SECONDS = 1.2
LOOK_SECONDS = 0.03
TIME_MAX_SECONDS = 18.0


class PlayFailed(Exception):
    """Something that had to come did not."""


class Play:
    """One performance in one folder; afterwards its fields are the evidence."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"sqlite:///{folder / 'demo.db'}"
        self.ledger = Ledger(folder / "ledger.jsonl")
        self.client = Client(make_store(self.url), RealWorld())
        self.actors: list[Actor] = []
        self.begun_at = time.time()
        self.killed_at = 0.0
        self.run_id: UUID | None = None
        self.run: Run | None = None
        self.steps: list[Step] = []
        self.trail: list[TrailEntry] = []
        self._teller = Teller(self.begun_at)

    async def perform(self) -> None:
        """Play it through; whatever happens, no process stays behind."""
        teller: asyncio.Task[None] | None = None
        try:
            async with asyncio.timeout(TIME_MAX_SECONDS):
                await self.client.store.open()
                await self._start()
                teller = asyncio.create_task(self._tell())
                await self._acts()
                await teller
                await self._keep_evidence()
        except TimeoutError:
            raise PlayFailed(
                f"it did not end within {TIME_MAX_SECONDS:.0f} s: {await self._state()}"
            ) from None
        finally:
            if teller is not None:
                teller.cancel()
            self._clear()
            await self.client.store.close()

    async def _start(self) -> None:
        handle = await self.client.start(WORKFLOW, ORDER)
        self.run_id = handle.id
        self._teller.start(handle.id, WORKFLOW, ORDER)

    async def _acts(self) -> None:
        first = self._enter()
        await self._until(lambda: self._began("pack"), "worker 1 begins to pack", first)
        await asyncio.sleep(INTO_THE_STEP_SECONDS)
        await self._look()
        self.killed_at = time.time()
        first.kill()
        self._teller.kill(first.pid)
        second = self._enter()
        await self._until(self._waits_for_courier, "the run waits for the courier", second)
        await asyncio.sleep(ON_THE_ROAD_SECONDS)
        emitted = await self.client.emit(TOPIC, COURIER)
        self._teller.emit(TOPIC, COURIER, emitted.woken or 0)
        await self._until(lambda: self.run is not None and self.run.status in FINAL, "the run ends", second)

    def _enter(self) -> Actor:
        actor = Actor(len(self.actors) + 1, self.folder, self.url, self.ledger.path)
        self.actors.append(actor)
        self._teller.enter(actor)
        return actor

    async def _until(self, come: Callable[[], bool], what: str, actor: Actor) -> None:
        """Look again and again; a worker that died by itself ends the waiting at once."""
        while True:
            await self._look()
            if come():
                return
            if actor.code is not None:
                raise PlayFailed(
                    f"{actor.name} ended (exit {actor.code}) before {what}: {actor.last_words()}"
                )
            await asyncio.sleep(LOOK_SECONDS)

    async def _look(self) -> None:
        assert self.run_id is not None
        self.run = await self.client.get(self.run_id)

    def _began(self, step: str) -> bool:
        return any(one.step == step for one in self.executed())

    def executed(self) -> list[Executed]:
        """The ledger's lines of this run."""
        return [one for one in self.ledger.read() if one.run == str(self.run_id)]

    def _waits_for_courier(self) -> bool:
        run = self.run
        return run is not None and run.status is Status.WAITING and run.waiting_on[0].kind is StepKind.EVENT

    async def _tell(self) -> None:
        """Tell what the ledger and the trail say, as it comes."""
        assert self.run_id is not None
        seq, told, ended = 0, 0, False
        while not ended:
            ended = self.run is not None and self.run.status in FINAL
            entries = await self.client.trail(self.run_id, after=seq)
            seq = entries[-1].seq if entries else seq
            lines = self.executed()
            outputs = (
                {step.key: step.output for step in await self.client.steps(self.run_id)} if entries else {}
            )
            self._teller.tell(lines[told:], entries, outputs)
            told = len(lines)
            await asyncio.sleep(LOOK_SECONDS)

    def _clear(self) -> None:
        for actor in self.actors:
            actor.stop()

    async def _keep_evidence(self) -> None:
        assert self.run_id is not None
        await self._look()
        self.steps = list(await self.client.steps(self.run_id))
        self.trail = list(await self.client.trail(self.run_id))

    async def _state(self) -> str:
        return (
            "it was never started" if self.run_id is None else (await self.client.explain(self.run_id)).text
        )
