"""Exactly-once steps: a function runs inside the very commit that records its result.

What it writes to the store's database and the checkpoint are there together, or neither is. So its effect
needs no idempotency key: whatever is lost or crashes, at any instant, it was done once or not at all.
Where its store keeps nobody else from writing meanwhile (`awaits_work`), it is async; else it is plain.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.arguments import Seconds, check_positive
from holdfast.contract import TRANSACTION_SECONDS, OwnEngine, Store
from holdfast.errors import TooLarge, UsageError
from holdfast.records import Item, Json, StepWrite, TrailWrite
from holdfast.records.sizes import row_bytes
from holdfast.threads import Ended

from .gathered import sent
from .messages import check_logged, check_said
from .signals import Continued, Parked
from .steps import SCOPE, Call, Scope, callee, cancelled, check_callable

if TYPE_CHECKING:
    from holdfast.codec import Codec

    from .journal import Journal, Written


class TransactionScope(Scope):
    """What user code says in there goes out with this very commit, its log rows too."""

    __slots__ = ("rows",)

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.rows: list[TrailWrite] = []

    def note(self, _journal: Journal, row: TrailWrite) -> None:
        size, where = row_bytes(row), f"step {self.key!r}"
        check_logged(len(self.rows) + 1, 0, where)
        check_said(0, self.bytes + size, where)
        self.bytes += size
        self.rows.append(row)


class Transaction:
    """One try: a function on its way into a commit, and what came of it."""

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
        self.scope = TransactionScope(write.key)
        self.hurried = False  # something that goes along does not wait for another reason to commit
        self.made: Written | None = None
        self.counted: Json | None = None  # the result, in what the run has recorded
        self.raised: BaseException | None = None
        self.raises = self.calls = 0

    def perform(self, item: Item, connection: Any) -> Any:
        """Inside the store's transaction; again, when that could not be committed. It may be awaited."""
        self.scope = scope = TransactionScope(self._write.key)
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
            if not (isinstance(error, asyncio.CancelledError) and cancelled()):  # else it was told to stop
                self.raised, self.raises = error, self.raises + 1
            raise
        finally:
            SCOPE.reset(token)

    def _completed(self, item: Item, value: Any, scope: TransactionScope) -> Item:
        output, value = self._codec.record(value, f"the result of step {scope.key!r}")
        if self._count is not None:
            self._count(output)
            self._count = None  # a commit that has to be made again records it once all the same
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
        value = Ended.of(partial(self._fn, connection, *self._args)).value()
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
        """Nothing of it stands, and what a plain function still asks for is refused."""
        self.scope.over = True
        if not self.future.done():
            self.future.set_exception(error)


class TransactionCall(Call):
    """One `ctx.transaction`: as a step, but for where its function runs."""

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
            if run.lease_clock.over:
                await self._confirmed()
            tries += 1
            failed: Exception | None = None
            if stage.closed:
                await stage.refuse(self.key)
            write = StepWrite(key=self.key, attempts=tries, started_at=run.now())
            transaction = Transaction(
                self._fn,
                self._args,
                codec,
                write,
                limit or TRANSACTION_SECONDS,
                on,
                run.record.count,
                awaits=awaits,
            )
            try:
                run.journal.transact(transaction)
                return await transaction.future
            except (Parked, Continued, KeyboardInterrupt, GeneratorExit):
                raise
            except BaseException as error:
                if stage.closed or (isinstance(error, asyncio.CancelledError) and cancelled()):
                    raise  # it was told to stop: whatever it answers is no failed try
                run.record.uncount(transaction.counted)
                with suppress(TooLarge):  # log rows that do not fit are no reason to end the tries
                    for row in transaction.scope.rows:
                        run.journal.note(row)
                failed = await self._again_or_fail(error, tries, transaction.scope, write.started_at or 0)
            if failed is not None:
                try:
                    raise failed
                finally:
                    del failed


def check_transaction(name: str, fn: Any, on: Any, store: Store) -> None:
    """Refuse what this store cannot do, where it is asked for."""
    if store.traits.awaits_work:
        return
    if on is not None:
        raise UsageError(f"transaction {name!r}: on= is for a store on Postgres")
    if callee(fn)[1]:
        raise UsageError(_must_be_plain(name))


def transaction_name(fn: Any, name: str | None) -> str:
    """What it is recorded under: as given, else the function's own name. Refuses what cannot be run."""
    called = name or getattr(fn, "__name__", None)
    check_callable(called or "transaction", fn)
    if called is None or called == "<lambda>":
        raise UsageError(
            "a transaction needs a name to be recorded under: give name=, or a function that has one"
        )
    return called


def transaction_limit(name: str, limit: Seconds | None) -> float | None:
    """How long its function may keep all others from writing, if that was said."""
    return None if limit is None else check_positive(f"transaction {name!r}: limit", limit)


def _under_lease(key: str, limit: float | None, lease_seconds: float) -> float:
    # Renewals, also of neighbours, come every third of a lease, and wait for the function.
    longest = lease_seconds / 3
    if limit is None:
        return min(TRANSACTION_SECONDS, longest)
    if limit > longest:
        raise UsageError(
            f"transaction {key!r}: limit is {limit:g} s, and this worker's lease of {lease_seconds:g} s "
            f"allows {longest:g} s: do what takes long in a step before it, or give the worker a longer lease"
        )
    return limit


def _must_be_async(name: str) -> str:
    return (
        f"transaction {name!r}: its function is plain, and its connection asyncpg's: write "
        f"`async def {name}(connection, …)`, or give on= an engine of your own"
    )


def _must_be_plain(name: str) -> str:
    return (
        f"transaction {name!r}: its function is async, and runs on the store's own thread, inside a commit: "
        f"write `def {name}(connection, …)`"
    )
