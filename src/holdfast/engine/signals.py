"""What stops user code on purpose. None of it is an Exception, so `except Exception` lets it pass."""

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
    """The run waits: its code is unwound here and begins again, by replay, when something has come."""


class Continued(BaseException):
    """The run ends here and the next one of its kind takes over."""

    def __init__(self, params: Any) -> None:
        super().__init__("continue_as")
        self.params = params


def continued(error: BaseException | None) -> Continued | None:
    """The wish to go on as another run, also when it comes out of a TaskGroup."""
    if isinstance(error, BaseExceptionGroup) and only_signals(error, Continued):
        return continued(error.exceptions[0])
    return error if isinstance(error, Continued) else None


def only_signals(error: BaseException, *kinds: type[BaseException]) -> bool:
    """Whether `error` is one of these, or a group of nothing else (a TaskGroup wraps what passes it)."""
    if isinstance(error, BaseExceptionGroup):
        return all(only_signals(one, *kinds) for one in error.exceptions)
    return isinstance(error, kinds)
