"""Which run a person means: an id, or the first or last few characters of one."""

from __future__ import annotations

import re
from functools import partial
from uuid import UUID

from holdfast.engine.client import Client
from holdfast.engine.pages import gathered
from holdfast.errors import UnknownRun, UsageError
from holdfast.records import ANY, Run, RunFilter

SHORT = 8  # characters shown in tables: the last ones, for the first are the same within a minute
SHORT_MIN = 6
PAGE = 1000
SCAN_MAX = 10_000  # how many of the newest runs are looked at for an ending
SHOWN = 5


class Deleted(UnknownRun):
    """There is such a run, but it is deleted."""

    def __init__(self, run_id: str) -> None:
        super().__init__(run_id)
        self.args = (f"run {run_id} is deleted: `holdfast restore {run_id}` shows it again",)


def short(run_id: UUID | str) -> str:
    """The end of an id, as tables and logs show it."""
    return str(run_id)[-SHORT:]


async def find(client: Client, said: str, *, deleted: bool = False) -> Run:
    """The run that `said` names, without its values; a deleted one too if asked.

    One line says why when it names none, or several.
    """
    wanted = said.strip().lower()
    digits = wanted.replace("-", "")
    if "://" in wanted:
        raise UsageError(f"{said!r} is no run id: name a store by --store URL, and the run after the command")
    if not re.fullmatch(r"[0-9a-f]+", digits):
        raise UsageError(
            f"{said!r} is no run id: ids look like 0199c0de-7a31-7c3e-b1de-4b9a5d0c8f10; "
            "`holdfast ls` shows them"
        )
    if not SHORT_MIN <= len(digits) <= 32:
        raise UsageError(
            f"{said!r} has {len(digits)} characters: give the whole id, "
            f"or {SHORT_MIN} or more of its beginning or end"
        )
    every = await _named(client, digits, RunFilter(tenant=ANY, deleted=deleted, values=False))
    found = {run.id: run for run in every}
    if not found:
        hidden = (
            () if deleted else await _named(client, digits, RunFilter(tenant=ANY, deleted=True, values=False))
        )
        raise Deleted(said) if hidden else UnknownRun(said)
    if len(found) > 1:
        named = ", ".join(f"{run.id} ({run.type}, {run.status})" for run in list(found.values())[:SHOWN])
        more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
        raise UsageError(f"{said!r} is not unique, give more characters: {named}{more}")
    return next(iter(found.values()))


async def _named(client: Client, digits: str, where: RunFilter) -> list[Run]:
    begins = await _beginning(client, digits, where)
    return begins if len(digits) == 32 else [*begins, *await _ending(client, digits, where)]


async def _beginning(client: Client, digits: str, where: RunFilter) -> list[Run]:
    """Ids are listed downwards, so those with this beginning stand together."""
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
