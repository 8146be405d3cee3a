"""Exactly-once steps: a function runs inside the very commit that records its result.

What it writes to the store's database and the checkpoint are there together, or neither is. So its effect
needs no idempotency key: whatever is lost or crashes, at any instant, it was done once or not at all.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.durations import Seconds, seconds
from holdfast.errors import UsageError
from holdfast.records import Item, StepWrite, TrailWrite
from holdfast.store import TRANSACTION_SECONDS
from holdfast.threads import Ended

from .journal import sent
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
        self.rows.append(row)


class Transaction:
    """One try: a function on its way into a commit, and what came of it."""

    __slots__ = (
        "_args",
        "_codec",
        "_fn",
        "_write",
        "context",
        "future",
        "hurried",
        "limit_seconds",
        "made",
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
    ) -> None:
        self._fn, self._args, self._codec, self._write = fn, args, codec, write
        self.limit_seconds = limit_seconds
        self.context = copy_context()
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.scope = TransactionScope(write.key)
        self.hurried = False  # something that goes along does not wait for another reason to commit
        self.made: Written | None = None
        self.raised: BaseException | None = None
        self.raises = 0

    def perform(self, item: Item, connection: Any) -> Item:
        """On a thread of the store's, inside its transaction; again, when that could not be committed."""
        self.scope = scope = TransactionScope(self._write.key)
        token = SCOPE.set(scope)
        try:
            output, value = self._codec.record(self._called(connection), f"the result of step {scope.key!r}")
        except BaseException as error:
            self.raised, self.raises = error, self.raises + 1
            raise
        finally:
            SCOPE.reset(token)
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
        if inspect.isawaitable(value):
            if inspect.iscoroutine(value):
                value.close()
            raise UsageError(_must_be_plain(self.scope.key))
        return value

    def fail(self, error: BaseException) -> None:
        """Nothing of it stands."""
        if not self.future.done():
            self.future.set_exception(error)


class TransactionCall(Call):
    """One `ctx.transaction`: as a step, but for where its function runs."""

    __slots__ = ()

    async def _tries(self, tries: int) -> Any:
        run, stage, codec = self._run, self._stage, callee(self._fn)[0]
        limit = _under_lease(self.key, self._timeout, run.worker.lease_seconds)
        while True:
            tries += 1
            if stage.closed:
                await stage.refuse()
            write = StepWrite(key=self.key, attempts=tries, started_at=run.now())
            transaction = Transaction(self._fn, self._args, codec, write, limit)
            try:
                run.journal.transact(transaction)
                return await transaction.future
            except (Parked, Continued, KeyboardInterrupt, GeneratorExit):
                raise
            except BaseException as error:
                if stage.closed or (isinstance(error, asyncio.CancelledError) and cancelled()):
                    raise  # it was told to stop: whatever it answers is no failed try
                for row in transaction.scope.rows:
                    run.journal.note(row)
                await self._again_or_fail(error, tries, transaction.scope, write.started_at or 0)


def transaction_name(fn: Any, name: str | None) -> str:
    """What it is recorded under: as given, else the function's own name. Refuses what cannot be run."""
    called = name or getattr(fn, "__name__", None)
    check_callable(called or "transaction", fn)
    if called is None or called == "<lambda>":
        raise UsageError(
            "a transaction needs a name to be recorded under: give name=, or a function that has one"
        )
    if callee(fn)[1]:
        raise UsageError(_must_be_plain(called))
    return called


def transaction_limit(name: str, limit: Seconds | None) -> float | None:
    """How long its function may keep all others from writing, if that was said."""
    wanted = None if limit is None else seconds(limit)
    if wanted is not None and wanted <= 0:
        raise UsageError(f"transaction {name!r}: limit is {wanted:g} s, and it is to be more than 0")
    return wanted


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


def _must_be_plain(name: str) -> str:
    return (
        f"transaction {name!r}: its function is async, and runs on the store's own thread, inside a commit: "
        f"write `def {name}(connection, …)`"
    )
