"""A group of workers in one process, one for each store: a store that cannot be reached stops no other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from holdfast.errors import StoreError, Unavailable
from holdfast.escaping import safe_logger

if TYPE_CHECKING:
    from .worker import Worker

log = safe_logger("holdfast.worker")

AWAY_SECONDS = 5.0  # time between two tries to reach a store


class WorkerGroup:
    """A group of workers. `life` runs one worker until it is told to stop, and calls back once the worker has
    reached its store. `stop` tells all of them.
    """

    def __init__(
        self,
        workers: Sequence[Worker],
        life: Callable[[Worker, Callable[[], None]], Awaitable[None]],
        stopping: asyncio.Event,
        stop: Callable[[], None],
    ) -> None:
        self._workers, self._life, self._stopping, self._stop = workers, life, stopping, stop
        self._away = set[str]()  # ids of workers whose stores cannot be reached now
        self._has_worked = False  # True once any store was reached

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
            await self._life(worker, partial(self._note_reached, worker))
        except Unavailable as error:
            self._away.add(worker.id)
            is_useless = not self._has_worked and len(self._away) == len(self._workers)
            if self._stopping.is_set() or is_useless:
                raise
            await self._retry(worker, error)

    def _note_reached(self, worker: Worker) -> None:
        self._has_worked = True
        self._away.discard(worker.id)

    async def _retry(self, worker: Worker, trouble: StoreError) -> None:
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
                await self._life(worker, partial(self._note_reached, worker))
            except StoreError as error:
                trouble = error
