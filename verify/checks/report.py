"""The report of an experiment: its checks and figures, as text and as JSON."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .evidence import Evidence
from .invariants import INVARIANTS, Invariant

SHOWN = 5


@dataclass(frozen=True, slots=True)
class Check:
    """One check. An invariant judges the product; the other checks judge the experiment itself."""

    name: str
    breaches: int
    cases: tuple[str, ...] = ()
    invariant: bool = False

    @property
    def ok(self) -> bool:
        return self.breaches == 0


@dataclass(slots=True)
class Report:
    """The checks of one command."""

    command: str
    checks: list[Check] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)

    def judge(self, evidence: Evidence, more: Mapping[str, Invariant] | None = None) -> None:
        """Count the breaches of every invariant."""
        for name, invariant in {**INVARIANTS, **(more or {})}.items():
            cases = tuple(invariant(evidence))
            self.checks.append(Check(name, len(cases), cases[:SHOWN], invariant=True))

    def expect(self, name: str, holds: object, otherwise: str = "") -> None:
        """Check a minimum of progress: an experiment in which too little happened proves nothing."""
        self.checks.append(Check(name, int(not holds), () if holds or not otherwise else (otherwise,)))

    @property
    def red(self) -> list[Check]:
        """Return the invariants that were breached."""
        return [check for check in self.checks if check.invariant and not check.ok]

    def show(self) -> None:
        for check in self.checks:
            print(f"  {'ok  ' if check.ok else 'FAIL'}  {check.name:<46}{check.breaches:>5}")
            for case in check.cases:
                print(f"          {case}")
        figures = ", ".join(f"{name} {value}" for name, value in self.figures.items())
        print(f"  {self.command}: {figures}", flush=True)


def conclude(reports: list[Report], file: Path | None) -> int:
    """Print the last line, write the JSON file, and return the exit code."""
    checks = [check for report in reports for check in report.checks]
    failed = sum(not check.ok for check in checks)
    if file is not None:
        file.write_text(json.dumps([asdict(report) for report in reports], indent=1) + "\n", encoding="utf-8")
    print(f"{len(checks) - failed} passed, {failed} failed", flush=True)
    return 1 if failed else 0


class Progress:
    """A progress line, at most once a second; on a terminal it is overwritten in place."""

    def __init__(self, began: float) -> None:
        self._began, self._told, self._width = began, began, 0

    def __call__(self, words: str) -> None:
        now = time.monotonic()
        if now - self._told < 1.0:
            return
        self._told = now
        line = f"    {now - self._began:5.1f} s  {words}"
        if sys.stdout.isatty():
            print("\r" + line.ljust(self._width), end="", flush=True)
            self._width = len(line)
        else:
            print(line, flush=True)

    def end(self) -> None:
        if self._width:
            print("\r" + " " * self._width + "\r", end="", flush=True)


_shown = threading.Lock()


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """Return a function that shows progress; of several experiments at once only the first one shows it."""
    if not _shown.acquire(blocking=False):
        yield lambda _: None
        return
    line = Progress(time.monotonic())
    try:
        yield line
    finally:
        line.end()
        _shown.release()
