"""Holding of runs: a worker claims a run, writes under its fence, and keeps its lease alive."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from holdfast.bounds import BATCH_BYTES
from holdfast.records import Ask, Claim, Item, Lease, LeaseState, Loaded, Renewal, Running, Verdict

BUDGET = "budget"  # who pauses a run that has reached its budget
START = -1  # before the first step: the seq of a plan's first row is 0
RUNNING_MAX, RUNNING_BYTES = 20, 8192  # steps of one run that are shown while they run; bytes of their names
TRANSACTION_SECONDS = 5.0  # how long a function may have the store's transaction

Thread = Callable[[Callable[[], Any]], Awaitable[Any]]  # where sync code may block


class OwnEngine(NamedTuple):
    """The user's own engine, pool or connect function, and the thread that calls its sync functions."""

    engine: Any
    thread: Thread


class Holding(Protocol):
    """The moves of a holder. A worker without the current lease changes nothing."""

    async def claim(self, ask: Ask) -> list[Claim]:
        """Take pending, due runs of these types (and tenants) that are not deleted: by priority (lower
        first), then run_at, then id; at most `limit`. One commit. Finding none writes nothing.

        Each becomes leased by `worker` until now + lease, attempt + 1, fence + 1, and is returned with all
        its steps by seq, as they are stored, and its run_at. Concurrent claims get disjoint sets. A run that
        crashed c >= 1 times is left out once the claim holds as many runs with >= k crashes as
        ask.crashed[k-1] allows, for any k <= c (above the list: its last value; crashed=None: no limit). The
        cost does not grow with runs of other types or tenants, nor with finished, sleeping or later ones.
        The answer has at most ask.bytes bytes of params, labels and steps, in order. A run that does not fit
        into the rest comes `unread`, without these values but with its trace; `load` reads them. A store may
        leave a run unread that would fit, if measuring it means reading much. Runs that the registry does not
        give to ask.runtime, or that a limit holds back, are left out (`Registry` and `Limits` say so, and
        what else decides the order). The limits hold in this very commit. Trail: leased.
        """

    async def load(self, lease: Lease, after: int = START, bytes: int = BATCH_BYTES) -> Loaded:
        """Read large records of one run, for its holder. One page: the steps with seq > `after`, by seq, in
        at most `bytes` bytes, but at least one step.

        With after=START also params and labels. The read is fenced: status leased, fence equal and
        lease_until >= now; otherwise the answer is `cancelled` or `lost`, and nothing is read. It writes
        nothing. A wait that is settled between two pages moves behind the last seq and is read again there:
        of two steps with the same key the later one counts.
        """

    async def commit(self, batch: Sequence[Item]) -> list[Verdict]:
        """Apply what holders write: the single write path of a worker. Each item is fenced on its own.
        Answers come in order. One commit holds all. A refused item does not affect the others. A batch holds
        at most one item of a run.

        `machine/` says what an item does:
        `machine.commit.answer`       repeats, and refusals
        `machine.commit.write`        the order in which the parts of an item are applied
        `machine.steps.record_steps`  steps, waits and children
        `machine.chains.handed_on`    the next run of a chain, which a complete starts
        `machine.moves`               a pause that is asked for, at every move
        `machine.moves.checkpoint`, `machine.moves.advance`, `machine.moves.begin_plan`, `machine.moves.park`,
        `machine.moves.complete`, `machine.moves.fail`, `machine.moves.retry`, `machine.moves.release`: moves
        `machine.plans.strays`        which steps a move of a plan may bring
        `machine.ending.end`          how a run ends, whoever ends it
        `machine.moves.Writing.leave` the end of a lease, and the trace that the run keeps
        `machine.moves.Writing.count`, `machine.moves.Writing.verdict`: attempts, and the answer

        After a commit of events or of a child's end the caller calls `deliver`; if the caller dies, a
        keeper's tick does it.
        """

    async def transact(
        self,
        item: Item,
        work: Callable[[Any], Any],
        limit_seconds: float = TRANSACTION_SECONDS,
        on: OwnEngine | None = None,
    ) -> Verdict:
        """Commit one checkpoint together with the writes of `work`. `work` gets a connection to this database
        and returns the item with one more step, the last, and with the events and trail rows that belong to
        it. Its writes on the connection and the item are one commit, or neither is there.

        A repeat, as in `commit`, does not call `work` again. A caller that does not hold the run: `work` is
        not called. The lease is checked again after `work`, in the same commit, so that a holder that lost it
        meanwhile leaves nothing behind. What `work` raises rolls everything back and is raised here
        unchanged. Ending the transaction inside `work` is a UsageError, and rolled back. Longer than
        limit_seconds: rolled back, StepTimeout. `work` is a sync function and may be called on another
        thread; with traits.awaits_work its result may be awaited. A call of this store from inside `work` is
        refused (UsageError): it would wait for itself, or not be part of the transaction. A commit whose
        outcome is unknown: Unavailable. A store without a database: UsageError.
        `on`: the connection comes from this engine; the transaction is begun and ended here. UsageError when
        this store does not know that kind of engine, or when it leads to another database.
        """

    def renew(self, worker: str, leases: Sequence[Lease], lease_seconds: float) -> Renewal:
        """Extend leases to now + lease_seconds, in one write, each fenced like an item of a commit.

        BLOCKING, and called from a thread of its own: a blocked event loop must not delay it. It goes before
        queued commits. The answer says for each lease: applied, cancelled or lost; whether it was renewed
        (not, if another session keeps the row: then nothing of this lease is written); whether a pause is
        asked for; the waits settled with seq > known, or `more`, as in commit. started_at: `started` is
        written to the trail unless it is there for this fence. heartbeat: one such row. progress: stored, if
        it is JSON. survived: see `machine.claiming.forgive`.
        strays: runs leased to this worker that it did not name, with their fences; they are not changed. No
        leases and no strays: nothing is written.
        """

    async def lease_states(self, leases: Sequence[tuple[UUID, int]]) -> list[LeaseState]:
        """Read whether each lease (a run and its fence) still holds: applied, cancelled or lost, in order;
        and whether a pause is asked for. It writes and renews nothing.

        A worker calls it when `listen` says that somebody has moved a leased run.
        """

    async def show_running(self, worker: str, rows: Sequence[Running]) -> list[bool]:
        """Show people the steps that this worker executes now: `get` has them in `running`. One commit.

        Each row is fenced like an item of a commit, and replaces what the run showed before. At most
        RUNNING_MAX steps for a run, with RUNNING_BYTES bytes of names. The answer says for each row whether
        it was written; a row that is not fenced, or that another session keeps, changes nothing.
        started_at: as in `renew`. A second call with the same rows changes nothing.
        `get` shows a step only while the run is leased under this fence and the try has no record. The rows
        go with the run.
        """
