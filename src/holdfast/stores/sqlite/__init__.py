"""The SQLite store: one file, one writer thread with group commit, readers beside it.

Reads run at once on the caller's thread, on a connection of their own. Writes are jobs for the
writer: plain functions of the database and the instant, one module a verb, their statements in a
readable file of the same name.
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
from holdfast.contract import START, TRANSACTION_SECONDS, OwnEngine
from holdfast.errors import HoldfastError, Unavailable, UsageError
from holdfast.records import (
    RUNTIME,
    Ask,
    Claim,
    Definition,
    Due,
    Finding,
    Instant,
    Item,
    Lease,
    Loaded,
    NewRun,
    Presence,
    Renewal,
    Run,
    RunFilter,
    Started,
    Stats,
    Step,
    Tenant,
    TrailEntry,
    Traits,
    Verdict,
    tenant_name,
)
from holdfast.records.sizes import item_bytes, start_bytes
from holdfast.stores import items
from holdfast.stores.checked import checked
from holdfast.stores.filters import inside
from holdfast.threads import Ended, Pool

from . import (
    checkup,
    claim,
    cleaning,
    commit,
    forks,
    guard,
    log,
    migrate,
    publish,
    reads,
    renew,
    start,
    strangers,
    transact,
)
from .database import MEMORY, Database
from .errors import translated
from .hints import Hints
from .keeping import KeeperRoom
from .limits import LimitsRoom
from .openings import UNSURE, Openings
from .outbox import OutboxRoom
from .people import PeopleRoom
from .purge import Past, PurgeRoom
from .schedules import ScheduleRoom
from .turnstile import Turnstile
from .writer import Committer, Inline, Work, Writer

T = TypeVar("T")
Clock = Callable[[], Instant]


def _wall_clock() -> Instant:
    return time.time_ns() // 1000


@checked
class SqliteStore(PeopleRoom, KeeperRoom, OutboxRoom, ScheduleRoom, LimitsRoom, PurgeRoom, Openings):
    """Every verb of the contract over one database file.

    `inline`: no thread; each write runs at once, in its own transaction, on the caller's thread.
    `create`: False for a store that is opened only if it is there and up to date.
    """

    traits = Traits()

    def __init__(
        self, path: str, clock: Clock | None = None, *, inline: bool = False, create: bool = True
    ) -> None:
        self.path, self._clock, self._inline = path, clock or _wall_clock, inline or path == MEMORY
        self._create = create
        self._begin()

    def _begin(self) -> None:
        self._hints = Hints(None if self._inline else self._data_version)
        # A store may be opened, asked and closed from several event loops.
        self._life, self._reading, self._loading, self._checking = (threading.Lock() for _ in range(4))
        self._reader: Database | None = None
        self._loader: Database | None = None  # for large reads, on a thread of their own
        self._loads = Pool(1, "holdfast-load")
        self._writer: Writer | Inline | None = None
        self._committer: Committer | None = None
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
            strangers.watch()
            strangers.refuse_beside_seen(self.path)
            migrate.check_place(self.path, create=self._create)
            self.path = str(Path(self.path).absolute())  # it is opened again later, maybe from another folder
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
        self._committer = Committer(self.path, db, self._clock, turnstile, self._hints)
        self._writer = Inline(self._committer, self._reading) if self._inline else Writer(self._committer)

    async def close(self) -> None:
        with self._life:
            if self._writer is not None and self._committer is not None:
                self._close(self._writer, self._committer)

    def _close(self, writer: Writer | Inline, committer: Committer) -> None:
        self._writer = None
        self._hints.close()
        writer.stop()
        with self._reading, self._loading:
            for db in (self._reader, self._loader):
                if db is not None and db is not committer.db:
                    db.close()
            self._reader = self._loader = None
            committer.db.close()
        if self._turnstile is not None:
            self._turnstile.close()
        self._committer = self._turnstile = None
        forks.closed(self)

    def locks(self) -> builtins.list[threading.Lock]:
        """Whoever holds them all has the file for himself."""
        writing = [self._writer.working] if isinstance(self._writer, Writer) else []
        return [self._life, self._reading, self._loading, self._checking, *writing]

    def connections(self) -> builtins.list[Database]:
        """What is open, to one who holds the locks."""
        found = self._reader, self._loader, self._committer and self._committer.db
        return [db for db in found if isinstance(db, Database)]

    def left_behind(self) -> object:
        kept = self._writer, self._reader, self._loader, self._committer
        if self._turnstile is not None:
            self._turnstile.close()
        self._begin()
        return kept

    # How verbs reach the file.

    async def _write(self, work: Work[T], *, news: bool = False, alone: bool = False, size: int = 0) -> T:
        guard.refuse_inside(self.path)
        if self._writer is None:
            raise Unavailable(f"{self.path}: the store is not open")
        return await self._writer.write(work, news=news, alone=alone, size=size)

    def _as_guest(self, connection: Any, work: Work[T]) -> T:
        # Few bring a connection, and with this comes the standard library's whole sqlite3.
        from . import guests  # noqa: PLC0415

        guard.refuse_inside(self.path)
        return guests.within(connection, self.path, self._clock(), work)

    def _read(self, work: Callable[..., T], *args: Any) -> T:
        """Several statements of one read see one state of the file."""
        guard.refuse_inside(self.path)
        with self._reading:
            return self._looked(self._reader, work, *args)

    async def _read_apart(self, work: Callable[..., T], *args: Any) -> T:
        """The same for much at once, on a thread and a connection of its own: nobody else waits meanwhile.

        Not on the event loop's executor, which users' own calls may fill. Where no thread is to be had, here.
        """
        if self._inline:
            return self._read(work, *args)
        guard.refuse_inside(self.path)
        answer: Future[Ended] = Future()
        try:
            self._loads.put(lambda: answer.set_result(Ended.of(lambda: self._read_on_loader(work, *args))))
        except RuntimeError:
            return self._read(work, *args)
        read: T = (await asyncio.wrap_future(answer)).value()
        return read

    def _read_on_loader(self, work: Callable[..., T], *args: Any) -> T:
        with self._loading:
            return self._looked(self._loader, work, *args)

    def _looked(self, db: Database | None, work: Callable[..., T], *args: Any) -> T:
        if db is None:
            raise Unavailable(f"{self.path}: the store is not open")
        try:
            db.run("begin")
            try:
                return work(db, *args)
            finally:
                if db.connection.in_transaction:  # or what is gone would be told instead of why
                    db.run("commit")
        except apsw.Error as error:
            raise translated(error, self.path) from error

    def _data_version(self) -> int:
        with self._reading:
            try:
                row = self._reader.one("pragma data_version") if self._reader is not None else None
            except apsw.Error:
                return 0  # whoever is woken by this change asks, and is told what is wrong
            # Counted by each connection for itself: one that was opened anew has news to tell.
            return self._reader.opened << 32 | row[0] if self._reader is not None and row is not None else 0

    # Reads.

    async def now(self) -> Instant:
        return self._clock()

    async def get(self, run: UUID, tenant: Tenant) -> Run | None:
        return self._read(reads.get, run, tenant_name(tenant))

    async def list(self, where: RunFilter, limit: int = 100, after: UUID | None = None) -> builtins.list[Run]:
        return self._read(reads.listed, inside(where), limit, after)

    async def steps(self, run: UUID, tenant: Tenant, *, largest: int | None = None) -> builtins.list[Step]:
        return await reads.steps(self._read, run, tenant_name(tenant), largest)

    async def trail(
        self,
        run: UUID | None,
        tenant: Tenant,
        types: Sequence[str] = (),
        after: int = 0,
        limit: int = 1000,
        between: tuple[Instant | None, Instant | None] = (None, None),
    ) -> builtins.list[TrailEntry]:
        return self._read(reads.trail, run, tenant_name(tenant), types, between, (after, limit))

    async def waiting_on(self, topic: str, tenant: str) -> builtins.list[UUID]:
        return self._read(reads.waiting_on, topic, tenant)

    async def definitions(self) -> builtins.list[Definition]:
        return self._read(reads.definitions)

    async def due(
        self,
        types: Sequence[str],
        tenants: Sequence[str] | None = None,
        *,
        wait_timeouts: bool = True,
        runtime: str = RUNTIME,
        besides: Sequence[tuple[UUID, int]] = (),
    ) -> Due:
        tenants = None if tenants is None else tuple(tenants)
        ask = Ask(worker="", types=tuple(types), limit=0, tenants=tenants, runtime=runtime)
        look = partial(reads.due, wait_timeouts=wait_timeouts, besides=besides)
        due = self._read(look, self._clock(), ask)
        return due if due.claim_at != UNSURE else replace(due, claim_at=await self._opens_at(ask))

    async def stats(self) -> Stats:
        commits = self._committer.commits if self._committer is not None else 0
        return self._read(
            reads.stats, self._clock(), {"commits": commits, "wal_bytes": log.length(self.path)}
        )

    async def stuck(self, limit: int = 100) -> builtins.list[UUID]:
        return self._read(cleaning.stuck, limit)

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
            return self._as_guest(connection, lambda db, now: start.start(db, now, runs))
        size = sum(map(start_bytes, runs))
        return await self._write(lambda db, now: start.start(db, now, runs), news=True, size=size)

    async def claim(self, ask: Ask) -> builtins.list[Claim]:
        # A look first: polling a queue with nothing in it takes no lock and writes nothing.
        found = self._read(claim.found, self._clock(), ask)
        if not (await self._is_open(ask) if found is None else found):
            return []
        return await self._write(lambda db, now: claim.claim(db, now, ask, self._clock))

    async def load(self, lease: Lease, after: int = START, bytes: int = BATCH_BYTES) -> Loaded:
        return await self._read_apart(lambda db: claim.load(db, self._clock(), lease, after, bytes))

    async def commit(self, batch: Sequence[Item]) -> builtins.list[Verdict]:
        news = items.brings_news(batch)
        size = sum(map(item_bytes, batch))
        return await self._write(lambda db, now: commit.commit(db, now, batch), news=news, size=size)

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
            return Renewal(held=(), strays=self._read(renew.strays_of, worker, leases))
        return self._writer.write_now(lambda db, now: renew.renew(db, now, worker, leases, lease_seconds))

    async def publish(self, definitions: Sequence[Definition]) -> None:
        await self._write(lambda db, now: publish.publish(db, now, definitions))

    async def present(self, presence: Presence) -> None:
        await self._write(lambda db, now: publish.present(db, now, presence))

    async def absent(self, worker: str) -> None:
        await self._write(lambda db, _: publish.absent(db, worker))

    # Hints.

    def listen(self, hint: Callable[[], None]) -> Callable[[], None]:
        return self._hints.listen(hint)
