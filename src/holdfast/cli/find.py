"""Finding the run that a person names by its id, or by the beginning or end of its id."""

from __future__ import annotations

import re
from functools import partial
from uuid import UUID

from holdfast.cli.clients import Client, everyone
from holdfast.engine.pages import gathered
from holdfast.errors import UnknownRun, UsageError
from holdfast.lifecycle import spoken_status
from holdfast.records import Run, RunFilter
from holdfast.shown.text import counted

SHORT = 8  # characters shown in tables: the last ones, for the first are the same within a minute
SHORT_MIN = 6
PAGE = 1000
SCAN_MAX = 10_000  # newest runs that are searched for the end of an id
SHOWN = 5


class Deleted(UnknownRun):
    """The run exists, but it is deleted."""

    def __init__(self, run_id: str) -> None:
        super().__init__(run_id)
        self.args = (f"run {run_id} is deleted: `holdfast restore {run_id}` shows it again",)


def short(run_id: UUID | str) -> str:
    """The end of an id, as tables and logs show it."""
    return str(run_id)[-SHORT:]


async def find(client: Client, text: str, *, deleted: bool = False) -> Run:
    """Return the run that `text` names, without its values; a deleted run only if `deleted`.

    An error says why when `text` names no run, or several.
    """
    wanted = text.strip().lower()
    digits = wanted.replace("-", "")
    if "://" in wanted:
        raise UsageError(
            f"{text!r} is not a run id: name a store with --store URL, and the run after the command"
        )
    if not re.fullmatch(r"[0-9a-f]+", digits):
        raise UsageError(
            f"{text!r} is not a run id: ids look like 0199c0de-7a31-7c3e-b1de-4b9a5d0c8f10; "
            "`holdfast ls` lists the runs"
        )
    if not SHORT_MIN <= len(digits) <= 32:
        raise UsageError(
            f"{text!r} has {counted(len(digits), 'character')}: give the whole id, "
            f"or at least {SHORT_MIN} characters from its beginning or its end"
        )
    every = await _named(client, digits, RunFilter(tenant=everyone(client), deleted=deleted, values=False))
    found = {run.id: run for run in every}
    if not found:
        hidden = (
            ()
            if deleted
            else await _named(client, digits, RunFilter(tenant=everyone(client), deleted=True, values=False))
        )
        raise Deleted(text) if hidden else UnknownRun(text)
    if len(found) > 1:
        named = ", ".join(
            f"{run.id} ({run.type}, {spoken_status(run.status)})" for run in list(found.values())[:SHOWN]
        )
        more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
        raise UsageError(f"{text!r} names several runs, give more characters: {named}{more}")
    return next(iter(found.values()))


async def _named(client: Client, digits: str, where: RunFilter) -> list[Run]:
    begins = await _beginning(client, digits, where)
    return begins if len(digits) == 32 else [*begins, *await _ending(client, digits, where)]


async def _beginning(client: Client, digits: str, where: RunFilter) -> list[Run]:
    """Runs are listed by descending id, so ids with the same beginning are neighbours."""
    top = int(digits.ljust(32, "f"), 16) + 1
    after = UUID(int=top) if top < 1 << 128 else None
    most = 1 if len(digits) == 32 else SHOWN + 1
    runs = await gathered(partial(client.list, where), most, after, lambda run: run.id)
    return [run for run in runs if run.id.hex.startswith(digits)]


async def _ending(client: Client, digits: str, where: RunFilter) -> list[Run]:
    found: list[Run] = []
    after: UUID | None = None
    left = SCAN_MAX
    while left > 0 and (page := await client.list(where, min(PAGE, left), after=after)):
        found += [run for run in page if run.id.hex.endswith(digits)]
        left -= len(page)
        after = page[-1].id
    return found
