"""A group of workers in one process, one for each store: a store that cannot be reached stops no other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from holdfast.errors import StoreError, Unavailable
from holdfast.escaping import safe_logger

if TYPE_CHECKING:
    from .worker import Worker

log = safe_logger("holdfast.worker")

AWAY_SECONDS = 5.0  # time between two tries to reach a store


class WorkerGroup:
    """A group of workers. `life` runs one worker until it is told to stop. `stop` tells all of them."""

    def __init__(
        self,
        workers: Sequence[Worker],
        life: Callable[[Worker], Awaitable[None]],
        stopping: asyncio.Event,
        stop: Callable[[], None],
    ) -> None:
        self._workers, self._life, self._stopping, self._stop = workers, life, stopping, stop
        self._away = 0  # stores that could not be reached at the first try

    async def work(self) -> None:
        """Run until all workers have ended. A store that is wrong, not just unreachable, ends all at the
        start.
        """
        lives = [asyncio.ensure_future(self._live(worker)) for worker in self._workers]
        try:
            await asyncio.gather(*lives)
        except BaseException:
            if not self._stopping.is_set():
                self._stop()
            await asyncio.wait(lives)
            raise

    async def _live(self, worker: Worker) -> None:
        try:
            await self._life(worker)
        except Unavailable as error:
            self._away += 1
            if self._stopping.is_set() or self._away == len(self._workers):
                raise
            await self._reached(worker, error)

    async def _reached(self, worker: Worker, trouble: StoreError) -> None:
        """Run one worker once its store can be reached; until then any error is retried: the others work."""
        said = ""
        while not self._stopping.is_set():
            if said != str(trouble):
                said = str(trouble)
                log.warning("cannot work at this store yet, will retry: %s", said)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), AWAY_SECONDS)
                return
            try:
                await self._life(worker)
            except StoreError as error:
                trouble = error
