"""The journal: the writes of one leased run. At most one numbered item is in flight; the rest is buffered.

All moves of a run pass here: otherwise a run could be completed before its last checkpoint. In a segment the
journal answers a step at once, and the step goes with the commit that ends the segment.

One item is bounded in bytes: the rest goes in further items, in order, each event and message with its step.
The effects of one step, and log rows, cannot be divided: too many of them are refused when they are written.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from holdfast.bounds import BATCH_BYTES, MIB
from holdfast.engine.code.record import OUTCOMES, Record
from holdfast.engine.outbox.messages import SENT_MAX
from holdfast.engine.worker.lease_clock import LeaseClock
from holdfast.lifecycle import Status, StepStatus
from holdfast.records import (
    Answer,
    Claim,
    Instant,
    Item,
    Json,
    Lease,
    NewEvent,
    Outbound,
    StepWrite,
    TrailWrite,
    Verdict,
)
from holdfast.records.moves import CHECKPOINT, Checkpoint, HolderMove, Park, Retry
from holdfast.records.sizes import step_bytes
from holdfast.world import World

from .buffer import EffectBuffer
from .committer import Committer
from .spending import Spending

if TYPE_CHECKING:
    from holdfast.engine.code.transactions import Transaction

SEGMENT_BYTES = 4 * MIB  # bytes of buffered results beyond which a segment commits in between
SEGMENT_ROWS = 1000  # the same for log rows, events and messages

_NONE: dict[str, Any] = {}
_APPLIED = Verdict(answer=Answer.APPLIED, status=Status.LEASED)

Completes = Callable[[Lease, int, Verdict], Awaitable[Verdict]]  # reads waits too large for a verdict
Asked = asyncio.Future[Any] | None  # the future of a step's outcome
Written = tuple[StepWrite, Asked, Any]

GRANTED = object()  # stands for a value: user code has this outcome already


class Journal:
    """Writes of one leased run: at most one item in flight, the rest buffered."""

    __slots__ = (
        "_buffer", "_bytes", "_committer", "_complete", "_completing", "_due", "_effects", "_fence", "_idle",
        "_lease_clock", "_number", "_on_grant", "_on_verdict", "_record", "_refused", "_run", "_sent",
        "_sent_at", "_tenant", "_transaction", "_transactions", "_world", "pause_asked", "spending",
        "started_at", "stored_trace",
    )  # fmt: skip

    def __init__(
        self,
        claim: Claim,
        record: Record,
        committer: Committer,
        world: World,
        lease_clock: LeaseClock,
        on_verdict: Callable[[Verdict, list[Written]], None],
        *,
        on_grant: Callable[[Verdict, list[Written]], None] | None = None,
        complete: Completes | None = None,
    ) -> None:
        self._run, self._tenant, self._fence, self._record = claim.id, claim.tenant, claim.fence, record
        self._committer, self._world, self._lease_clock = committer, world, lease_clock
        self._on_verdict, self._complete = on_verdict, complete
        self._on_grant, self._bytes = on_grant, 0  # called for a step answered early; None: no segment
        self.spending = Spending.of(claim)
        self.pause_asked = False  # from the newest renewal
        self._number, self._sent_at = 0, 0.0
        self._buffer: list[Written] = []
        self._due = False  # the buffer is to be sent soon
        self._sent: list[Written] | None = None
        self._refused: Verdict | None = None  # an item was refused: neither it nor later ones were written
        self._transactions: deque[Transaction] = deque()  # each is sent alone, when its turn has come
        self._transaction: Transaction | None = None  # on its way
        self._effects = EffectBuffer(claim.id, world)
        self._idle: asyncio.Future[Verdict] | None = None
        self.started_at: Instant | None = None  # until `started` is known to be in the trail
        # Called for the trace that the run keeps when it is let go; None: the one that it has.
        self.stored_trace: Callable[[], str | None] = _no_trace

    def leave(self) -> None:
        """End the journal: the run is no longer held, and late answers are dropped."""
        self._on_verdict, self.stored_trace = _for_nobody, _no_trace

    @property
    def busy(self) -> bool:
        """True while an item is on its way."""
        return self._sent is not None

    def note(self, row: TrailWrite) -> None:
        """Add a trail row for the next commit; TooLarge when too many rows wait."""
        self._effects.note(row)

    def emit(self, event: NewEvent | Outbound) -> None:
        """Add an event or an outbox message to the commit of the next step that is written."""
        self._effects.emit(event)

    def say(self, event: NewEvent | Outbound) -> None:
        """Add an effect of the body itself; TooLarge when too much waits for a commit."""
        self._effects.say(event)

    def progress(self, progress: Json) -> None:
        """Set the newest progress, for the next commit or renewal; it replaces one that was not written."""
        self._effects.progress(progress)

    def take_progress(self) -> Json | None:
        """Take the progress that a renewal is to write now."""
        return self._effects.take_progress()

    def keep_progress(self, progress: Json | None) -> None:
        """Keep a progress that the renewal did not write."""
        self._effects.keep_progress(progress)

    def write(self, step: StepWrite, future: asyncio.Future[Any] | None = None, value: Any = None) -> None:
        """Record a step now; `future` gets `value` when the step is committed.

        For a failed try, `value` is the delay before the next try and the error in one line.
        """
        if self._on_grant is not None and self._may_stay(step):
            self._add(step, None, GRANTED)
            self._on_grant(_APPLIED, [(step, future, value)])
            return
        self._add(step, future, value)
        if self._sent is None:
            self._send()
        else:
            self._due = True

    def _may_stay(self, step: StepWrite) -> bool:
        """Return True when the step can wait for the end of the segment.

        It cannot wait while the run has an open wait in the store, or an item is on its way: their outcomes
        would get a lower number than the step, but user code would see them later. Nor can a child that only
        gets its id with the commit.
        """
        pays = self.spending is None or self.spending.stays(step.cost)
        return (
            step.status in OUTCOMES
            and self._sent is None
            and not self._record.open_waits
            and not self.pause_asked
            and (step.child is None or not self._committer.names_children)
            and self._bytes < SEGMENT_BYTES
            and (not self._effects or self._effects.rows < SEGMENT_ROWS)
            and pays  # otherwise the run pauses, which takes a commit
        )

    def transact(self, transaction: Transaction) -> None:
        """Record a step whose function runs inside its commit; everything buffered goes with it."""
        self._transactions.append(transaction)
        if self._sent is None:
            self._send_waiting()

    def _send_waiting(self) -> None:
        """Send the next transaction, or what is to be sent soon."""
        while self._transactions and self._transactions[0].future.done():
            self._transactions.popleft()  # its branch was cancelled before its turn had come
        # A failed try needs a `retry` item of its own; a transaction is a checkpoint.
        if not self._transactions or any(map(_is_ready, self._buffer)):
            if self._due:
                self._send()
        elif self._fitting(least=0) < len(self._buffer):
            self._send()  # a transaction may have as many effects as a step: the two do not share an item
        else:
            self._transaction = self._transactions.popleft()
            self._transaction.hurried = self._due
            self._send()

    def _failed(self, item: Item, transaction: Transaction, error: BaseException) -> None:
        """Take back the effects of a transaction that failed: they go with the next commit."""
        sent, self._sent, self._transaction = self._sent or [], None, None
        self._buffer[:0] = sent
        self._due = self._due or transaction.hurried
        self._effects.put_back(item, [step for step, _, _ in sent])
        self._bytes = sum(map(self._size, self._buffer)) if self._on_grant is not None else 0
        transaction.fail(error)
        # Nobody may await it any more, and what waits behind it must get its turn all the same.
        self._on_verdict(_APPLIED, [])
        if self._idle is not None:
            self._wake(self._idle, _APPLIED)
        else:
            self._send_waiting()

    def keep(self, step: StepWrite) -> None:
        """Record a step with the next commit."""
        self._add(step, None, None)

    def _add(self, step: StepWrite, future: Asked, value: Any) -> None:
        self._buffer.append((step, future, value))
        said = self._effects.hand_over(step)
        if self._on_grant is not None:
            self._bytes += step_bytes(step) + said

    def _size(self, one: Written) -> int:
        return step_bytes(one[0]) + self._effects.size(one[0])[1]

    def carries(self, key: str) -> bool:
        """Return True when a write under this key is on its way, or buffered."""
        return any(step.key == key for step, _, _ in (*(self._sent or ()), *self._buffer))

    async def outcome(self, move: HolderMove) -> Verdict:
        """Send the move that ends this execution, with all that is buffered, after the item in flight.

        If an item before it was refused, it is not sent: the answer is that refusal.
        """
        await self._come_to_rest()
        return self._refused or await self._end(move)

    async def give_back(self, move: HolderMove) -> Verdict:
        """Send the move that gives the run back, as `outcome`; alone, if an item before it was refused."""
        await self._come_to_rest()
        if self._refused is not None:
            self._buffer.clear()
            self._effects.clear()
        return await self._end(move)

    async def _come_to_rest(self) -> None:
        self._transactions.clear()
        while self._sent is not None:
            await self._answer()

    async def _end(self, move: HolderMove) -> Verdict:
        before, known = self._record.known, None
        while self._send_first(move, known):
            # A wait that ends during these items is news to the move too: nobody else looks at it any more.
            known = before
            verdict = await self._answer()
            if verdict.answer is not Answer.APPLIED:
                return verdict
        self._send(move, known=known)
        return await self._answer()

    def _send_first(self, move: HolderMove, known: int | None) -> bool:
        """Send a part of the buffer before the move, if one item cannot hold all. Return True when it did."""
        if not isinstance(move, Retry):
            # The run ends or is given back as a whole: failed tries are not retried here.
            self._buffer = [one for one in self._buffer if not _is_ready(one)]
        if self._fitting() == len(self._buffer):
            return False
        # A failed try has no outcome: it may be recorded after later results. The move says why
        # the run is retried, so that at least one failed try goes with it, if there is one.
        self._buffer.sort(key=_is_ready)
        count = self._fitting()
        if isinstance(move, Retry) and any(map(_is_ready, self._buffer[:count])):
            self._send(replace(move, in_place=True, refund=True), count, known)
        else:
            self._send()
        return True

    def _fitting(self, least: int = 1) -> int:
        """Return how many of the buffered steps fit into one item with their effects; at least `least`."""
        total = rows = 0
        if len(self._buffer) > least:
            for count, (step, _, _) in enumerate(self._buffer):
                said, size = self._effects.size(step)
                total, rows = total + size + step_bytes(step), rows + said
                if count >= least and (total > BATCH_BYTES or rows > SENT_MAX):
                    return count
        return len(self._buffer)

    def _answer(self) -> asyncio.Future[Verdict]:
        """Wait for the next verdict. The item is not cancelled when the waiting run is stopped."""
        self._idle = asyncio.get_running_loop().create_future()
        return self._idle

    def _send(self, move: HolderMove = CHECKPOINT, count: int = 0, known: int | None = None) -> None:
        """Send so many steps (0: all that fit) with a move. `known`: the highest seq known at its
        beginning.
        """
        count = count or (self._fitting() if type(move) is Checkpoint else len(self._buffer))
        sent, self._buffer = self._buffer[:count], self._buffer[count:]
        self._due, self._bytes = bool(self._buffer), 0
        # A park that finds news leaves the lease as it was.
        self._sent, self._sent_at = sent, 0.0 if type(move) is Park else self._world.monotonic()
        self._number += 1
        opens = self._record.open_waits or type(move) is Park
        for step, _, value in sent:
            if step.status is StepStatus.WAITING:
                opens = 1
            elif step.status is StepStatus.READY and type(move) is Checkpoint:
                move = _in_place(step, *value)
        fields: dict[str, Any] = _NONE
        if self._effects:
            steps = [step for step, _, _ in sent]
            again, last = self._transaction is not None, type(move) is not Checkpoint
            fields = self._effects.take(steps, last=last, again=again)
        item = Item(
            run=self._run,
            tenant=self._tenant,
            fence=self._fence,
            number=self._number,
            move=move,
            steps=(sent[0][0],) if len(sent) == 1 else tuple([step for step, _, _ in sent]),
            started_at=self.started_at,
            known=self._record.known if known is None and opens else known,
            lease_seconds=self._lease_clock.seconds,
            shares=self.spending is not None and self.spending.shares,
            trace=None if type(move) is Checkpoint else self.stored_trace(),
            **fields,
        )
        if self._transaction is not None:
            # In the context of the caller, whose variables the function may read.
            transact, begin = self._committer.transact, self._transaction.context.run
            begin(transact, item, self._transaction, self._answered, self._failed)
        else:
            self._committer.put(item, self._answered)

    def _answered(self, verdict: Verdict) -> None:
        if self._complete is not None and is_to_be_completed(verdict):
            # Until then the item counts as on its way: its news are learnt in the store's order.
            self._completing = self._world.spawn(self._completed(self._complete, verdict), "holdfast-read")
            return
        sent, self._sent = self._sent, None
        if self._transaction is not None:
            made, self._transaction = self._transaction.made, None
            self._effects.settle()
            sent = [*(sent or ()), *(() if made is None else (made,))]
        if self.spending is not None:
            self.spending.answered(verdict, [step for step, _, _ in sent or ()])
        if verdict.answer is Answer.APPLIED:
            self._lease_clock.committed(self._sent_at)
        if verdict.answer in {Answer.APPLIED, Answer.PAUSED}:
            self.started_at, self.pause_asked = None, False
        elif not is_done(verdict):
            self._refused = verdict
        self._on_verdict(verdict, sent or [])
        if self._idle is not None:
            self._wake(self._idle, verdict)
        elif (self._due or self._transactions) and verdict.answer is Answer.APPLIED:
            self._send_waiting()

    async def _completed(self, complete: Completes, verdict: Verdict) -> None:
        lease = Lease(run=self._run, tenant=self._tenant, fence=self._fence)
        self._answered(await complete(lease, self._record.known, verdict))

    def _wake(self, idle: asyncio.Future[Verdict], verdict: Verdict) -> None:
        self._idle = None
        if not idle.done():
            idle.set_result(verdict)


def is_done(verdict: Verdict) -> bool:
    """Return True when the item was written although the run does not go on here."""
    return verdict.answer is Answer.SEALED and not verdict.refused


def is_to_be_completed(verdict: Verdict) -> bool:
    """Return True when the run goes on and has waits that were too large for the verdict."""
    return verdict.more and verdict.answer is Answer.APPLIED and verdict.status is Status.LEASED


def _is_ready(one: Written) -> bool:
    """Return True for a failed try that is to be repeated."""
    return one[0].status is StepStatus.READY


def _no_trace() -> None:
    return None


def _for_nobody(_verdict: Verdict, _sent: list[Written]) -> None:
    return


def _in_place(step: StepWrite, delay: float, said: str) -> Retry:
    """Return the move for a failed try that is repeated at once: a retry that keeps lease and attempts."""
    return Retry(error=step.error, last_error=said, delay_seconds=delay, in_place=True, refund=True)
