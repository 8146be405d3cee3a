"""Several workers in one process, each at a store of its own: one that cannot be reached stops no other."""

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

AWAY_SECONDS = 5.0  # between two tries to reach a store


class Crew:
    """`life`: of one worker, until `told`. `stop`: tell them all."""

    def __init__(
        self,
        workers: Sequence[Worker],
        life: Callable[[Worker], Awaitable[None]],
        told: asyncio.Event,
        stop: Callable[[], None],
    ) -> None:
        self._workers, self._life, self._told, self._stop = workers, life, told, stop
        self._away = 0  # stores that could not be reached at the first try

    async def work(self) -> None:
        """Until all have ended. What is wrong with a store, and not just away, ends all at the start."""
        lives = [asyncio.ensure_future(self._live(worker)) for worker in self._workers]
        try:
            await asyncio.gather(*lives)
        except BaseException:
            if not self._told.is_set():
                self._stop()
            await asyncio.wait(lives)
            raise

    async def _live(self, worker: Worker) -> None:
        try:
            await self._life(worker)
        except Unavailable as error:
            self._away += 1
            if self._told.is_set() or self._away == len(self._workers):
                raise
            await self._reached(worker, error)

    async def _reached(self, worker: Worker, trouble: StoreError) -> None:
        """Once its store is there, whatever is wrong with it until then: the others are at work."""
        said = ""
        while not self._told.is_set():
            if said != str(trouble):
                said = str(trouble)
                log.warning("cannot work there yet, will try again: %s", said)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._told.wait(), AWAY_SECONDS)
                return
            try:
                await self._life(worker)
            except StoreError as error:
                trouble = error
