"""Reads of the record of a held run, repeated until the store can be reached."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from holdfast.contract.extras import ReadsHeldRuns
from holdfast.errors import StoreError
from holdfast.escaping import safe_logger
from holdfast.records import HeldRecord, Run

from .chores import TROUBLE_SECONDS
from .held_run import HeldRun
from .loading import lease_of

T = TypeVar("T")

log = safe_logger("holdfast.run")


async def record_of(run: HeldRun) -> Run | HeldRecord | None:
    """Read the run itself, as it is now; None when it was deleted, or is not held any more."""
    store, claim = run.worker.store, run.claim
    if isinstance(store, ReadsHeldRuns):
        return await store.held_record(lease_of(claim))
    return await store.get(claim.id, claim.tenant)


async def patiently(run: HeldRun, read: Callable[[], Awaitable[T]]) -> T:
    """Call `read` until the store can be reached, and return its answer."""
    while True:
        try:
            return await read()
        except StoreError as error:
            log.warning("run %s cannot be read, will retry: %s", run.claim.id, error)
            await asyncio.sleep(TROUBLE_SECONDS)
