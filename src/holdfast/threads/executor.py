"""What asyncio.to_thread and run_in_executor run on, where nothing may hold the exit of a process.

Python's own executor is joined when the interpreter ends: one call that hangs would keep it for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, ParamSpec, TypeVar

from .pool import Pool

P = ParamSpec("P")
T = TypeVar("T")

THREADS = 32


class Unjoined(ThreadPoolExecutor):
    """An executor by name, which event loops insist on; what runs the calls is a pool of daemons."""

    def __init__(self) -> None:
        super().__init__(1)
        self._pool = Pool(THREADS, "holdfast-executor")

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call it as soon as a thread is free, unless it is cancelled before."""
        answer: Future[T] = Future()
        self._pool.put(partial(_answer, answer, partial(fn, *args, **kwargs)))
        return answer


def _answer(answer: Future[Any], work: Callable[[], Any]) -> None:
    if not answer.set_running_or_notify_cancel():
        return
    try:
        answer.set_result(work())
    except BaseException as error:  # noqa: BLE001 - it is handed to whoever waits
        answer.set_exception(error)
