"""The driver of a user's coroutine: it can raise a signal at the place where the coroutine waits.

`task.cancel()` alone would raise CancelledError in user code for a run that merely parks, and code that
cleans up after a cancel would do so at every wait. Here the cancel only wakes the task; the exception
raised inside is the signal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any


class Drive:
    """A driver of one coroutine. Awaiting it runs the coroutine within the current task."""

    __slots__ = ("_abandoned", "_coroutine", "_signal", "_task")

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._coroutine = coroutine
        self._task = asyncio.current_task()
        self._signal: BaseException | None = None
        self._abandoned = False

    def interrupt(self, signal: BaseException | None) -> None:
        """Raise `signal` (None: CancelledError) where the coroutine waits."""
        assert self._task is not None
        self._signal = signal
        self._task.cancel()

    def abandon(self) -> None:
        """Stop driving: the coroutine has swallowed its signal and will not end."""
        assert self._task is not None
        self._abandoned = True
        self._task.cancel()

    def __await__(self) -> Generator[Any, Any, Any]:
        error: BaseException | None = None
        try:
            while True:
                if error is None:
                    waited = self._coroutine.send(None)
                else:
                    raised, error = error, None
                    waited = self._coroutine.throw(raised)
                try:
                    yield waited
                except asyncio.CancelledError as cancelled:
                    if self._abandoned:
                        raise
                    error, self._signal = self._signal or cancelled, None
                    if error is not cancelled and self._task is not None:
                        self._task.uncancel()
                except GeneratorExit:
                    raise
                except BaseException as failed:  # noqa: BLE001 - what the awaited future failed with is its own
                    error = failed
        except StopIteration as stop:
            return stop.value
        finally:
            _close(self._coroutine)


def _close(coroutine: Coroutine[Any, Any, Any]) -> None:
    try:
        coroutine.close()
    except RuntimeError:
        # The coroutine awaits even while it is being closed; nothing more can be done.
        return
