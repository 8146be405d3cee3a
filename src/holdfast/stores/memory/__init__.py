"""The memory store: simple Python dicts, the reference for the other stores. Its runs end with its process.

Tests compare the other stores with it. One lock guards every verb, because renewals come from another thread.
"""

from __future__ import annotations

import asyncio
import builtins
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID
from weakref import WeakSet

import msgspec

from holdfast.bounds import BATCH_BYTES
from holdfast.contract import (
    CHILDREN_COUNTED,
    DELETED_SECONDS,
    OUTLINES_MAX,
    PURGE_SLICE,
    START,
    TRANSACTION_SECONDS,
    TTL_SECONDS,
    OwnEngine,
)
from holdfast.errors import HoldfastError, UnknownRun, UsageError
from holdfast.records import (
    RUNTIME,
    Ask,
    ChildCounts,
    Claim,
    Definition,
    Due,
    Finding,
    Followed,
    Found,
    Instant,
    Item,
    Lease,
    LeaseState,
    Loaded,
    NewRun,
    Presence,
    Purged,
    Renewal,
    Run,
    RunFilter,
    Running,
    RunOutline,
    Started,
    Stats,
    Step,
    Tenant,
    TrailEntry,
    TrailPage,
    Traits,
    Verdict,
    tenant_name,
)
from holdfast.records.shown import without_large
from holdfast.records.traits import HINTED_POLL_SECONDS
from holdfast.stores.checked import checked
from holdfast.stores.run_filter import inside

from . import claim, purge, reads, search, trail, writes
from .counts import CountVerbs
from .keeper import NO_DATABASE, KeeperVerbs
from .keys import KeyVerbs
from .limits import LimitVerbs
from .outbox import OutboxVerbs, relay_at
from .page_sessions import PageSessionVerbs
from .people import PeopleVerbs
from .rows import State
from .schedules import ScheduleVerbs
from .transfer import TransferVerbs

Listener = tuple[asyncio.AbstractEventLoop, Callable[[], None], Callable[[], None] | None]

_all: WeakSet[MemoryStore] = WeakSet()


def _wall_clock() -> Instant:
    return time.time_ns() // 1000


@checked
class MemoryStore(
    PeopleVerbs,
    KeeperVerbs,
    CountVerbs,
    LimitVerbs,
    OutboxVerbs,
    ScheduleVerbs,
    KeyVerbs,
    PageSessionVerbs,
    TransferVerbs,
):
    """All verbs of the contract over dicts."""

    traits = Traits(poll_seconds=HINTED_POLL_SECONDS)  # whoever changes a run here rings for all

    def __init__(self, clock: Callable[[], Instant] | None = None) -> None:
        self._clock = clock or _wall_clock
        self._state = State()
        self._lock: threading.RLock = threading.RLock()
        _all.add(self)
        self._hints: dict[object, Listener] = {}
        self._holder_calls = 0  # those that listeners were told of

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        self._hints.clear()

    # Reads.

    async def now(self) -> Instant:
        return self._clock()

    async def get(self, run: UUID, tenant: Tenant) -> Run | None:
        with self._lock:
            row = self._state.seen(run, tenant_name(tenant))
            return None if row is None else reads.shown_with_running(row, self._state)

    async def list(self, where: RunFilter, limit: int = 100, after: UUID | None = None) -> builtins.list[Run]:
        with self._lock:
            return reads.runs(self._state, inside(where), limit, after)

    async def outlines(
        self, where: RunFilter, limit: int = OUTLINES_MAX, after: UUID | None = None
    ) -> builtins.list[RunOutline]:
        with self._lock:
            return reads.outlines(self._state, inside(where), limit, after)

    async def search(self, text: str, where: RunFilter, limit: int = 100, after: UUID | None = None) -> Found:
        with self._lock:
            return search.search(self._state, text, inside(where), limit, after)

    async def children(
        self, runs: Sequence[UUID], tenant: Tenant, most: int = CHILDREN_COUNTED
    ) -> builtins.list[ChildCounts]:
        with self._lock:
            return reads.children(self._state, runs, tenant_name(tenant), most)

    async def steps(
        self,
        run: UUID,
        tenant: Tenant,
        *,
        largest: int | None = None,
        after: int | None = None,
        before: int | None = None,
        bytes: int | None = None,
    ) -> builtins.list[Step]:
        with self._lock:
            row = self._state.seen(run, tenant_name(tenant))
            if row is None:
                raise UnknownRun(run)
            found = reads.steps(row)
            if largest is not None:
                found = [without_large(step, largest) for step in found]
            if before is not None:
                return reads.steps_before(found, before, bytes)
            return found if after is None else reads.steps_page(found, after, bytes)

    async def trail(
        self,
        run: UUID | None,
        tenant: Tenant,
        types: Sequence[str] = (),
        after: int = 0,
        limit: int = 1000,
        between: tuple[Instant | None, Instant | None] = (None, None),
    ) -> builtins.list[TrailEntry]:
        with self._lock:
            return trail.trail(
                self._state, run, tenant_name(tenant), types=types, after=after, limit=limit, between=between
            )

    async def follow(
        self, runs: Sequence[tuple[UUID, int]], tenant: Tenant, limit: int = 1000, bytes: int = BATCH_BYTES
    ) -> builtins.list[Followed]:
        with self._lock:
            return trail.follow(self._state, runs, tenant_name(tenant), limit, bytes)

    async def follow_all(
        self,
        tenant: Tenant,
        types: Sequence[str] = (),
        after: int | None = None,
        limit: int = 1000,
        bytes: int = BATCH_BYTES,
    ) -> TrailPage:
        with self._lock:
            return trail.follow_all(self._state, tenant_name(tenant), types, after, (limit, bytes))

    async def waiting_on(self, topic: str, tenant: str) -> builtins.list[UUID]:
        with self._lock:
            return reads.waiting_on(self._state, topic, tenant)

    async def definitions(self, *, schemas: bool = False) -> builtins.list[Definition]:
        with self._lock:
            return reads.definitions(self._state, schemas=schemas)

    async def due(
        self,
        types: Sequence[str],
        tenants: Sequence[str] | None = None,
        *,
        wait_timeouts: bool = True,
        runtime: str = RUNTIME,
        besides: Sequence[tuple[UUID, int]] = (),
        sinks: Sequence[str] = (),
        webhooks: bool = False,
    ) -> Due:
        with self._lock:
            now = self._clock()
            chores = reads.next_chores(self._state, besides, wait_timeouts=wait_timeouts)
            claim_at = reads.next_claim(self._state, types, tenants, (runtime, now))
            asked = sinks or webhooks
            message_at = relay_at(self._state.post, sinks, tenants, webhooks=webhooks) if asked else None
            return Due(now=now, claim_at=claim_at, relay_at=message_at, **chores)

    async def stats(self) -> Stats:
        with self._lock:
            return reads.stats(self._state, self._clock())

    async def stuck(self, limit: int = 100) -> builtins.list[UUID]:
        with self._lock:
            return purge.stuck(self._state, limit)

    async def checkup(self) -> builtins.list[Finding]:
        return purge.checkup()

    # Writes.

    async def start(
        self, runs: Sequence[NewRun], connection: Any = None
    ) -> builtins.list[Started | HoldfastError]:
        if connection is not None:
            raise UsageError(NO_DATABASE)
        with self._lock:
            answers = writes.start(self._state, runs, self._clock())
            self._hint()
            return answers

    async def claim(self, ask: Ask) -> builtins.list[Claim]:
        with self._lock:
            return claim.claim(self._state, ask, self._clock())

    async def load(self, lease: Lease, after: int = START, bytes: int = BATCH_BYTES) -> Loaded:
        with self._lock:
            return claim.load(self._state, lease, after, bytes, self._clock())

    async def commit(self, batch: Sequence[Item]) -> builtins.list[Verdict]:
        with self._lock:
            verdicts = writes.commit(self._state, batch, self._clock())
            self._hint()
            return verdicts

    async def transact(
        self,
        item: Item,
        work: Callable[[Any], Any],
        limit_seconds: float = TRANSACTION_SECONDS,
        on: OwnEngine | None = None,
    ) -> Verdict:
        raise UsageError(NO_DATABASE)

    def renew(self, worker: str, leases: Sequence[Lease], lease_seconds: float) -> Renewal:
        with self._lock:
            return claim.renew(self._state, worker, leases, lease_seconds, self._clock())

    async def lease_states(self, leases: Sequence[tuple[UUID, int]]) -> builtins.list[LeaseState]:
        with self._lock:
            return claim.lease_states(self._state, leases, self._clock())

    async def show_running(self, worker: str, rows: Sequence[Running]) -> builtins.list[bool]:
        with self._lock:
            return claim.show_running(self._state, rows, self._clock())

    async def purge(
        self,
        ttl_seconds: float = TTL_SECONDS,
        deleted_seconds: float = DELETED_SECONDS,
        limit: int = PURGE_SLICE,
    ) -> Purged:
        with self._lock:
            purged = purge.purge(self._state, ttl_seconds, deleted_seconds, limit, self._clock())
            if purged.runs:
                self._hint()
            return purged

    async def publish(self, definitions: Sequence[Definition]) -> None:
        with self._lock:
            writes.publish(self._state, definitions)

    async def present(self, presence: Presence) -> None:
        with self._lock:
            seen = msgspec.structs.replace(presence, seen_at=self._clock())
            self._state.workers[presence.worker] = seen

    async def absent(self, worker: str) -> None:
        with self._lock:
            self._state.workers.pop(worker, None)

    # Hints.

    def listen(
        self,
        hint: Callable[[], None],
        holders: Callable[[], None] | None = None,
        changed: Callable[[], None] | None = None,
    ) -> Callable[[], None]:
        """Call `hint` on this event loop whenever there may be news, and `holders` when a leased run may have
        been moved. Return a function that ends it."""
        loop, token = asyncio.get_running_loop(), object()
        self._hints[token] = (loop, hint, holders)

        def end() -> None:
            self._hints.pop(token, None)

        return end

    def hears(self) -> bool:
        return True

    def _hint(self) -> None:
        called = self._holder_calls != self._state.holder_calls
        self._holder_calls = self._state.holder_calls
        for loop, hint, holders in tuple(self._hints.values()):
            if not loop.is_closed():
                loop.call_soon_threadsafe(hint)
                if called and holders is not None:
                    loop.call_soon_threadsafe(holders)

    # Forks: the child gets a copy of the state. The lock is held during the fork, so that the copy is
    # consistent and no thread that is missing in the child holds the lock there.

    def hold_still(self) -> None:
        self._lock.acquire()

    def go_on(self) -> None:
        self._lock.release()

    def left_behind(self) -> None:
        self._hints.clear()
        self._lock.release()


def _before_fork() -> None:
    _fork.stores = sorted(_all, key=id)  # in one order: two threads that fork at once wait for each other
    for store in _fork.stores:
        store.hold_still()


def _in_parent() -> None:
    while _fork.stores:
        _fork.stores.pop().go_on()


def _in_child() -> None:
    while _fork.stores:
        _fork.stores.pop().left_behind()


_fork = threading.local()  # the stores that the fork of this thread holds
os.register_at_fork(before=_before_fork, after_in_parent=_in_parent, after_in_child=_in_child)
