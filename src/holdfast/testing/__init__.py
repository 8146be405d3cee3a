"""The testing kit: rehearse workflows in virtual time, explore them crash by crash, test a store.

Names are imported at their first use: the pytest plugin is loaded in every run of pytest, and must cost
next to nothing there.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

# Imported at once: otherwise the package of the same name replaces it as soon as that is imported.
from .contract import contract

if TYPE_CHECKING:
    from .exploring import explore
    from .findings import Finding, Report
    from .rehearsal import Rehearsal, RehearsedRun, Stuck
    from .virtual import Deadlock, VirtualLoop, VirtualWorld, play

__all__ = [
    # workflows
    "Rehearsal",
    "RehearsedRun",
    "Stuck",
    "explore",
    "Report",
    "Finding",
    # stores
    "contract",
    # virtual time
    "VirtualWorld",
    "VirtualLoop",
    "Deadlock",
    "play",
]

_HOMES = {
    "exploring": "explore",
    "findings": "Finding Report",
    "rehearsal": "Rehearsal RehearsedRun Stuck",
    "virtual": "Deadlock VirtualLoop VirtualWorld play",
}
_HOME = {name: home for home, names in _HOMES.items() for name in names.split()}


if not TYPE_CHECKING:  # otherwise the type checker would accept any name

    def __getattr__(name: str) -> object:
        if name not in _HOME:
            raise AttributeError(f"module 'holdfast.testing' has no attribute {name!r}")
        found = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
