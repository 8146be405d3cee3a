"""Small runs beside the large ones: a process starts one after the other and notes the duration of each."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from holdfast.engine.app.app import App
from holdfast.errors import HoldfastError
from verify.environment.processes import die_with_parent, quiet

from .workflows import SMALL

URGENT, EQUAL = 10, 100  # priorities
PATIENCE_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Probe:
    """One small run: its start, its end and its priority."""

    began: float
    ended: float
    priority: int

    @property
    def seconds(self) -> float:
        return self.ended - self.began

    def is_beside(self, began: float, ended: float) -> bool:
        return self.began <= ended and self.ended >= began


def read_probes(file: Path) -> list[Probe]:
    """Return all noted runs. The end of an open run is now."""
    begun: dict[str, Probe] = {}
    for line in file.read_text("utf-8").splitlines() if file.exists() else ():
        number, priority, began, ended = line.split()
        until = time.monotonic() if ended == "open" else float(ended)
        begun[number] = Probe(float(began), until, int(priority))
    return list(begun.values())


def probing(url: str, file: str, log: str, every: float) -> None:
    """Start small runs until the process is killed."""
    die_with_parent()
    quiet(log)
    asyncio.run(_probe(url, Path(file), every))


async def _probe(url: str, file: Path, every: float) -> None:
    app, number = App(url), 0
    await app.store.open()
    async with asyncio.TaskGroup() as group:
        while True:
            number += 1
            group.create_task(_one(app, file, number, EQUAL if number % 2 else URGENT))
            await asyncio.sleep(every)


async def _one(app: App, file: Path, number: int, priority: int) -> None:
    began, deadline = time.monotonic(), time.monotonic() + PATIENCE_SECONDS
    _note(file, f"{number} {priority} {began} open")
    while time.monotonic() < deadline:
        with suppress(HoldfastError):  # the store is busy: retry; the time counts
            run = await app.start(SMALL, number, key=f"probe {number}", priority=priority)
            await run.result(timeout=PATIENCE_SECONDS)
            break
        await asyncio.sleep(0.1)
    _note(file, f"{number} {priority} {began} {time.monotonic()}")


def _note(file: Path, line: str) -> None:
    with file.open("a", encoding="utf-8") as to:
        to.write(line + "\n")
