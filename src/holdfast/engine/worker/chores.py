"""The chores of a keeper run by turns: a chore that raises or hangs does not delay the others."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from typing import Any, NamedTuple

from holdfast.engine.measures import Measures
from holdfast.errors import StoreError
from holdfast.escaping import safe_logger

log = safe_logger("holdfast.keeper")

TURN_SECONDS = 0.5  # the others wait so long for one chore; then it goes on beside them
STALL_SECONDS = 60.0  # a chore that takes longer is stopped, and begun anew
TROUBLE_SECONDS = 1.0  # delay before a chore that raised is retried

Spawn = Callable[[Coroutine[Any, Any, int], str], asyncio.Task[int]]


class Running(NamedTuple):
    """A chore that runs, and its start."""

    task: asyncio.Task[int]
    since: float


def unforeseen(error: BaseException) -> bool:
    """Return True when the log should show a traceback: not for a store that cannot be reached."""
    return not isinstance(error, StoreError)


def will_retry(log: logging.Logger, what: str, error: BaseException, measures: Measures | None) -> None:
    """Log that something cannot be done now. Count an error that is not the store's: it is the engine's."""
    log.warning("cannot %s now, will retry: %s", what, error, exc_info=error if unforeseen(error) else None)
    if measures is not None and unforeseen(error):
        measures.engine_failed()


class Chores:
    """A set of chores, each a function that returns how much it did.

    `ended`: called when a chore that went on beside the others has ended.
    """

    def __init__(
        self,
        chores: Mapping[str, Callable[[], Awaitable[int]]],
        spawn: Spawn,
        ended: Callable[[], None],
        measures: Measures | None = None,
    ) -> None:
        self._chores, self._spawn, self._ended, self._measures = chores, spawn, ended, measures
        self._running: dict[str, Running] = {}
        self._beside: set[str] = set()  # chores that have taken longer than their turn
        self._rests_until: dict[str, float] = {}  # chores that have raised

    async def round(self, due: Collection[str]) -> int:
        """Give each due or running chore one turn of at most TURN_SECONDS; return how much the ended chores
        did."""
        done = 0
        for name in self._chores:
            if name in due or name in self._running:
                done += await self._turn(name)
        return done

    async def stop(self) -> None:
        """Cancel the chores that run."""
        tasks = [one.task for one in self._running.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._running.clear()

    async def _turn(self, name: str) -> int:
        clock = asyncio.get_running_loop().time
        running = self._running.get(name)
        if running is None:
            if clock() < self._rests_until.get(name, 0.0):
                return 0
            running = self._running[name] = Running(self._spawn(self._do(name), f"holdfast-{name}"), clock())
            await asyncio.wait({running.task}, timeout=TURN_SECONDS)
        if running.task.done():
            return self._collect(name, running.task)
        self._beside.add(name)
        if clock() - running.since > STALL_SECONDS:
            log.warning("cannot %s: it takes longer than %g s, will retry", name, STALL_SECONDS)
            running.task.cancel()
        return 0

    async def _do(self, name: str) -> int:
        try:
            return await self._chores[name]()
        finally:
            if name in self._beside:
                self._beside.discard(name)
                self._ended()

    def _collect(self, name: str, task: asyncio.Task[int]) -> int:
        del self._running[name]
        if task.cancelled():
            return 0
        error = task.exception()
        if error is None:
            return task.result()
        self._rests_until[name] = asyncio.get_running_loop().time() + TROUBLE_SECONDS
        will_retry(log, name, error, self._measures)
        return 0
