"""`ctx.transaction`: exactly-once steps. A function runs inside the commit that records its result.

The function's writes to the store's database and the checkpoint are committed together, or neither is. So its
effect needs no idempotency key: after any crash it was done once or not at all. On a store that lets others
write meanwhile (`awaits_work`) the function is async; on the others it is sync.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack, overload

import msgspec

from holdfast.arguments import Seconds, check_positive
from holdfast.backoff import Backoff, check_policy
from holdfast.contract import TRANSACTION_SECONDS, OwnEngine, Store
from holdfast.engine.commit.buffer import sent
from holdfast.engine.options import TransactionOptions
from holdfast.engine.outbox.messages import check_logged, check_sent
from holdfast.engine.step_failures import Raises, check_raises
from holdfast.engine.typed import Result, T
from holdfast.errors import TooLarge, UsageError
from holdfast.records import Item, Json, StepWrite, TrailWrite
from holdfast.records.sizes import row_bytes
from holdfast.threads import CallResult

from .scope import SCOPE, Scope
from .signals import Continued, Parked
from .steps import Call, callee, cancelled, check_callable

if TYPE_CHECKING:
    from holdfast.codec import Codec
    from holdfast.engine.commit.journal import Journal, Written

    from .execution import Execution
    from .stage import Stage


class TransactionScope(Scope):
    """The effects of user code inside the transaction: all share its commit, log rows too."""

    __slots__ = ("rows",)

    def __init__(self, key: str, tries: int) -> None:
        super().__init__(key, tries)
        self.rows: list[TrailWrite] = []

    def note(self, _journal: Journal, row: TrailWrite) -> None:
        size, where = row_bytes(row), f"step {self.key!r}"
        check_logged(len(self.rows) + 1, 0, where)
        check_sent(0, self.bytes + size, where)
        self.bytes += size
        self.rows.append(row)


class Transaction:
    """One try of a transaction: its function, and its outcome."""

    __slots__ = (
        "_args",
        "_awaits",
        "_codec",
        "_count",
        "_fn",
        "_write",
        "calls",
        "context",
        "counted",
        "future",
        "hurried",
        "limit_seconds",
        "made",
        "on",
        "raised",
        "raises",
        "scope",
    )

    def __init__(
        self,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        codec: Codec,
        write: StepWrite,
        limit_seconds: float,
        on: OwnEngine | None,
        count: Callable[[Json], None],
        *,
        awaits: bool,
    ) -> None:
        self._fn, self._args, self._codec, self._write = fn, args, codec, write
        self._count: Callable[[Json], None] | None = count
        self._awaits = awaits
        self.limit_seconds = limit_seconds
        self.on = () if on is None else (on,)
        self.context = copy_context()
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.scope = TransactionScope(write.key, write.attempts)
        self.hurried = False  # effects that are buffered need no further reason to commit
        self.made: Written | None = None
        self.counted: Json | None = None  # the size of the result in the record
        self.raised: BaseException | None = None
        self.raises = self.calls = 0

    def perform(self, item: Item, connection: Any) -> Any:
        """Run the function inside the store's transaction; again when the commit failed. It may be
        awaited.
        """
        self.scope = scope = TransactionScope(self._write.key, self._write.attempts)
        self.calls += 1
        token = SCOPE.set(scope)
        try:
            value = self._called(connection)
            if self._awaits and inspect.isawaitable(value):
                return self._perform_async(item, value, scope)
            return self._completed(item, value, scope)
        except BaseException as error:
            self.raised, self.raises = error, self.raises + 1
            raise
        finally:
            SCOPE.reset(token)

    async def _perform_async(self, item: Item, value: Awaitable[Any], scope: TransactionScope) -> Item:
        token = SCOPE.set(scope)
        try:
            return self._completed(item, await value, scope)
        except BaseException as error:
            # otherwise the run is stopped
            if not (isinstance(error, asyncio.CancelledError) and cancelled()):
                self.raised, self.raises = error, self.raises + 1
            raise
        finally:
            SCOPE.reset(token)

    def _completed(self, item: Item, value: Any, scope: TransactionScope) -> Item:
        output, value = self._codec.record(value, f"the result of step {scope.key!r}")
        if self._count is not None:
            self._count(output)
            self._count = None  # a commit that is repeated records it once all the same
            self.counted = output
        write = msgspec.structs.replace(self._write, output=output, cost=scope.cost)
        self.made = (write, self.future, value)
        return msgspec.structs.replace(
            item,
            steps=(*item.steps, write),
            trail=(*item.trail, *scope.rows),
            **sent((*item.events, *item.outbox, *scope.events)),
        )

    def _called(self, connection: Any) -> Any:
        value = CallResult.of(partial(self._fn, connection, *self._args)).value()
        if self._awaits:
            if not self.on and not inspect.isawaitable(value):
                raise UsageError(_must_be_async(self.scope.key))
            return value
        if inspect.isawaitable(value):
            if inspect.iscoroutine(value):
                value.close()
            raise UsageError(_must_be_plain(self.scope.key))
        return value

    def fail(self, error: BaseException) -> None:
        """Note that nothing was committed; further calls of a sync function are refused."""
        self.scope.over = True
        if not self.future.done():
            self.future.set_exception(error)


class TransactionCall(Call):
    """One `ctx.transaction`: a step whose function runs inside the commit."""

    __slots__ = ("on",)

    on: Any

    async def _tries(self, tries: int) -> Any:
        run, stage, codec = self._run, self._stage, callee(self._fn)[0]
        limit, awaits = self._timeout, run.worker.store.traits.awaits_work
        if not awaits:
            limit = _under_lease(self.key, limit, run.worker.lease_seconds)
        thread = partial(run.world.thread, stragglers=run.worker.straggling)
        on = None if self.on is None else OwnEngine(self.on, thread)
        while True:
            if run.lease_clock.over or run.journal.spending is not None:
                await self._begin()
            tries += 1
            failed: Exception | None = None
            if stage.closed:
                await stage.refuse(self.key)
            write = StepWrite(key=self.key, attempts=tries, started_at=run.now())
            transaction = Transaction(
                self.called,
                self._args,
                codec,
                write,
                limit or TRANSACTION_SECONDS,
                on,
                run.record.count_bytes,
                awaits=awaits,
            )
            run.running[self.key] = tries, write.started_at or 0
            try:
                run.journal.transact(transaction)
                answer = await transaction.future
                run.tried("succeeded", write.started_at or 0)
                return answer
            except (Parked, Continued, KeyboardInterrupt, GeneratorExit):
                raise
            except BaseException as error:
                if stage.closed or (isinstance(error, asyncio.CancelledError) and cancelled()):
                    run.tried("cancelled", write.started_at or 0)
                    raise  # it was told to stop: whatever it answers is no failed try
                run.running.pop(self.key, None)
                run.record.uncount_bytes(transaction.counted)
                with suppress(TooLarge):  # log rows that do not fit must not end the retries
                    for row in transaction.scope.rows:
                        run.journal.note(row)
                failed = await self._again_or_fail(error, tries, transaction.scope, write.started_at or 0)
            finally:
                run.running.pop(self.key, None)
            if failed is not None:
                try:
                    raise failed
                finally:
                    del failed


def check_transaction(name: str, fn: Any, on: Any, store: Store) -> None:
    """Refuse a transaction that this store cannot do."""
    if store.traits.awaits_work:
        return
    if on is not None:
        raise UsageError(f"transaction {name!r}: on= is for a store on Postgres")
    if callee(fn)[1]:
        raise UsageError(_must_be_plain(name))


def transaction_name(fn: Any, name: str | None) -> str:
    """Return the name of the step: the given name, else the function's. Refuse what cannot be called."""
    called = name or getattr(fn, "__name__", None)
    check_callable(called or "transaction", fn)
    if called is None or called == "<lambda>":
        raise UsageError(
            "a transaction needs a name for its record: give name=, or a function that has a name"
        )
    return called


def transaction_limit(name: str, limit: Seconds | None) -> float | None:
    """Return how long the function may block other writers, if a limit was given."""
    return None if limit is None else check_positive(f"transaction {name!r}: limit", limit)


def _under_lease(key: str, limit: float | None, lease_seconds: float) -> float:
    # Renewals of all runs come every third of a lease, and wait for the function.
    longest = lease_seconds / 3
    if limit is None:
        return min(TRANSACTION_SECONDS, longest)
    if limit > longest:
        raise UsageError(
            f"transaction {key!r}: limit is {limit:g} s, and this worker's lease of {lease_seconds:g} s "
            f"allows {longest:g} s: do slow work in a step before it, or give the worker a longer lease"
        )
    return limit


def _must_be_async(name: str) -> str:
    return (
        f"transaction {name!r}: its function is sync, but its connection is from asyncpg: write "
        f"`async def {name}(connection, …)`, or give on= an engine of your own"
    )


def _must_be_plain(name: str) -> str:
    return (
        f"transaction {name!r}: its function is async, but it runs in the store's thread, inside a commit: "
        f"write `def {name}(connection, …)`"
    )


class Transactions:
    """The part of a context that runs functions inside the commit of their step."""

    __slots__ = ()

    if TYPE_CHECKING:
        _run: Execution
        _stage: Stage

        def _key(self, name: str, key: str | None) -> str: ...

    @overload
    def transaction(
        self, fn: Callable[..., Awaitable[T]], *args: Any, **options: Unpack[TransactionOptions]
    ) -> Coroutine[Any, Any, T]: ...

    @overload
    def transaction(
        self, fn: Callable[..., Result[T]], *args: Any, **options: Unpack[TransactionOptions]
    ) -> Coroutine[Any, Any, T]: ...

    def transaction(
        self,
        fn: Callable[..., Any],
        *args: Any,
        name: str | None = None,
        key: str | None = None,
        retry: Backoff | None = None,
        limit: Seconds | None = None,
        on: Any = None,
        raises: Raises = (),
    ) -> Coroutine[Any, Any, Any]:
        """Run `fn(connection, *args)` inside the commit that records its result: exactly once.

        The connection is to the store's own database: asyncpg's for an async `fn` on Postgres, apsw's for a
        sync one on SQLite. It may read and write tables of your own there, for at most `limit` (5 s; on
        SQLite never more than a third of the worker's lease), and leaves begin and commit to the engine.
        `on`: on Postgres, your own engine, sessionmaker, pool or connect function that provides the
        connection.
        """
        name = transaction_name(fn, name)
        check_transaction(name, fn, on, self._run.worker.store)
        key = self._key(name, key)
        call = TransactionCall(self._run, self._stage, key, fn, args)
        call.on = on
        if self._run.spans is not None:
            call.called = self._run.spans.traced(fn, name)
        call.limited(check_policy(f"transaction {name!r}", retry), transaction_limit(name, limit))
        if raises:
            call.raises = check_raises(f"transaction {name!r}", raises, call.raises)
        answer = self._stage.promised[key] = call.answer()
        return answer
