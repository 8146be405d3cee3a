"""The writer: a thread with the only connection that writes, and group commit.

All jobs that were queued during the last commit share the next commit, up to a limit in bytes. No job waits
for a timer. Large jobs get separate commits, so a small job waits for at most one of them. A blocking caller
(renewal) goes before the queue, in its own commit.

A job is a function of the database and the instant. It may run twice: when another job of the same
transaction fails, the transaction is rolled back and each job runs again in its own. A job that is `alone`
shares its transaction with no other job and runs once.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from typing import Any, Generic, TypeVar, cast

import apsw

from holdfast.bounds import BATCH_BYTES, LARGE_BATCH_BYTES, LARGE_BYTES
from holdfast.errors import HoldfastError, StoreError, Unavailable, UsageError
from holdfast.escaping import safe_logger
from holdfast.records import Instant
from holdfast.stores.sqlite.chores import folding
from holdfast.stores.sqlite.migrate import connect
from holdfast.stores.sqlite.transactions.guard import insist

from .database import MEMORY, Database
from .errors import TRANSIENT, translated
from .hints import Hints
from .turnstile import Turnstile
from .wal import LOOK_EVERY, WriteAheadLog

log = safe_logger("holdfast")

PILE_EVERY = 1024  # commits between two looks at how many changes of the counts are not folded

T = TypeVar("T")
Work = Callable[[Database, Instant], T]


class RolledBack(Exception):
    """Raised by a job that is alone: its transaction is rolled back, and `answer` is its answer."""

    def __init__(self, answer: object) -> None:
        super().__init__(answer)
        self.answer = answer


class Job(Generic[T]):
    """A piece of work and the future that gets its answer."""

    __slots__ = ("alone", "answer", "failed", "future", "loop", "news", "size", "work")

    def __init__(self, work: Work[T], *, news: bool = False, alone: bool = False, size: int = 0) -> None:
        self.work, self.news, self.alone, self.size = work, news, alone, size
        self.loop: asyncio.AbstractEventLoop | None = None
        self.future: asyncio.Future[T] | Future[T] | None = None
        self.answer: Any = None
        self.failed = False

    def settle(self) -> None:
        """Give the answer to the waiting caller, unless it has stopped waiting."""
        future = self.future
        if future is None or future.done():
            return
        if self.failed:
            future.set_exception(self.answer)
        else:
            future.set_result(self.answer)


class Transactor:
    """Runs jobs in transactions on one connection, on the thread that calls it."""

    def __init__(
        self, path: str, db: Database, clock: Callable[[], Instant], turnstile: Turnstile | None, hints: Hints
    ) -> None:
        self.db, self.commits = db, 0
        self._path, self._clock, self._turnstile, self._hints = path, clock, turnstile, hints
        self._busy: list[Database] = []  # connections that could not be closed yet
        self._wal = WriteAheadLog(path, db)
        self._piled = False  # many changes of the counts are not folded

    def tidy(self) -> None:
        """Shorten a write-ahead log that is too long, and fold counts that have piled up. Called between
        commits, when nobody waits for an answer."""
        if self.commits % LOOK_EVERY == 0 and self._wal.is_too_long():
            with contextlib.suppress(apsw.Error, StoreError, OSError), self._turn():
                self._wal.restart()
        if self._piled or (self.commits and self.commits % PILE_EVERY == 0):
            with contextlib.suppress(apsw.Error, StoreError, OSError):
                self._piled = folding.is_piled_up(self.db)
                if self._piled:
                    self._fold()

    def _fold(self) -> None:
        """Fold changes of the counts that no keeper has folded, in a commit of their own."""
        with self._turn():
            try:
                self.db.run("begin immediate")
                folding.fold(self.db, self._clock(), everything=True)
                self.db.run("commit")
            finally:
                self._roll_back()

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        if self._turnstile is not None:
            self._turnstile.enter()
        try:
            yield
        finally:
            if self._turnstile is not None:
                self._turnstile.leave()

    def commit(self, batch: Sequence[Job[Any]]) -> None:
        """Run all jobs in one transaction. When a job raises, each job runs again in its own transaction."""
        if self._busy:
            self._close_busy()
        try:
            if self._turnstile is not None:
                self._turnstile.enter()
        except (StoreError, OSError) as error:
            _fail(batch, error if isinstance(error, StoreError) else Unavailable(f"{self._path}: {error}"))
            return
        try:
            if batch[0].alone:
                self._alone(batch[0])
            else:
                self._together(batch)
        finally:
            if self._turnstile is not None:
                self._turnstile.leave()

    def _together(self, batch: Sequence[Job[Any]]) -> None:
        db = self.db
        try:
            db.run("begin immediate")
            for job in batch:
                self._try(job)
            db.run("commit")
            self.commits += 1
        except TRANSIENT as error:
            self._roll_back()
            _fail(batch, translated(error, self._path))
        except Exception as error:  # noqa: BLE001  # any error belongs to the job that raised it
            self._roll_back()
            if len(batch) == 1:
                _fail(batch, translated(error, self._path) if isinstance(error, apsw.Error) else error)
                return
            for job in batch:
                self._together((job,))

    def _alone(self, job: Job[Any]) -> None:
        """Run the job once, on a new connection. A database in memory has only one connection."""
        db = self.db
        try:
            db = db if self._path == MEMORY else connect(self._path)
            db.run("pragma foreign_keys = on")  # it cannot be set inside a transaction
            db.run("begin immediate")
            job.answer, job.failed = job.work(db, self._clock()), False
            self._commit_alone(db)
        except RolledBack as undone:
            job.answer, job.failed = undone.answer, isinstance(undone.answer, BaseException)
        except Exception as error:  # noqa: BLE001  # an error of the driver, or a defect of Holdfast
            _fail((job,), translated(error, self._path) if isinstance(error, apsw.Error) else error)
        finally:
            if db is self.db:
                self._roll_back()
                with contextlib.suppress(apsw.Error):  # it may have been closed
                    db.run("pragma foreign_keys = off")
            else:
                self._close(db)

    def _close(self, db: Database) -> None:
        """Close the connection that a user's function had. An open transaction is rolled back."""
        try:
            insist(db.connection, partial(db.connection.close, True))  # noqa: FBT003  # apsw takes it by position only
        except apsw.Error:
            self._busy.append(db)
            log.exception(
                "%s: a thread that a transaction's function has left behind keeps its connection busy, and "
                "the file may be locked until it ends",
                self._path,
            )

    def _close_busy(self) -> None:
        busy, self._busy = self._busy, []
        for db in busy:
            try:
                db.connection.close(True)  # noqa: FBT003  # the same
            except apsw.Error:
                self._busy.append(db)

    def _commit_alone(self, db: Database) -> None:
        try:
            db.run("commit")
        except apsw.BusyError:
            raise RolledBack(
                UsageError(
                    "the function of a transaction leaves a statement unfinished (as `insert … returning` is "
                    "before all its rows are fetched): fetch them, or close the cursor"
                )
            ) from None
        except apsw.ConstraintError as error:  # of a deferred foreign key, checked at the commit
            raise RolledBack(error) from None
        self.commits += 1

    def _try(self, job: Job[Any]) -> None:
        before = self.db.connection.total_changes()
        try:
            job.answer, job.failed = job.work(self.db, self._clock()), False
        except HoldfastError as refusal:
            # A refusal that has changed nothing is an answer: the other jobs need not run again.
            if self.db.connection.total_changes() != before:
                raise
            job.answer, job.failed = refusal, True
        job.news = job.news and self.db.connection.total_changes() != before

    def _roll_back(self) -> None:
        with contextlib.suppress(apsw.Error):  # it may not even have been opened
            if self.db.connection.in_transaction:
                self.db.run("rollback")

    def tell(self, batch: Sequence[Job[Any]]) -> None:
        """Make one call into each event loop: with its answers, and with its hints if there is news."""
        calls: dict[asyncio.AbstractEventLoop, list[Callable[[], None]]] = defaultdict(list)
        for job in batch:
            if job.loop is None:
                job.settle()
            else:
                calls[job.loop].append(job.settle)
        if any(job.news and not job.failed for job in batch):
            for loop, hint in self._hints.after_commit():
                calls[loop].append(hint)
        for loop, todo in calls.items():
            # If the loop was closed meanwhile, nobody waits for the answers.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(_call_all, todo)


def _fail(batch: Sequence[Job[Any]], error: Exception) -> None:
    for job in batch:
        job.answer, job.failed = error, True


def _call_all(todo: list[Callable[[], None]]) -> None:
    for call in todo:
        call()


class Inline:
    """A writer without a thread: each job runs at once, in its own transaction, on the caller's thread."""

    def __init__(self, transactor: Transactor, alone: threading.Lock) -> None:
        # The lock is needed: renewals come from another thread, and readers share the connection.
        self._transactor, self._alone = transactor, alone

    async def write(self, work: Work[T], *, news: bool = False, alone: bool = False, size: int = 0) -> T:
        del size  # each job has its own commit
        return self.write_now(work, news=news, alone=alone)

    def write_now(self, work: Work[T], *, news: bool = False, alone: bool = False) -> T:
        job: Job[T] = Job(work, news=news, alone=alone)
        with self._alone:
            self._transactor.commit((job,))
        self._transactor.tell((job,))
        if job.failed:
            raise job.answer
        return cast("T", job.answer)

    def stop(self) -> None:
        """Do nothing: there is no thread."""


class Writer:
    """The writer thread. `write` queues a job from an event loop; `write_now` blocks and goes first."""

    def __init__(self, transactor: Transactor) -> None:
        self._transactor = transactor
        self._queue: SimpleQueue[Job[Any] | None] = SimpleQueue()
        self._urgent: deque[Job[Any]] = deque()
        self._small: deque[Job[Any]] = deque()  # jobs taken from the queue, like the two below
        self._large: deque[Job[Any]] = deque()
        self._aside: deque[Job[Any]] = deque()  # jobs that must be alone
        # A job that is queued after the last batch would wait for ever, so `_put` checks `_stopped` under a
        # lock.
        self._queueing, self._stopped = threading.Lock(), False
        self.working = threading.Lock()  # held while jobs run
        self._thread = threading.Thread(target=self._main, name="holdfast-sqlite", daemon=True)
        self._thread.start()

    async def write(self, work: Work[T], *, news: bool = False, alone: bool = False, size: int = 0) -> T:
        job: Job[T] = Job(work, news=news, alone=alone, size=size)
        job.loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = job.loop.create_future()
        job.future = future
        self._put(job)
        return await future

    def write_now(self, work: Work[T], *, news: bool = False) -> T:
        job: Job[T] = Job(work, news=news)
        job.future = future = Future[T]()
        self._put(None, job)
        return future.result()

    def _put(self, job: Job[Any] | None, *urgent: Job[Any]) -> None:
        with self._queueing:
            if self._stopped:
                raise Unavailable("the store is closed")
            self._urgent.extend(urgent)
            self._queue.put(job)

    def stop(self) -> None:
        """End the thread, after all queued jobs are done."""
        with self._queueing:
            self._stopped = True
            self._queue.put(None)
        self._thread.join()

    def _main(self) -> None:
        while True:
            for jobs in self._turns(self._gathered()):
                if jobs:
                    with self.working:
                        self._serve(jobs)
            if self._stopped and self._queue.empty() and not self._urgent and not self._left:
                return

    @property
    def _left(self) -> bool:
        """True when jobs were taken from the queue and are not done."""
        return bool(self._small or self._large or self._aside)

    def _serve(self, jobs: list[Job[Any]]) -> None:
        """Run jobs and answer them. Every caller gets an answer, and no error ends the thread."""
        try:
            self._transactor.commit(jobs)
        except BaseException as error:
            log.exception("a commit ended with an unexpected error")
            _fail(jobs, Unavailable(f"it is not known whether this was written: {error!r}"))
        self._transactor.tell(jobs)
        self._transactor.tidy()

    def _turns(self, batch: list[Job[Any]]) -> Iterator[list[Job[Any]]]:
        """Yield batches in order of service: jobs of blocking callers, then small jobs together, then some
        large jobs, then one job that must be alone."""
        yield self._overtaking()
        yield batch
        if self._large:
            yield self._overtaking()
            yield _fitting(self._large, LARGE_BATCH_BYTES)
        if self._aside:
            yield self._overtaking()
            yield [self._aside.popleft()]

    def _overtaking(self) -> list[Job[Any]]:
        return [self._urgent.popleft() for _ in range(len(self._urgent))]

    def _gathered(self) -> list[Job[Any]]:
        """Empty the queue. Return the small jobs of the next commit; keep the others for later."""
        batch = [] if self._left else [self._queue.get()]
        batch += [self._queue.get_nowait() for _ in range(self._queue.qsize())]
        for job in batch:
            if job is not None:
                self._queue_of(job).append(job)
        return _fitting(self._small, BATCH_BYTES)

    def _queue_of(self, job: Job[Any]) -> deque[Job[Any]]:
        if job.alone:
            return self._aside
        return self._large if job.size >= LARGE_BYTES else self._small


def _fitting(jobs: deque[Job[Any]], budget: int) -> list[Job[Any]]:
    """Take as many first jobs as fit into one commit, but at least one if there is one."""
    batch, total = list[Job[Any]](), 0
    while jobs and (not batch or total + jobs[0].size <= budget):
        total += jobs[0].size
        batch.append(jobs.popleft())
    return batch
