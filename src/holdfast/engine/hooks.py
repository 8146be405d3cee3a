"""Hooks: the names of what an app may want to be told of, and what it is told."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any
from uuid import UUID

import msgspec

from holdfast.errors import UsageError
from holdfast.lifecycle import Status
from holdfast.records import Error, Json

from .failures import stored

NAMES = (
    "run.started",
    "run.succeeded",
    "run.failed",
    "run.retried",
    "run.waiting",
    "run.paused",
    "run.cancelled",
    "run.released",
    "run.lost",
    "step.failed",
    "worker.started",
    "worker.stopped",
)


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """What a hook is told. Of a worker's own start and stop there is no run to tell."""

    name: str
    worker: str
    run: UUID | None = None
    type: str = ""
    tenant: str = ""
    attempt: int = 0
    status: Status | None = None  # what the run is from then on; None when it is not known here any more
    step: str | None = None  # the step that failed, if one did
    error: Error | None = None


class Hook(msgspec.Struct, frozen=True):
    """One function, as it was registered."""

    function: Callable[[Notice], Any]
    is_async: bool

    @property
    def called(self) -> str:
        """Its name in the log."""
        return getattr(self.function, "__qualname__", None) or repr(self.function)


Hooks = dict[str, list[Hook]]


def register(hooks: Hooks, names: tuple[str, ...], function: Any) -> None:
    """Have `function` called for each of these names."""
    if not callable(function) or not _takes_one(function):
        raise UsageError(f"a hook takes one argument, the notice: write def told(notice), not {function!r}")
    inner = getattr(function, "func", None) or type(function).__call__  # a partial, or an object
    is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(inner)
    for name in dict.fromkeys(names):
        hooks.setdefault(name, []).append(Hook(function, is_async))


def _takes_one(function: Callable[..., Any]) -> bool:
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        return False
    except ValueError:  # some builtins cannot be asked
        return True
    return True


def check_names(names: tuple[Any, ...]) -> tuple[str, ...]:
    """Refuse what is never told."""
    if not names or callable(names[0]):
        raise UsageError('a hook needs a name: write @app.on("run.failed")')
    for name in names:
        if name not in NAMES:
            near = get_close_matches(str(name), NAMES, n=1, cutoff=0.6)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise UsageError(f"no hook is called {name!r}: {hint}There are {', '.join(NAMES)}")
    return names


def decoded(error: Json | None) -> Error | None:
    """An error as it was recorded."""
    return None if error is None else stored(error)
