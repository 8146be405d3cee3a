"""The story as it happens: when, who, what, one line each."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import click

from holdfast.cli.find import short
from holdfast.cli.text import clean
from holdfast.cli.words import sentence
from holdfast.records import TrailEntry

from .actors import LEASE_SECONDS, Actor
from .ledger import Executed

_UNTOLD = ("created", "started", "heartbeat")


class Teller:
    """Knows who is who, and speaks."""

    def __init__(self, begun_at: float) -> None:
        self._begun_at = begun_at
        self._by_pid: dict[int, str] = {}
        self._holder = ""
        self._recorded: list[str] = []

    def start(self, run: UUID, workflow: str, params: object) -> None:
        self._say("you", f"start {workflow} '{json.dumps(params)}'")
        self._say("store", f"run {short(run)} is recorded; no worker exists yet")

    def enter(self, actor: Actor) -> None:
        self._by_pid[actor.pid] = actor.name
        self._say("you", f"start {actor.name}, process {actor.pid}")

    def kill(self, pid: int) -> None:
        dead = click.style(f"kill -9 {pid}", fg="red", bold=True)
        self._say("you", f"{dead}: {self._by_pid[pid]} dies in mid-step, without a word")

    def emit(self, topic: str, payload: str, woken: int) -> None:
        self._say("you", f"emit {topic} '{json.dumps(payload)}': woke {woken} run")

    def tell(
        self, executed: Sequence[Executed], entries: Sequence[TrailEntry], outputs: Mapping[str, str | None]
    ) -> None:
        """Both sources, by their times."""
        heard = [(one.at, *self._executed(one)) for one in executed]
        told = [entry for entry in entries if entry.type not in _UNTOLD]
        heard += [(entry.at.timestamp(), *self._entry(entry, outputs)) for entry in told]
        for at, who, what in sorted(heard, key=lambda one: one[0]):
            self._say(who, what, at)

    def _executed(self, one: Executed) -> tuple[str, str]:
        again = f", time {one.attempt}" if one.attempt > 1 else ""
        return self._by_pid.get(one.pid, f"pid {one.pid}"), f"{one.step} begins{again}"

    def _entry(self, entry: TrailEntry, outputs: Mapping[str, str | None]) -> tuple[str, str]:
        data: dict[str, Any] = entry.data
        match entry.type:
            case "leased":
                self._holder = str(data["worker"]).partition(":")[0].replace("-", " ")
                return self._holder, f"takes the run{self._known()}"
            case "step_succeeded":
                step = str(data["step"])
                self._recorded.append(step)
                return self._holder, f"{_words(entry)}: {clean(outputs.get(step) or 'null')}"
            case "lease_expired":
                return "store", sentence(entry).partition(":")[
                    0
                ] + f" ({LEASE_SECONDS:g} s without a sign of life): the run is free"
            case "retried":  # a line is short here: who tried how often is in the trail
                tries = f", attempt {data.get('attempt')} of {data.get('max_attempts')}"
                return self._holder, _words(entry).replace(tries, "")
            case "waiting":
                return self._holder, sentence(entry) + "; the run is only a row now"
            case "woken":
                self._recorded.append(str(data["step"]))
                return "store", sentence(entry)
            case _:
                return self._holder or "store", _words(entry)

    def _known(self) -> str:
        names = self._recorded
        if not names:
            return ""
        return f"; from the record: {', '.join(names) if len(names) < 4 else f'{len(names)} steps'}"

    def _say(self, who: str, what: str, at: float | None = None) -> None:
        seconds = (time.time() if at is None else at) - self._begun_at
        when = click.style(f"{max(0.0, seconds):5.1f} s", dim=True)
        click.echo(f"{when}  {click.style(f'{who:<8}', bold=who == 'you')}  {what}")


def _words(entry: TrailEntry) -> str:
    return sentence(entry).replace("step ", "", 1)
