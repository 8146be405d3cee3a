"""The event loops that host a worker. `app.sync` must not block such a loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NoReturn
from weakref import WeakKeyDictionary

from holdfast.errors import UsageError

if TYPE_CHECKING:
    from .worker import Worker

# number of workers on each event loop
WORKERS: WeakKeyDictionary[asyncio.AbstractEventLoop, int] = WeakKeyDictionary()


def count_worker(change: int, worker: Worker) -> None:
    """Note that a worker has started on this event loop (1), or has stopped (-1)."""
    if worker.measures is not None:
        (worker.measures.worker_started if change > 0 else worker.measures.worker_stopped)(worker)
    loop = asyncio.get_running_loop()
    WORKERS[loop] = WORKERS.get(loop, 0) + change


def hosts_worker() -> bool:
    """Return True when this thread runs an event loop on which a worker works."""
    try:
        return WORKERS.get(asyncio.get_running_loop(), 0) > 0
    except RuntimeError:
        return False


class OnlyAsync:
    """The base of a worker: it refuses `with` instead of `async with`, in plain words."""

    def __enter__(self) -> NoReturn:
        """Refuse `with`."""
        raise UsageError(
            "a worker is async: write `async with app.worker()`, or `with app.sync.worker()` in sync code"
        )

    def __exit__(self, *_: object) -> None:
        """Do nothing: `__enter__` always raises."""
