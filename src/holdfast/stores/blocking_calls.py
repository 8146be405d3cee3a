"""Blocking calls of stores whose driver is asynchronous: a renewal must not wait for a busy event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

_LEASE_SHARE = 0.25  # a second try is still in time
RENEWAL_SECONDS_MIN, RENEWAL_SECONDS_MAX = 0.25, 5.0


def renewal_seconds(lease_seconds: float) -> float:
    """Return how long a renewal of leases may wait for its answer."""
    return max(RENEWAL_SECONDS_MIN, min(RENEWAL_SECONDS_MAX, _LEASE_SHARE * lease_seconds))


def outside_loop(work: Callable[[], T]) -> T:
    """Run work here, or on another thread if this thread runs an event loop: a thread cannot run two."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return work()
    outcome: list[Callable[[], T]] = []

    def run() -> None:
        try:
            answer = work()
            outcome.append(lambda: answer)
        except BaseException as error:  # noqa: BLE001 - it is raised where it was asked
            outcome.append(_raiser(error))

    thread = threading.Thread(target=run, name="holdfast-aside", daemon=True)
    thread.start()
    thread.join()
    return outcome[0]()


def _raiser(error: BaseException) -> Callable[[], Any]:
    def again() -> Any:
        raise error

    return again
