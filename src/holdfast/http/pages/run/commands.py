"""The commands that show or do the same as the page of a run."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.records import DEFAULT_TENANT
from holdfast.shell import command_of, line_of
from holdfast.shown.shapes import RunValuesData

Command = tuple[str, str]  # what it does, and the command


def commands(run: RunValuesData, offers: frozenset[str]) -> list[Command]:
    """Return the commands for a run: those that read it, and those of the moves that are offered."""
    return [*_reads(run), *((name, command(name, run)) for name in sorted(offers) if name not in _PER_STEP)]


_PER_STEP = {"approve", "reject", "emit", "rewind"}


def _reads(run: RunValuesData) -> Iterator[Command]:
    for name, words in (("show", "show"), ("trail", "trail"), ("explain", "explain")):
        yield words, f"holdfast {name} {run.id}"
    yield "all as JSON", f"holdfast show {run.id} --json"
    yield "follow", f"holdfast trail {run.id} --follow"


def command(name: str, run: RunValuesData, *more: str) -> str:
    """Return the command of a move. more: its further arguments."""
    return command_of(f"{name} {run.id}", *more)


def emit_command(run: RunValuesData, topic: str) -> str:
    """Return the command that sends an event to the run."""
    tenant = () if run.tenant == DEFAULT_TENANT else ("--tenant", run.tenant)
    return command_of("emit", topic, "{}", options=line_of("--run", run.id, *tenant))
