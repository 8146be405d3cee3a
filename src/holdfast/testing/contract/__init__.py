"""The contract suite: tests of everything that a store must do, for authors of stores.

Every test is in a `test_*.py` beside this file, uses only the fixture `driver`, and names no store. pytest is
imported when the suite is used, not before.
"""

from __future__ import annotations

import pkgutil
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.contract import Store

MakeStore = Callable[[Callable[[], int], Path], "Store"]


def contract(make_store: MakeStore) -> Any:
    """Return the tests of a store as a class, to be assigned to a name that pytest collects, as
    `TestMyStore`.

    `make_store(clock, folder)` is called for each test and returns a new store, not yet opened, whose
    "now" is always `clock()`, in microseconds since 1970; `folder` is an empty `pathlib.Path` of its own.
    """
    modules = _modules()
    from .suite import Suite  # imported here, because it needs pytest

    members: dict[str, Any] = {"make_store": staticmethod(make_store), "__doc__": "The contract of a store."}
    for name, test in (pair for module in modules for pair in _tests(module)):
        if name in members:
            raise ValueError(f"two tests of the contract are called {name}: give one of them another name")
        members[name] = staticmethod(test)
    return type("Contract", (Suite,), members)


def _modules() -> list[Any]:
    import pytest  # imported here, because users of the rest of the kit may not have it

    found = [f"{__name__}.{module.name}" for module in pkgutil.iter_modules(__path__)]
    # Only modules that are not imported yet: pytest warns of those that it can no longer rewrite.
    pytest.register_assert_rewrite(*(name for name in found if name not in sys.modules))
    return [import_module(name) for name in found if name.rpartition(".")[2].startswith("test_")]


def _tests(module: Any) -> Iterator[tuple[str, Any]]:
    return ((name, member) for name, member in vars(module).items() if name.startswith("test_"))
