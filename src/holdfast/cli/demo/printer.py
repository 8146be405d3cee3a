"""Lines of the demo as things happen: when, who, what."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import click

from holdfast.records import TrailEntry
from holdfast.shown.text import clean, short
from holdfast.shown.trail import sentence

from .ledger import Executed
from .workers import LEASE_SECONDS, WorkerProcess

_HIDDEN_TYPES = ("created", "started", "heartbeat")


class Printer:
    """Prints one line for each thing that happens, with the name of the process that did it."""

    def __init__(self, begun_at: float) -> None:
        self._begun_at = begun_at
        self._by_pid: dict[int, str] = {}
        self._holder = ""
        self._recorded: list[str] = []

    def start(self, run: UUID, workflow: str, params: object) -> None:
        self._say("you", f"start {workflow} '{json.dumps(params)}'")
        self._say("store", f"run {short(run)} is recorded; no worker runs yet")

    def start_worker(self, worker: WorkerProcess) -> None:
        self._by_pid[worker.pid] = worker.name
        self._say("you", f"start {worker.name}, process {worker.pid}")

    def kill(self, pid: int) -> None:
        dead = click.style(f"kill -9 {pid}", fg="red", bold=True)
        self._say("you", f"{dead}: {self._by_pid[pid]} dies in the middle of a step")

    def emit(self, topic: str, payload: str, woken: int) -> None:
        self._say("you", f"emit {topic} '{json.dumps(payload)}': woke {woken} run")

    def print(
        self, executed: Sequence[Executed], entries: Sequence[TrailEntry], outputs: Mapping[str, str | None]
    ) -> None:
        """Print lines of the ledger and entries of the trail in the order of their times."""
        lines = [(one.at, *self._executed(one)) for one in executed]
        visible = [entry for entry in entries if entry.type not in _HIDDEN_TYPES]
        lines += [(entry.at.timestamp(), *self._entry(entry, outputs)) for entry in visible]
        for at, who, what in sorted(lines, key=lambda one: one[0]):
            self._say(who, what, at)

    def _executed(self, one: Executed) -> tuple[str, str]:
        again = f" (execution {one.attempt})" if one.attempt > 1 else ""
        return self._by_pid.get(one.pid, f"pid {one.pid}"), f"{one.step} begins{again}"

    def _entry(self, entry: TrailEntry, outputs: Mapping[str, str | None]) -> tuple[str, str]:
        data: dict[str, Any] = entry.data
        match entry.type:
            case "leased":
                self._holder = str(data["worker"]).partition(":")[0].replace("-", " ")
                return self._holder, f"claims the run{self._known()}"
            case "step_succeeded":
                step = str(data["step"])
                self._recorded.append(step)
                return self._holder, f"{_words(entry)}: {clean(outputs.get(step) or 'null')}"
            case "lease_expired":
                silent = f"{LEASE_SECONDS:g} s without a sign of life"
                return "store", f"lease expired ({silent}): the run is free"
            case "retried":  # without the number of attempts: the line must be short
                attempts = f", attempt {data.get('attempt')} of {data.get('max_attempts')}"
                return self._holder, _words(entry).replace(attempts, "")
            case "waiting":
                return self._holder, sentence(entry) + "; no process holds the run now"
            case "succeeded":
                return self._holder, "completes the run"
            case "woken":
                self._recorded.append(str(data["step"]))
                return "store", sentence(entry)
            case _:
                return self._holder or "store", _words(entry)

    def _known(self) -> str:
        names = self._recorded
        if not names:
            return ""
        return f"; already recorded: {', '.join(names) if len(names) < 4 else f'{len(names)} steps'}"

    def _say(self, who: str, what: str, at: float | None = None) -> None:
        seconds = (time.time() if at is None else at) - self._begun_at
        when = click.style(f"{max(0.0, seconds):5.1f} s", dim=True)
        click.echo(f"{when}  {click.style(f'{who:<8}', bold=who == 'you')}  {what}")


def _words(entry: TrailEntry) -> str:
    return sentence(entry).replace("step ", "", 1)
