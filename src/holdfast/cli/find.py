"""Which run a person means: an id, or the first or last few characters of one."""

from __future__ import annotations

import re
from uuid import UUID

from holdfast.engine.client import Client
from holdfast.errors import UnknownRun, UsageError
from holdfast.records import Run, RunFilter

SHORT = 8  # characters shown in tables: the last ones, for the first are the same within a minute
SHORT_MIN = 6
PAGE = 1000
SCAN_MAX = 10_000  # how many of the newest runs are looked at for an ending
SHOWN = 5
_EVERYWHERE = RunFilter(tenant=None)


def short(run_id: UUID | str) -> str:
    """The end of an id, as tables and logs show it."""
    return str(run_id)[-SHORT:]


async def find(client: Client, said: str) -> Run:
    """The run that `said` names; one line says why when it names none, or several."""
    wanted = said.strip().lower()
    digits = wanted.replace("-", "")
    if not re.fullmatch(r"[0-9a-f]+", digits):
        raise UsageError(
            f"{said!r} is no run id: ids look like 0199c0de-7a31-7c3e-b1de-4b9a5d0c8f10; "
            "`holdfast ls` shows them"
        )
    if len(digits) == 32:
        return await client.known(UUID(digits))
    if not SHORT_MIN <= len(digits) < 32:
        raise UsageError(
            f"{said!r} has {len(digits)} characters: give the whole id, "
            f"or {SHORT_MIN} or more of its beginning or end"
        )
    found = {run.id: run for run in [*await _beginning(client, digits), *await _ending(client, digits)]}
    if not found:
        raise UnknownRun(said)
    if len(found) > 1:
        named = ", ".join(f"{run.id} ({run.type}, {run.status})" for run in list(found.values())[:SHOWN])
        more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
        raise UsageError(f"{said!r} is not unique, give more characters: {named}{more}")
    return next(iter(found.values()))


async def _beginning(client: Client, digits: str) -> list[Run]:
    """Ids are listed downwards, so those with this beginning stand together."""
    top = UUID(digits.ljust(32, "f"))
    runs = await client.list(_EVERYWHERE, SHOWN + 1, after=top)
    return [
        run for run in [await client.get(top), *runs] if run is not None and run.id.hex.startswith(digits)
    ]


async def _ending(client: Client, digits: str) -> list[Run]:
    found: list[Run] = []
    after: UUID | None = None
    for _ in range(SCAN_MAX // PAGE):
        page = await client.list(_EVERYWHERE, PAGE, after=after)
        found += [run for run in page if run.id.hex.endswith(digits)]
        if len(page) < PAGE:
            break
        after = page[-1].id
    return found
