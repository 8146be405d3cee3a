"""The presence row of a worker, and early renewals on a hint."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import TYPE_CHECKING

from holdfast.arguments import check_name
from holdfast.engine.failures import text
from holdfast.escaping import safe_logger
from holdfast.records import Presence
from holdfast.records.written import library_of
from holdfast.version import VERSION
from holdfast.world import World

from .chores import unforeseen

if TYPE_CHECKING:
    from .worker import Worker

log = safe_logger("holdfast.worker")

LANGUAGE, LIBRARY = "python", "holdfast"
PLACE_MAX = 200  # characters of host and process in a worker's id
PRESENCE_SECONDS = 30.0
SILENT_SECONDS = PRESENCE_SECONDS + 3.0  # a live worker is not silent for so long, unless its store is slow
REFRESH_SECONDS = 0.25
VERSIONS_BEATS = 2  # without runs of other versions, one look for them in so many writes of the presence


def worker_id(name: str, world: World) -> str:
    """Return a new id of a worker, which people can read."""
    # Host and process alone are not enough: two workers of one process would take each other's runs for
    # strays, and give them back.
    return f"{check_name('name', name)}:{text(world.place(), PLACE_MAX)}{world.uuid7().int & 0xFFFF:04x}"


def how_many(number: int, noun: str) -> str:
    """`1 workflow`, `2 workflows`."""
    return f"{number} {noun}{'s' * (number != 1)}"


async def show(worker: Worker) -> None:
    """Write the presence row: this worker lives, and these are the types that it takes."""
    await worker.store.present(
        Presence(
            worker=worker.id,
            types=(*worker.types, *worker.versions.built_in),
            patterns=worker.patterns,
            tenants=worker.tenants,
            runtime=worker.runtime,
            slots=worker.slots,
            stragglers=worker.stragglers,
            sinks=worker.relay.names,
            lacking=worker.versions.lacking,
            library=library_of(LIBRARY, VERSION, LANGUAGE),
        )
    )


async def shows(worker: Worker) -> None:
    """Write the presence row again and again, until cancelled."""
    for beat in count(1):
        await asyncio.sleep(PRESENCE_SECONDS)
        try:
            if beat % VERSIONS_BEATS == 0 or worker.versions.stands_in:
                await worker.versions.look()
        except Exception as error:
            log.warning(
                "cannot look for versions of plans, will retry: %s", error, exc_info=unforeseen(error)
            )
        try:
            await show(worker)
        except Exception as error:
            log.warning("cannot send a heartbeat now, will retry: %s", error, exc_info=unforeseen(error))


class Refresh:
    """An early renewal on a hint: a run that works on one branch may have news for another."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._asked_at = -REFRESH_SECONDS
        self._asking: asyncio.TimerHandle | None = None
        self._during_claim = False  # news came while a claim was under way: its runs are not held yet

    def claim_answered(self) -> None:
        """Look for news of the runs of a claim too, if some came before its answer."""
        if self._during_claim:
            self._during_claim = False
            self.soon()

    def soon(self) -> None:
        """Ask for a renewal soon, if any run could have news."""
        self._during_claim = self._during_claim or self._worker.leases.claiming
        held = self._worker.leases.held
        if self._asking is None and any(one.record.open_waits for one in held.values()):
            # Delayed after a recent renewal, but not left out: that one may have come before this news.
            wait = self._asked_at + REFRESH_SECONDS - self._worker.world.monotonic()
            self._asking = asyncio.get_running_loop().call_later(max(0.0, wait), self._ask)

    def _ask(self) -> None:
        self._asking, self._asked_at = None, self._worker.world.monotonic()
        self._worker.leases.ask()
