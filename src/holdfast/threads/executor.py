"""The executor for asyncio.to_thread and run_in_executor in a worker process.

Python's own executor is joined when the interpreter ends: one call that hangs would keep the process alive.
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


class DaemonExecutor(ThreadPoolExecutor):
    """An executor whose calls run in a pool of daemon threads.

    It is a ThreadPoolExecutor because event loops accept nothing else.
    """

    def __init__(self) -> None:
        super().__init__(1)
        self._pool = Pool(THREADS, "holdfast-executor")

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call `fn` as soon as a thread is free, unless the call is cancelled before."""
        answer: Future[T] = Future()
        self._pool.put(partial(call_for, answer, partial(fn, *args, **kwargs)))
        return answer


def call_for(answer: Future[Any], work: Callable[[], Any]) -> None:
    """Call `work` and give its value to the waiting caller. If nobody waits any more, it is not called."""
    if not answer.set_running_or_notify_cancel():
        return
    try:
        answer.set_result(work())
    except BaseException as error:  # noqa: BLE001 - it is handed to the waiting caller
        answer.set_exception(error)
