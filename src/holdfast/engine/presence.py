"""What a worker shows of itself, and how soon it asks what is new for the runs that it holds."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from holdfast.escaping import safe_logger
from holdfast.records import Presence

from .turns import unforeseen

if TYPE_CHECKING:
    from .worker import Worker

log = safe_logger("holdfast.worker")

PRESENCE_SECONDS = 30.0
REFRESH_SECONDS = 0.25


async def show(worker: Worker) -> None:
    """Note in the store that this worker is there, and what it can take."""
    await worker.store.present(
        Presence(
            worker=worker.id,
            types=worker.types,
            patterns=worker.patterns,
            tenants=worker.tenants,
            runtime=worker.runtime,
            slots=worker.slots,
            stragglers=worker.stragglers,
            sinks=worker.relay.names,
            lacking=worker.versions.lacking,
        )
    )


async def shows(worker: Worker) -> None:
    """Again and again, until cancelled."""
    while True:
        await asyncio.sleep(PRESENCE_SECONDS)
        try:
            await worker.versions.look()
        except Exception as error:
            log.warning("cannot look for versions, will try again: %s", error, exc_info=unforeseen(error))
        try:
            await show(worker)
        except Exception as error:
            log.warning("cannot show presence now, will try again: %s", error, exc_info=unforeseen(error))


class Refresh:
    """A renewal on a hint, for a run that is at work on one branch may have news for another."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._asked_at = -REFRESH_SECONDS
        self._asking: asyncio.TimerHandle | None = None

    def soon(self) -> None:
        """Ask for one, if any run would hear of it."""
        held = self._worker.leases.held
        if self._asking is None and any(one.record.open_waits for one in held.values()):
            # Late if there was one just now, but not left out: it may have been too early for this news.
            wait = self._asked_at + REFRESH_SECONDS - self._worker.world.monotonic()
            self._asking = asyncio.get_running_loop().call_later(max(0.0, wait), self._ask)

    def _ask(self) -> None:
        self._asking, self._asked_at = None, self._worker.world.monotonic()
        self._worker.leases.ask()
