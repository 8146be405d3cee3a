"""The one writer: a thread that owns the only connection which writes, and group commit.

Everything that was queued while the last commit ran shares the next one, up to a bound in bytes;
nothing waits for a timer. Jobs that write much go in commits of their own, so that a small one waits
for at most one of those. A blocking caller (renewal) goes before the queue, in a commit of its own.
A job is a plain function of the database and the instant; it may be run again, when its first
transaction had to be rolled back because of a neighbour. One that is `alone` has no neighbours and
is run once.
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

from .database import MEMORY, Database
from .errors import WEATHER, translated
from .guard import insist
from .hints import Hints
from .log import LOOK_EVERY, Log
from .migrate import connect
from .turnstile import Turnstile

log = safe_logger("holdfast")

T = TypeVar("T")
Work = Callable[[Database, Instant], T]


class RolledBack(Exception):
    """Raised by a job that is alone: nothing of its transaction stays, and this is its answer."""

    def __init__(self, answer: object) -> None:
        super().__init__(answer)
        self.answer = answer


class Job(Generic[T]):
    """One piece of work, and where its answer goes."""

    __slots__ = ("alone", "answer", "failed", "future", "loop", "news", "size", "work")

    def __init__(self, work: Work[T], *, news: bool = False, alone: bool = False, size: int = 0) -> None:
        self.work, self.news, self.alone, self.size = work, news, alone, size
        self.loop: asyncio.AbstractEventLoop | None = None
        self.future: asyncio.Future[T] | Future[T] | None = None
        self.answer: Any = None
        self.failed = False

    def settle(self) -> None:
        """Hand the answer to whoever waits; he may have gone."""
        future = self.future
        if future is None or future.done():
            return
        if self.failed:
            future.set_exception(self.answer)
        else:
            future.set_result(self.answer)


class Committer:
    """Runs jobs in transactions on one connection; the caller's thread is the one that works."""

    def __init__(
        self, path: str, db: Database, clock: Callable[[], Instant], turnstile: Turnstile | None, hints: Hints
    ) -> None:
        self.db, self.commits = db, 0
        self._path, self._clock, self._turnstile, self._hints = path, clock, turnstile, hints

        self._busy: list[Database] = []  # connections that could not be closed yet
        self._log = Log(path, db)

    def tidy(self) -> None:
        """Between commits, when nobody waits for an answer: a log that has grown too long starts anew."""
        if self.commits % LOOK_EVERY == 0 and self._log.is_too_long():
            with contextlib.suppress(apsw.Error, StoreError, OSError):
                if self._turnstile is not None:
                    self._turnstile.enter()
                try:
                    self._log.start_anew()
                finally:
                    if self._turnstile is not None:
                        self._turnstile.leave()

    def commit(self, batch: Sequence[Job[Any]]) -> None:
        """All jobs in one transaction; one that raises makes each run in a transaction of its own."""
        if self._busy:
            self._let_go_later()
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
        except WEATHER as error:
            self._roll_back()
            _fail(batch, translated(error, self._path))
        except Exception as error:  # noqa: BLE001  # whatever it is, it belongs to the job that raised it
            self._roll_back()
            if len(batch) == 1:
                _fail(batch, translated(error, self._path) if isinstance(error, apsw.Error) else error)
                return
            for job in batch:
                self._together((job,))

    def _alone(self, job: Job[Any]) -> None:
        """Once, whatever comes of it, and on a connection of its own; in memory there is only one."""
        db = self.db
        try:
            db = db if self._path == MEMORY else connect(self._path)
            db.run("pragma foreign_keys = on")  # inside a transaction nobody can set it
            db.run("begin immediate")
            job.answer, job.failed = job.work(db, self._clock()), False
            self._commit_alone(db)
        except RolledBack as told:
            job.answer, job.failed = told.answer, isinstance(told.answer, BaseException)
        except Exception as error:  # noqa: BLE001  # a defect of ours, but for what the driver raises
            _fail((job,), translated(error, self._path) if isinstance(error, apsw.Error) else error)
        finally:
            if db is self.db:
                self._roll_back()
                with contextlib.suppress(apsw.Error):  # it may have been closed
                    db.run("pragma foreign_keys = off")
            else:
                self._let_go(db)

    def _let_go(self, db: Database) -> None:
        """Close a connection that a user's function had; what is open there is rolled back."""
        try:
            insist(db.connection, partial(db.connection.close, True))  # noqa: FBT003  # it takes no name
        except apsw.Error:
            self._busy.append(db)
            log.exception(
                "%s: a thread that a transaction's function has left behind keeps its connection busy, and "
                "the file may be locked until it ends",
                self._path,
            )

    def _let_go_later(self) -> None:
        busy, self._busy = self._busy, []
        for db in busy:
            try:
                db.connection.close(True)  # noqa: FBT003  # as above
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
        except apsw.ConstraintError as error:  # of a foreign key that is looked at only now
            raise RolledBack(error) from None
        self.commits += 1

    def _try(self, job: Job[Any]) -> None:
        before = self.db.connection.total_changes()
        try:
            job.answer, job.failed = job.work(self.db, self._clock()), False
        except HoldfastError as refusal:
            # A refusal that has changed nothing is an answer; the neighbours need not start again.
            if self.db.connection.total_changes() != before:
                raise
            job.answer, job.failed = refusal, True
        job.news = job.news and self.db.connection.total_changes() != before

    def _roll_back(self) -> None:
        with contextlib.suppress(apsw.Error):  # it may not even have been opened
            if self.db.connection.in_transaction:
                self.db.run("rollback")

    def tell(self, batch: Sequence[Job[Any]]) -> None:
        """One call into each event loop: its answers, and its hints if there is news."""
        calls: dict[asyncio.AbstractEventLoop, list[Callable[[], None]]] = defaultdict(list)
        for job in batch:
            if job.loop is None:
                job.settle()
            else:
                calls[job.loop].append(job.settle)
        if any(job.news and not job.failed for job in batch):
            for loop, hint in self._hints.listeners:
                calls[loop].append(hint)
        for loop, todo in calls.items():
            # A loop that was closed meanwhile has nobody left who waits.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(_call_all, todo)


def _fail(batch: Sequence[Job[Any]], error: Exception) -> None:
    for job in batch:
        job.answer, job.failed = error, True


def _call_all(todo: list[Callable[[], None]]) -> None:
    for call in todo:
        call()


class Inline:
    """No thread: each job at once, in its own transaction, on the caller's thread."""

    def __init__(self, committer: Committer, alone: threading.Lock) -> None:
        # Renewals come from another thread even here, and readers share the connection.
        self._committer, self._alone = committer, alone

    async def write(self, work: Work[T], *, news: bool = False, alone: bool = False, size: int = 0) -> T:
        del size  # each job has a commit of its own
        return self.write_now(work, news=news, alone=alone)

    def write_now(self, work: Work[T], *, news: bool = False, alone: bool = False) -> T:
        job: Job[T] = Job(work, news=news, alone=alone)
        with self._alone:
            self._committer.commit((job,))
        self._committer.tell((job,))
        if job.failed:
            raise job.answer
        return cast("T", job.answer)

    def stop(self) -> None:
        """Nothing is under way."""


class Writer:
    """The thread. `write` queues from an event loop, `write_now` blocks and goes first."""

    def __init__(self, committer: Committer) -> None:
        self._committer = committer
        self._queue: SimpleQueue[Job[Any] | None] = SimpleQueue()
        self._urgent: deque[Job[Any]] = deque()
        self._small: deque[Job[Any]] = deque()  # taken from the queue, as the two below
        self._large: deque[Job[Any]] = deque()
        self._aside: deque[Job[Any]] = deque()  # those that must be alone
        # Nobody may queue behind the last batch: he would wait for ever.
        self._door, self._stopped = threading.Lock(), False
        self.working = threading.Lock()  # held while jobs are done
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
        with self._door:
            if self._stopped:
                raise Unavailable("the store is closed")
            self._urgent.extend(urgent)
            self._queue.put(job)

    def stop(self) -> None:
        """What is queued is done first."""
        with self._door:
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
        """Whether jobs were taken from the queue and are not done."""
        return bool(self._small or self._large or self._aside)

    def _serve(self, jobs: list[Job[Any]]) -> None:
        """Whatever comes of it: this thread lives on, and who waits is answered."""
        try:
            self._committer.commit(jobs)
        except BaseException as error:
            log.exception("a commit ended in a way that should not be")
            _fail(jobs, Unavailable(f"it is not known whether this was written: {error!r}"))
        self._committer.tell(jobs)
        self._committer.tidy()

    def _turns(self, batch: list[Job[Any]]) -> Iterator[list[Job[Any]]]:
        """Order of service: jobs of blocking callers, then small ones together, then some large ones, then
        one that must be alone."""
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
        """The small jobs of the next commit; the others are put aside."""
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
    """The first jobs, as many as one commit takes; one at least, if there is one."""
    batch, total = list[Job[Any]](), 0
    while jobs and (not batch or total + jobs[0].size <= budget):
        total += jobs[0].size
        batch.append(jobs.popleft())
    return batch
