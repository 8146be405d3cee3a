"""Workers: when they were seen, what they can execute, and what they execute now."""

from __future__ import annotations

from typing import Any

from holdfast.engine.definitions import RESERVED
from holdfast.http.pages.page import Shown, page
from holdfast.http.pages.pagecall import PageCall
from holdfast.records import Scope

from .reading import runs_with, scale_of_all
from .workflows import executes, registry_of, unserved

WORKERS, RUNS_MAX = 200, 500
RUNS_EACH = 20  # runs of one worker that are named


@page("/workers", title="Workers", scope=Scope.OPERATOR, menu="Workers", live=True)
async def workers(call: PageCall) -> Shown:
    """Show the live workers, and the runs that are leased."""
    found = (await call.ask("workers")).items
    scale, registry = await scale_of_all(call), await registry_of(call)
    runs: dict[str, list[Any]] = {}
    leased, more = await runs_with(call, scale, "leased", RUNS_MAX) if call.can("list") else ([], False)
    for run in leased:
        runs.setdefault(run.leased_by or "", []).append(run)
    shown = found[:WORKERS]
    names = {one.worker for one in found}
    gone = {name: held for name, held in runs.items() if name not in names}
    data = {
        "workers": [(one, runs.get(one.worker, []), executes(one)) for one in shown],
        "left": len(found) - len(shown),
        "gone": gone,
        "more": more,
        "each": RUNS_EACH,
        "built_in": [name for one in shown for name in one.types if name.startswith(RESERVED)],
        "unserved": unserved(scale, found, registry),
    }
    return Shown("workers.html", data)
