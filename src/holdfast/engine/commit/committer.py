"""The committer: group commit for all runs of a worker.

While one commit is on its way, the items of other runs are queued for the next. A commit is bounded in bytes,
and large items are sent apart from small ones (see `batches`). There is no timer and no added latency: a lone
item is sent at once. Every item is answered, whatever happens to its run: after a lost reply the item is sent
again with the same number; its outcome is never guessed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

from holdfast.backoff import DEFAULT
from holdfast.bounds import MIB
from holdfast.contract import Store
from holdfast.engine import run_log
from holdfast.engine.failures import error_of, failing, final_kind
from holdfast.engine.measured import measures_of
from holdfast.engine.tracing.provider import leave
from holdfast.errors import StoreError, Unavailable, UsageError
from holdfast.escaping import safe_logger
from holdfast.lifecycle import Status
from holdfast.records import Answer, Item, Verdict
from holdfast.records.moves import Fail
from holdfast.records.sizes import item_bytes
from holdfast.world import World

from .batches import Answered, Batches, Entry

if TYPE_CHECKING:
    from holdfast.engine.code.transactions import Transaction

log = safe_logger("holdfast.committer")

Failed = Callable[[Item, "Transaction", BaseException], None]

SHARE_MIN = 16  # fewer items than this are not worth another commit
SPLIT_TRIES = 8  # tries of a batch, before its items are sent one by one
ALONE_MAX = 3  # busy items that are sent at the same time; the same number of failing ones
BUSY_SECONDS = 0.02  # first delay before an item is retried whose row another session holds; it doubles
BUSY_MAX_SECONDS = 1.0  # up to this delay
FAILING_MAX_SECONDS = 5.0  # delay before an item is retried that fails while the store answers other calls
FULL_BYTES = 64 * MIB  # bytes that are queued
BESIDE_MAX = 8  # runs that are executed while more bytes than that are queued
PATIENCE_SECONDS = 10.0  # one line in the log per so many seconds of a store that does not answer
DISK_TRIES = 10  # tries of a function that met a full disk, perhaps another disk than the store's
# tries of a transaction whose function ended each time, while the store answers other calls
COMMIT_TRIES = 10

# the answer for an item that fails while the store answers others
FAILING = Verdict(answer=Answer.BUSY, status=Status.LEASED)


class Committer:
    """The one queue in front of `Store.commit` for all runs of a worker."""

    def __init__(self, store: Store, world: World, sending: Callable[[], None] | None = None) -> None:
        self._store, self._world, self._sending = store, world, sending
        self._writers = store.traits.writers
        self.names_children = store.traits.names_children
        self._queue = Batches(self._writers)
        self._writing = 0  # commits on their way: a run has at most one item here, so any of them may take it
        self._flushing = False
        self._few, self._failing = asyncio.Semaphore(ALONE_MAX), asyncio.Semaphore(ALONE_MAX)
        self._alone = 0  # transactions and busy items on their way, each sent alone
        self._bytes = 0
        self._beside: set[UUID] = set()  # runs that were claimed while much was queued
        self._tasks: set[asyncio.Task[None]] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._undelivered = self._delivering = False
        self._complained = -PATIENCE_SECONDS
        self._measures = measures_of(store)
        self.lost = 0  # items that were refused because the lease was lost
        # A commit is of many runs: it has the context of the worker, and neither the span nor the variables
        # of the run that happened to put the first item.
        self._context = copy_context()
        self._context.run(leave)

    @property
    def full(self) -> bool:
        """True when so much is queued that few further runs should be claimed."""
        return self._bytes > FULL_BYTES

    def room(self, limit: int) -> int:
        """Return how many of `limit` runs to claim now. Each may bring another large item: while much is
        queued, only few further runs are executed."""
        return min(limit, max(0, BESIDE_MAX - len(self._beside))) if self.full else limit

    def begun(self, run: UUID) -> None:
        """Note that a run was claimed."""
        if self.full:
            self._beside.add(run)

    def ended(self, run: UUID) -> None:
        """Note that a run is no longer held."""
        self._beside.discard(run)

    def put(self, item: Item, answered: Answered) -> None:
        """Queue one item; `answered` gets its verdict. A run has at most one item here at a time."""
        size = item_bytes(item)
        self._queue.put((item, answered, size))
        self._bytes += size
        if self._writing < self._writers and not self._flushing and self._queue.ready:
            # At the end of this loop turn, so that items put in the same turn share a commit.
            self._flushing = True
            self._writing += 1
            self._idle.clear()
            asyncio.get_running_loop().call_soon(self._flush, context=self._context.copy())

    async def drain(self, limit_seconds: float | None = None) -> None:
        """Return when all items have been answered; items that the store leaves unanswered are given up."""
        try:
            async with asyncio.timeout(limit_seconds):
                await self._idle.wait()
        except TimeoutError:
            for task in self._tasks:
                task.cancel()

    def _flush(self) -> None:
        self._flushing = False
        batch, large = self._queue.next(self._share)
        if self._sending is not None:
            self._sending()
        self._spawn(self._send(batch, large=large), "holdfast-commit")
        if self._writing < self._writers and self._queue.ready:
            self._writing += 1
            self._flush()

    def _share(self, queued: int) -> int:
        """Divide the queue among the free writers: otherwise one writer would do all the work."""
        free = self._writers - self._writing + 1
        return max(SHARE_MIN, -(-queued // free))

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        # The event loop holds its tasks only weakly: without this reference a task may be garbage collected.
        task = self._world.spawn(work, name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send(self, batch: list[Entry], *, large: bool) -> None:
        items = [item for item, _, _ in batch]
        verdicts = await self._commit(items)
        self._queue.answered(large=large)
        for (item, answered, size), verdict in zip(batch, verdicts, strict=True):
            if verdict.answer is Answer.BUSY:
                # Sent alone: a row that another session locks for long, or an item that the store cannot
                # take, must not delay all others again and again.
                self._alone += 1
                if verdict is FAILING:
                    log.warning(
                        "the store accepts other items, but none of run %s: sending it alone", item.run
                    )
                self._spawn(self._send_alone(item, answered, size, verdict), "holdfast-commit-again")
            else:
                self._answer(item, answered, size, verdict)
        if any(item.events for item in items):
            self.deliver()
        if self._queue.ready and not self._flushing:
            self._flush()
        else:
            self._writing -= 1
            self._rest()

    async def _send_alone(self, item: Item, answered: Answered, size: int, verdict: Verdict) -> None:
        delay = BUSY_SECONDS
        try:
            while verdict.answer is Answer.BUSY:
                await asyncio.sleep(delay)
                fails = verdict is FAILING
                delay = min(2 * delay, FAILING_MAX_SECONDS if fails else BUSY_MAX_SECONDS)
                async with self._failing if fails else self._few:
                    (verdict,) = await self._commit([item], tries_max=1)
            self._answer(item, answered, size, verdict)
            if item.events:
                self.deliver()
        finally:
            self._alone -= 1
            self._rest()

    def _answer(self, item: Item, answered: Answered, size: int, verdict: Verdict) -> None:
        self._bytes -= size
        self.lost += verdict.answer is Answer.LOST
        try:
            answered(verdict)
        except Exception:
            # One run that cannot take its answer must not stop the commits of all others.
            log.exception("run %s failed to handle the answer to its commit", item.run)
            self._engine_failed()

    def _engine_failed(self) -> None:
        if self._measures is not None:
            self._measures.engine_failed()

    def _rest(self) -> None:
        if not self._writing and not self._alone:
            self._idle.set()

    def transact(self, item: Item, transaction: Transaction, answered: Answered, failed: Failed) -> None:
        """Send one item whose last step runs inside its commit. `failed` gets the exception of that step."""
        self._alone += 1
        self._idle.clear()
        self._spawn(self._transact(item, transaction, answered, failed), "holdfast-transact")

    async def _transact(
        self, item: Item, transaction: Transaction, answered: Answered, failed: Failed
    ) -> None:
        try:
            verdict = await self._transacted(item, transaction)
        except BaseException as error:
            if not isinstance(error, Exception) and error is not transaction.raised:
                raise
            failed(item, transaction, error)
        else:
            self.lost += verdict.answer is Answer.LOST
            answered(verdict)
            if item.events or transaction.scope.events:
                self.deliver()
        finally:
            self._alone -= 1
            self._rest()

    async def _transacted(self, item: Item, transaction: Transaction) -> Verdict:
        """Send a transaction as `_commit` does. An exception of the function itself is its answer.

        A commit that fails while the store answers other calls is not retried for ever: each try calls the
        function again. A store that answers nothing is waited for.
        """
        delay, failures = 0.05, 0
        while True:
            calls = transaction.calls
            try:
                verdict = await self._store.transact(
                    item, partial(transaction.perform, item), transaction.limit_seconds, *transaction.on
                )
                if verdict.answer is not Answer.BUSY:
                    return verdict
            except Unavailable as error:
                if error is transaction.raised:
                    raise
                if transaction.raised is not None and transaction.raises >= DISK_TRIES:
                    raise transaction.raised from error
                self._complain(error)
                if transaction.calls > calls:
                    failures = failures + 1 if await self._answers() else 0
                if failures >= COMMIT_TRIES:
                    said = f"the commit of transaction {transaction.scope.key!r} failed {failures} times"
                    raise StoreError(f"{said}, and the store answers other calls: {error}") from error
            await asyncio.sleep(delay)
            delay = min(2 * delay, 2.0)

    async def _commit(self, items: list[Item], tries_max: int = SPLIT_TRIES) -> list[Verdict]:
        """Send until there is an answer. Items that were applied before are answered as the first time.

        After some failed tries while the store answers other calls, items are sent one by one, and an item
        that fails alone is answered FAILING. A store that answers nothing is retried for ever.
        """
        delay, tries = 0.05, 0
        while True:
            try:
                return await self._store.commit(items)
            except Unavailable as error:
                self._complain(error)
                tries += 1
                if tries >= tries_max and await self._answers():
                    verdicts = [FAILING] if len(items) == 1 else await self._one_by_one(items)
                    if len(items) == 1 or any(one is not FAILING for one in verdicts):
                        return verdicts
                    tries = 0  # the store reads and takes no write at all: a full disk, and no item's fault
            except UsageError as error:
                if len(items) == 1:
                    return [await self._refused(items[0], error)]
                return await self._one_by_one(items)
            except Exception:
                if len(items) == 1:
                    # The outcome of this item is unknown: its lease expires and the run is claimed again.
                    log.exception("an item of run %s cannot be committed", items[0].run)
                    self._engine_failed()
                    return [Verdict(answer=Answer.LOST, status=Status.LEASED)]
                return await self._one_by_one(items)
            await asyncio.sleep(delay)
            delay = min(2 * delay, 2.0)

    async def _one_by_one(self, items: list[Item]) -> list[Verdict]:
        """Send the items one by one: perhaps the store cannot take one of them, and the others need not
        wait.
        """
        return [(await self._commit([item], tries_max=1))[0] for item in items]

    async def _answers(self) -> bool:
        """Return True when the store can be reached: if not, no item is at fault."""
        try:
            await self._store.due((), tenants=())
        except StoreError:
            return False
        except Exception:  # noqa: BLE001 - it has answered something
            return True
        return True

    async def _refused(self, item: Item, error: UsageError) -> Verdict:
        """Fail the run of an item that the store refuses: every further execution would be refused too."""
        lost = Verdict(answer=Answer.LOST, status=Status.FAILED)
        if isinstance(item.move, Fail) and not item.steps:
            log.warning("an item of run %s is refused: %s", item.run, error)
            return lost  # not even the failure can be written: the lease expires
        recorded = error_of(error, final_kind(error, DEFAULT) or "usage")
        move = failing(recorded)
        failed = Item(run=item.run, tenant=item.tenant, fence=item.fence, number=item.number, move=move)
        (verdict,) = await self._commit([failed])
        if verdict.answer is not Answer.APPLIED:
            return verdict
        run_log.refused(item.run, recorded)
        return lost

    def _complain(self, error: StoreError) -> None:
        if self._world.monotonic() - self._complained >= PATIENCE_SECONDS:
            self._complained = self._world.monotonic()
            log.warning("cannot commit, will retry: %s", error)

    def deliver(self) -> None:
        """Deliver the wake-ups that commits left, soon; callers in between share one delivery."""
        self._undelivered = True
        if not self._delivering:
            self._delivering = True
            self._context.copy().run(self._spawn, self._deliver(), "holdfast-deliver")

    async def _deliver(self) -> None:
        try:
            while self._undelivered:
                self._undelivered = False
                await self._store.deliver()
        except Exception as error:
            mystery = not isinstance(error, StoreError)
            log.warning("cannot deliver events now, a keeper will do it: %s", error, exc_info=mystery)
        finally:
            self._delivering = False
