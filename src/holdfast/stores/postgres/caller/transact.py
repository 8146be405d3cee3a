"""transact: a checkpoint and the writes of a user's function, in one commit.

The connection is one of the store, apart from those that verbs use, or one of the user's own engine. When the
answer to a commit was lost, the item is sent again: either the store knows it by then, or nothing was
written.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

from holdfast.contract import TRANSACTION_SECONDS, OwnEngine, Thread
from holdfast.errors import UsageError
from holdfast.records import Item, Verdict
from holdfast.records.moves import Checkpoint
from holdfast.stores.postgres.errors import DRIVER
from holdfast.stores.postgres.verbs.calls import seconds_for

from .attempt import TransactionAttempt, Undone, WrongDatabase
from .connection import CallerCalls, CallerConnection, caller_connection, database_id_of, text
from .engine import AsyncBlock, SyncBlock, transaction_on
from .guarded_session import in_user_code, refuse_inside

if TYPE_CHECKING:
    from holdfast.stores.postgres.sessions.pool import Pool

ROLLBACK_SECONDS = 1.0
END_SECONDS = 6.0  # the server's minimum time for `end_work`, which may wait 5 s for locks
MORE_TIME = (
    "select set_config('statement_timeout', t.ms, true) "
    "|| set_config('idle_in_transaction_session_timeout', t.ms, true) "
    "from (select cast($1 as text) as ms) as t"
)


class TransactVerbs(CallerCalls):
    """The verb `transact`."""

    call_seconds: float

    if TYPE_CHECKING:

        def _guarded_pool(self) -> Pool:
            """Return the pool of sessions for user code, of this event loop."""

        async def commit(self, batch: Sequence[Item]) -> list[Verdict]: ...

    async def transact(
        self,
        item: Item,
        work: Callable[[Any], Any],
        limit_seconds: float = TRANSACTION_SECONDS,
        on: OwnEngine | None = None,
    ) -> Verdict:
        if not isinstance(item.move, Checkpoint):
            raise UsageError(f"a transaction is a checkpoint, no {item.move.verb}")
        refuse_inside(self.address)
        if on is None:
            attempt = TransactionAttempt(item, work, limit_seconds, self.address)
            return await self._verdict(attempt, self._performed(attempt, self._own_session(attempt)))
        old = None
        while True:
            database_id = self._database_id = self._database_id or await database_id_of(self.address)
            block = transaction_on(on.engine)
            attempt = TransactionAttempt(item, work, limit_seconds, self.address, database_id, own=True)
            try:
                if isinstance(block, AbstractAsyncContextManager):
                    return await self._verdict(attempt, self._performed(attempt, block))
                return await self._verdict(attempt, self._on_thread(attempt, block, on.thread, limit_seconds))
            except WrongDatabase as error:
                if old == database_id:
                    raise error.error from None
                old, self._database_id = database_id, None  # the id changes when the server restarts

    async def _verdict(self, attempt: TransactionAttempt, performed: Awaitable[Verdict]) -> Verdict:
        try:
            return await performed
        except Undone as undone:
            # The step was done before: the rest of the item is recorded, the writes of the function are not.
            return undone.verdict or (await self.commit((attempt.item,)))[0]

    async def _performed(self, attempt: TransactionAttempt, block: AsyncBlock) -> Verdict:
        try:
            async with block as given:
                caller = caller_connection(given)
                beginning = attempt.beginning()
                caller.seconds = self.call_seconds + seconds_for(beginning)
                async with asyncio.timeout(caller.seconds):
                    attempt.begun(text(await caller.ask(self._caller_sql(caller, "begin_work"), beginning)))
                with in_user_code(given):
                    await attempt.perform(given, caller)
                ending = attempt.ending()
                caller.seconds = self.call_seconds + seconds_for(ending)
                async with asyncio.timeout(caller.seconds):
                    if hasattr(given, "flush"):  # a session of an ORM: write what is pending
                        await given.flush()
                    if (seconds := attempt.end_seconds(END_SECONDS)) is not None:
                        await caller.ask(_more_time(caller), seconds)
                    return attempt.ended(text(await caller.ask(self._caller_sql(caller, "end_work"), ending)))
        except BaseException as error:  # noqa: BLE001 - raised as an error of the library
            attempt.refuse(error)

    async def _on_thread(
        self, attempt: TransactionAttempt, block: SyncBlock, thread: Thread, limit_seconds: float
    ) -> Verdict:
        """Run the attempt on a thread. The time limit starts when the function is called, because a thread
        may not be free at once.
        """
        begun, loop = asyncio.Event(), asyncio.get_running_loop()
        report_begun = partial(loop.call_soon_threadsafe, begun.set)
        call = partial(self._performed_sync, attempt, block, report_begun)
        task: asyncio.Future[Verdict] = asyncio.ensure_future(thread(call))
        waiting = asyncio.ensure_future(begun.wait())
        try:
            both: set[asyncio.Future[Any]] = {task, waiting}
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait({task}, timeout=limit_seconds)
            if not task.done() and (late := attempt.give_up()) is not None:
                raise late
            return await task
        finally:
            waiting.cancel()
            if not task.done():
                attempt.give_up()
                task.cancel()

    def _performed_sync(
        self, attempt: TransactionAttempt, block: SyncBlock, begun: Callable[[], object]
    ) -> Verdict:
        try:
            with block as given:
                caller = caller_connection(given)
                attempt.begun(text(caller.ask(self._caller_sql(caller, "begin_work"), attempt.beginning())))
                begun()
                attempt.perform_sync(given, caller)
                if hasattr(given, "flush"):
                    given.flush()
                ending = attempt.ending()
                if (seconds := attempt.end_seconds(END_SECONDS)) is not None:
                    caller.ask(_more_time(caller), seconds)
                return attempt.ended(text(caller.ask(self._caller_sql(caller, "end_work"), ending)))
        except BaseException as error:  # noqa: BLE001 - raised as an error of the library
            attempt.refuse(error)

    @asynccontextmanager
    async def _own_session(self, attempt: TransactionAttempt) -> AsyncIterator[Any]:
        """Give a session of the store. Nothing waits longer than its time limit."""
        async with self._guarded_pool().borrow(self.call_seconds) as session:
            transaction = session.transaction()
            async with asyncio.timeout(self.call_seconds):
                await transaction.start()
            session.planned_at = -inf  # so that it is reset before its next use
            try:
                yield session
            except BaseException:
                with suppress(*DRIVER):
                    async with asyncio.timeout(ROLLBACK_SECONDS):
                        await transaction.rollback()
                raise
            else:
                async with asyncio.timeout(self.call_seconds + attempt.more_seconds):
                    await transaction.commit()
            finally:
                if session.changed:
                    session.abandon()


def _more_time(caller: CallerConnection) -> str:
    """Return the statement that raises the limits of `begin_work`, which were those of the function."""
    return MORE_TIME.replace("$1", caller.placeholder)
