"""Signals that stop user code on purpose. They are no Exception, so `except Exception` does not catch
them.
"""

from __future__ import annotations

from typing import Any

SWALLOWED = (
    "the workflow caught the signal that parks it (a bare `except:`, `except BaseException`, or a `finally` "
    "that does not end, around a sleep or an awaited event): catch Exception instead"
)

CONTINUED_ON = (
    "the workflow caught the signal of ctx.continue_as (a bare `except:` or `except BaseException`) and "
    "went on: catch Exception instead"
)


class Parked(BaseException):
    """The run parks: its code is unwound here, and is replayed when a wait is settled."""


class Continued(BaseException):
    """The run called `continue_as`: it ends, and the next run of its chain begins."""

    def __init__(self, params: Any) -> None:
        super().__init__("continue_as")
        self.params = params


def continued(error: BaseException | None) -> Continued | None:
    """Return the `Continued` signal in an exception, also when a TaskGroup wraps it; else None."""
    if isinstance(error, BaseExceptionGroup) and only_signals(error, Continued):
        return continued(error.exceptions[0])
    return error if isinstance(error, Continued) else None


def only_signals(error: BaseException, *kinds: type[BaseException]) -> bool:
    """Return True when `error` is one of these signals, or a group of nothing else (a TaskGroup makes
    groups).
    """
    if isinstance(error, BaseExceptionGroup):
        return all(only_signals(one, *kinds) for one in error.exceptions)
    return isinstance(error, kinds)
