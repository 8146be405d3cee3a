"""Hooks: the names of events that an app may register functions for, and the notice that a function gets."""

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
    """The argument of a hook. Notices of a worker's start and stop have no run."""

    name: str
    worker: str
    run: UUID | None = None
    type: str = ""
    tenant: str = ""
    attempt: int = 0
    status: Status | None = None  # the run's new status; None when it is not known here any more
    step: str | None = None  # the step that failed, if one did
    error: Error | None = None


class Hook(msgspec.Struct, frozen=True):
    """One registered function."""

    function: Callable[[Notice], Any]
    is_async: bool

    @property
    def called(self) -> str:
        """The name of the function in the log."""
        return getattr(self.function, "__qualname__", None) or repr(self.function)


Hooks = dict[str, list[Hook]]


def register(hooks: Hooks, names: tuple[str, ...], function: Any) -> None:
    """Register `function` for each of these names."""
    if not callable(function) or not _takes_one(function):
        raise UsageError(
            f"a hook takes one argument, the notice: write def notified(notice), not {function!r}"
        )
    inner = getattr(function, "func", None) or type(function).__call__  # a partial, or a callable object
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
    """Refuse names that no hook has."""
    if not names or callable(names[0]):
        raise UsageError('a hook needs a name: write @app.on("run.failed")')
    for name in names:
        if name not in NAMES:
            near = get_close_matches(str(name), NAMES, n=1, cutoff=0.6)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise UsageError(f"there is no hook {name!r}; {hint}the hooks are {', '.join(NAMES)}")
    return names


def decoded(error: Json | None) -> Error | None:
    """Read a recorded error."""
    return None if error is None else stored(error)
