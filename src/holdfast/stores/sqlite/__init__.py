"""The SQLite store: one file, one writer thread with group commit, and separate readers.

Reads run at once on the caller's thread, on the reader's connection. Writes are jobs for the writer:
functions of the database and the instant. Statements are in .sql files beside the modules that use them.

- `connection/`: connections, the writer thread, turns between processes, forks.
- `claiming/`: claims, limits, fair shares.
- `view/`: the rows that the machine reads and changes.
- `chores/`: events, timeouts, purge. `transactions/`: transactions shared with users' tables.
- `writes`, `fast_writes`: start, commit, renew. `reads`, `search`, `rows`, `trail`: reads, records.
- `people`, `publish`, `outbox`, `schedules`, `keys`: verbs. `migrate`, `schema/`: schema. `checkup`: checks.
"""

from __future__ import annotations

import asyncio
import builtins
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextvars import copy_context
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import apsw
from msgspec.structs import replace

from holdfast.bounds import BATCH_BYTES
from holdfast.contract import CHILDREN_COUNTED, OUTLINES_MAX, START, TRANSACTION_SECONDS, OwnEngine
from holdfast.errors import HoldfastError, StoreError, Unavailable, UsageError
from holdfast.records import (
    RUNTIME,
    Ask,
    ChildCounts,
    Claim,
    Definition,
    Due,
    Finding,
    Instant,
    Item,
    Lease,
    LeaseState,
    Loaded,
    NewRun,
    Presence,
    Renewal,
    Run,
    RunFilter,
    Running,
    RunOutline,
    Started,
    Stats,
    Tenant,
    Traits,
    Verdict,
    tenant_name,
)
from holdfast.records.sizes import item_bytes, start_bytes
from holdfast.records.traits import HINTED_POLL_SECONDS
from holdfast.stores import items
from holdfast.stores.checked import checked
from holdfast.stores.run_filter import inside
from holdfast.threads import CallResult, Pool
from holdfast.threads.executor import call_for

from . import checkup, migrate, publish, reads, writes
from .chores.keeper import KeeperVerbs
from .chores.purge import Past, PurgeVerbs
from .claiming import claim
from .claiming.limits import LimitVerbs
from .claiming.next_claim import UNSURE, Surveys
from .connection import forks, other_sqlite, wal
from .connection.database import MEMORY, Database
from .connection.errors import translated
from .connection.hints import Hints, HintVerbs
from .connection.turnstile import Turnstile
from .connection.writer import Inline, Transactor, Work, Writer
from .counts import CountVerbs
from .keys import KeyVerbs
from .outbox import OutboxVerbs
from .people import PeopleVerbs
from .schedules import ScheduleVerbs
from .search import SearchVerbs
from .trail import TrailVerbs
from .transactions import guard, transact
from .transfer import TransferVerbs

T = TypeVar("T")
Clock = Callable[[], Instant]


def _wall_clock() -> Instant:
    return time.time_ns() // 1000


@checked
class SqliteStore(
    PeopleVerbs,
    KeeperVerbs,
    CountVerbs,
    OutboxVerbs,
    ScheduleVerbs,
    LimitVerbs,
    KeyVerbs,
    PurgeVerbs,
    TrailVerbs,
    TransferVerbs,
    SearchVerbs,
    reads.StepVerbs,
    Surveys,
    HintVerbs,
):
    """Every verb of the contract over one database file.

    `inline`: no thread; each write runs at once, in its own transaction, on the caller's thread.
    `create`: False for a store that is opened only if it is there and up to date.
    """

    def __init__(
        self, path: str, clock: Clock | None = None, *, inline: bool = False, create: bool = True
    ) -> None:
        self.path, self._clock, self._inline = path, clock or _wall_clock, inline or path == MEMORY
        self._create = create
        self.traits = Traits(poll_seconds=HINTED_POLL_SECONDS)
        self._begin()

    def _begin(self) -> None:
        self._hints = Hints(None if self._inline else self._data_version, self._holder_calls)
        # Thread locks, because several event loops may use a store.
        self._life, self._reading, self._loading, self._checking = (threading.Lock() for _ in range(4))
        self._reader: Database | None = None
        self._loader: Database | None = None  # for large reads, on a separate thread
        self._loads = Pool(1, "holdfast-load")
        self._writer: Writer | Inline | None = None
        self._transactor: Transactor | None = None
        self._turnstile: Turnstile | None = None
        self._past: Past = {}

    async def open(self) -> None:
        if self._writer is not None:
            return
        with forks.opening(), self._life:
            if self._writer is None:
                self._open()

    def _open(self) -> None:
        if self.path != MEMORY:
            forks.refuse_forked(self.path)
            other_sqlite.watch()
            other_sqlite.refuse_beside_seen(self.path)
            migrate.check_place(self.path, create=self._create)
            # It may be opened again after a change of the working directory.
            self.path = str(Path(self.path).absolute())
            forks.opened(self)
        try:
            self._connect()
        except BaseException:
            forks.closed(self)
            raise

    def _connect(self) -> None:
        turnstile = None if self._inline else Turnstile(self.path, migrate.BUSY_MS / 1000)
        try:
            db = migrate.open_up_to_date(self.path, turnstile)
            self._reader = db if self._inline else migrate.opened(self.path, reader=True)
            self._loader = None if self._inline else migrate.opened(self.path, reader=True)
        except BaseException:
            if turnstile is not None:
                turnstile.close()
            raise
        self._turnstile = turnstile
        self._transactor = Transactor(self.path, db, self._clock, turnstile, self._hints)
        self._writer = Inline(self._transactor, self._reading) if self._inline else Writer(self._transactor)

    async def close(self) -> None:
        with self._life:
            if self._writer is not None and self._transactor is not None:
                self._close(self._writer, self._transactor)

    def _close(self, writer: Writer | Inline, transactor: Transactor) -> None:
        self._writer = None
        self._hints.close()
        writer.stop()
        with self._reading, self._loading:
            for db in (self._reader, self._loader):
                if db is not None and db is not transactor.db:
                    db.close()
            self._reader = self._loader = None
            transactor.db.close()
        if self._turnstile is not None:
            self._turnstile.close()
        self._transactor = self._turnstile = None
        forks.closed(self)

    def locks(self) -> builtins.list[threading.Lock]:
        """Return all locks. The thread that holds them all is the only one that uses the file."""
        writing = [self._writer.working] if isinstance(self._writer, Writer) else []
        return [self._life, self._reading, self._loading, self._checking, *writing]

    def connections(self) -> builtins.list[Database]:
        """Return the open connections. The caller must hold the locks."""
        found = self._reader, self._loader, self._transactor and self._transactor.db
        return [db for db in found if isinstance(db, Database)]

    def left_behind(self) -> object:
        kept = self._writer, self._reader, self._loader, self._transactor
        if self._turnstile is not None:
            self._turnstile.close()
        self._begin()
        return kept

    # Access to the file.

    async def _write(self, work: Work[T], *, news: bool = False, alone: bool = False, size: int = 0) -> T:
        guard.refuse_inside(self.path)
        if self._writer is None:
            raise Unavailable(f"{self.path}: the store is not open")
        return await self._writer.write(work, news=news, alone=alone, size=size)

    def _in_caller_transaction(self, connection: Any, work: Work[T]) -> T:
        # Imported late: few callers bring a connection, and this imports the standard library's sqlite3.
        from .transactions import caller_transaction  # noqa: PLC0415

        guard.refuse_inside(self.path)
        return caller_transaction.within(connection, self.path, self._clock(), work)

    def _read(self, work: Callable[..., T], *args: Any) -> T:
        """Run a read. All its statements see the same state of the file."""
        guard.refuse_inside(self.path)
        with self._reading:
            return self._in_transaction(self._reader, work, *args)

    async def _read_apart(self, work: Callable[..., T], *args: Any) -> T:
        """Run a large read on a separate thread and connection, so that others do not wait for it. Not on the
        event loop's executor, because users' calls may fill it. If no thread can be started, it runs here."""
        if self._inline:
            return self._read(work, *args)
        guard.refuse_inside(self.path)
        answer: Future[CallResult] = Future()
        job = partial(self._read_on_loader, work, *args)
        try:
            self._loads.put(partial(call_for, answer, partial(CallResult.of, job)))
        except RuntimeError:
            return self._read(work, *args)
        read: T = (await asyncio.wrap_future(answer)).value()
        return read

    def _read_on_loader(self, work: Callable[..., T], *args: Any) -> T:
        with self._loading:
            return self._in_transaction(self._loader, work, *args)

    def _in_transaction(self, db: Database | None, work: Callable[..., T], *args: Any) -> T:
        if db is None:
            raise Unavailable(f"{self.path}: the store is not open")
        try:
            db.run("begin")
            try:
                return work(db, *args)
            finally:
                if db.connection.in_transaction:  # else an error of this commit would hide the first error
                    db.run("commit")
        except apsw.Error as error:
            raise translated(error, self.path) from error

    def _data_version(self) -> int:
        with self._reading:
            try:
                row = self._reader.one("pragma data_version") if self._reader is not None else None
            except apsw.Error:
                return 0  # the change wakes listeners, and their next read raises the error
            # Each connection counts for itself, so a reopened connection must show as a change.
            return self._reader.opened << 32 | row[0] if self._reader is not None and row is not None else 0

    def _holder_calls(self) -> int:
        try:
            return self._read(reads.holder_calls)
        except StoreError:
            return -1  # the change makes workers look at their leases, and that read raises the error

    # Reads.

    async def now(self) -> Instant:
        return self._clock()

    async def get(self, run: UUID, tenant: Tenant) -> Run | None:
        return self._read(reads.get, run, tenant_name(tenant))

    async def list(self, where: RunFilter, limit: int = 100, after: UUID | None = None) -> builtins.list[Run]:
        return await reads.list_runs(self._read, inside(where), limit, after)

    async def outlines(
        self, where: RunFilter, limit: int = OUTLINES_MAX, after: UUID | None = None
    ) -> builtins.list[RunOutline]:
        return await reads.list_outlines(self._read, inside(where), limit, after)

    async def children(
        self, runs: Sequence[UUID], tenant: Tenant, most: int = CHILDREN_COUNTED
    ) -> builtins.list[ChildCounts]:
        return await reads.children(self._read, runs, tenant_name(tenant), most)

    async def waiting_on(self, topic: str, tenant: str) -> builtins.list[UUID]:
        return self._read(reads.waiting_on, topic, tenant)

    async def definitions(self, *, schemas: bool = False) -> builtins.list[Definition]:
        return self._read(partial(reads.definitions, schemas=schemas))

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
        tenants = None if tenants is None else tuple(tenants)
        ask = Ask(worker="", types=tuple(types), limit=0, tenants=tenants, runtime=runtime)
        read_due = partial(reads.due, wait_timeouts=wait_timeouts, besides=besides, served=(sinks, webhooks))
        due = self._read(read_due, self._clock(), ask)
        return due if due.claim_at != UNSURE else replace(due, claim_at=await self._opens_at(ask))

    async def stats(self) -> Stats:
        commits = self._transactor.commits if self._transactor is not None else 0
        extra = {"commits": commits, "wal_bytes": wal.length(self.path)}
        return await self._read_apart(reads.stats, self._clock(), extra)

    async def stuck(self, limit: int = 100) -> builtins.list[UUID]:
        return self._read(reads.stuck, limit)

    async def checkup(self) -> builtins.list[Finding]:
        if self._inline:
            return self._read(checkup.checkup, self.path)
        if self._writer is None:
            raise Unavailable(f"{self.path}: the store is not open")
        return await asyncio.to_thread(checkup.alone, self.path, self._checking)

    # Writes.

    async def start(
        self, runs: Sequence[NewRun], connection: Any = None
    ) -> builtins.list[Started | HoldfastError]:
        if connection is not None:
            return self._in_caller_transaction(connection, lambda db, now: writes.start(db, now, runs))
        size = sum(map(start_bytes, runs))
        return await self._write(lambda db, now: writes.start(db, now, runs), news=True, size=size)

    async def claim(self, ask: Ask) -> builtins.list[Claim]:
        # Read first: polling an empty queue takes no lock and writes nothing.
        found = self._read(claim.found, self._clock(), ask)
        if not (await self._is_open(ask) if found is None else found):
            return []
        return await self._write(lambda db, now: claim.claim(db, now, ask, self._clock))

    async def load(self, lease: Lease, after: int = START, bytes: int = BATCH_BYTES) -> Loaded:
        return await self._read_apart(lambda db: claim.load(db, self._clock(), lease, after, bytes))

    async def commit(self, batch: Sequence[Item]) -> builtins.list[Verdict]:
        news = items.brings_news(batch)
        size = sum(map(item_bytes, batch))
        return await self._write(lambda db, now: writes.commit(db, now, batch), news=news, size=size)

    async def transact(
        self,
        item: Item,
        work: Callable[[Any], Any],
        limit_seconds: float = TRANSACTION_SECONDS,
        on: OwnEngine | None = None,
    ) -> Verdict:
        if on is not None:
            raise UsageError("on= is for a store on Postgres: here only the store itself can write")
        job = transact.Transaction(item, work, limit_seconds, self._clock)
        return await self._write(job.inside(self.path, copy_context()), alone=True)

    def renew(self, worker: str, leases: Sequence[Lease], lease_seconds: float) -> Renewal:
        guard.refuse_inside(self.path)
        if self._writer is None:
            raise Unavailable(f"{self.path}: the store is not open")
        if not leases:
            return Renewal(held=(), strays=self._read(writes.strays_of, worker, leases))
        return self._writer.write_now(lambda db, now: writes.renew(db, now, worker, leases, lease_seconds))

    async def lease_states(self, leases: Sequence[tuple[UUID, int]]) -> builtins.list[LeaseState]:
        return self._read(writes.lease_states, self._clock(), leases)

    async def show_running(self, worker: str, rows: Sequence[Running]) -> builtins.list[bool]:
        return await self._write(lambda db, now: writes.show_running(db, now, rows))

    async def publish(self, definitions: Sequence[Definition]) -> None:
        await self._write(lambda db, now: publish.publish(db, now, definitions))

    async def present(self, presence: Presence) -> None:
        await self._write(lambda db, now: publish.present(db, now, presence))

    async def absent(self, worker: str) -> None:
        await self._write(lambda db, _: publish.absent(db, worker))
