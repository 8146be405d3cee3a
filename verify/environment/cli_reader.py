"""Commands of the CLI, run in a process of their own: exit code, duration, and whether their output has
characters that control the terminal."""

from __future__ import annotations

import asyncio
import re
import threading
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from .processes import CONTEXT, die_with_parent

STORE_LOST = 3
LIMIT_SECONDS = 20.0
SHOWN = 60
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# Also line separators, lone surrogates, and marks that change the direction of text.
STEERING = re.compile(
    CONTROL.pattern[:-1] + r"\u2028\u2029\ud800-\udfff\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)
# The colours that the CLI itself uses. Hostile text uses others.
OURS = re.compile(r"\x1b\[(?:0|1|2|22|3[1-6]|90)m")
FORGED = "FORGED"  # hostile text has it after line breaks, to forge a line


@dataclass(frozen=True, slots=True)
class Look:
    """The end of one command."""

    args: tuple[str, ...]
    code: int
    seconds: float
    size: int
    fault: str  # a traceback, or text that controls the terminal; empty: none

    def __str__(self) -> str:
        return f"{' '.join(self.args)}: exit {self.code} after {self.seconds:.1f} s {self.fault}".rstrip()


def steering(text: str, *, data: bool = False) -> str:
    """Return the first part of a text that controls a terminal or forges a line; empty: none.

    data: the text is JSON for machines, where only control characters count.
    """
    plain = OURS.sub("", text)
    if found := (CONTROL if data else STEERING).search(plain):
        at = found.start()
        return f"U+{ord(found[0]):04X} in {plain[max(0, at - SHOWN) : at + SHOWN]!a}"
    at = plain.find("\n" + FORGED)
    return "" if at < 0 else f"a forged line behind {plain[max(0, at - SHOWN) : at]!a}"


def look(url: str, args: Sequence[str]) -> Look:
    """Run one command in this process."""
    from click.testing import CliRunner

    from holdfast.cli.main import cli

    began = time.monotonic()
    result = CliRunner(catch_exceptions=True).invoke(
        cli, [args[0], "--store", url, *args[1:]], color="--json" not in args
    )
    seconds = time.monotonic() - began
    said = result.stdout + "\n" + result.stderr
    fault = steering(result.stdout, data="--json" in args) or steering(result.stderr)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        fault = _place(result.exception)
    return Look(tuple(args), result.exit_code, seconds, len(said), fault)


def _place(error: BaseException) -> str:
    """Return an error in one line, with the last lines of Holdfast in its traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f"{Path(one.filename).name}:{one.lineno}" for one in frames if "holdfast" in one.filename]
    return f"{type(error).__name__}: {str(error)[:200]!a} at {' '.join(ours[-3:])}"


class Reader:
    """The process that runs the commands, one after the other. It is replaced when a command does not end."""

    def __init__(self, url: str, sabotage: str | None = None) -> None:
        self._url, self._sabotage = url, sabotage
        self._lock = threading.Lock()
        self._begin()

    def _begin(self) -> None:
        self._pipe, there = CONTEXT.Pipe()
        args = (self._url, there, self._sabotage)
        self._process: Any = CONTEXT.Process(target=_read, args=args, daemon=True)
        self._process.start()
        there.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.join()

    async def __call__(self, *args: str, limit: float = LIMIT_SECONDS) -> Look:
        """Run a command, and end it after `limit` seconds."""
        return await asyncio.to_thread(self._ask, args, limit)

    def _ask(self, args: tuple[str, ...], limit: float) -> Look:
        with self._lock:
            began = time.monotonic()
            self._pipe.send(args)
            if self._pipe.poll(limit):
                answer: Look = self._pipe.recv()
                return answer
            self.__exit__()
            self._begin()
            return Look(args, -1, time.monotonic() - began, 0, "it did not come to an end")


def _read(url: str, pipe: Any, sabotage: str | None) -> None:
    from verify import sabotage as sabotages

    die_with_parent()
    if sabotage is not None:
        sabotages.apply_to_reader(sabotage)
    while True:
        pipe.send(look(url, pipe.recv()))
