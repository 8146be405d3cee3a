"""Holding a run: a worker claims it, writes under its fence, and keeps its lease alive."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, Protocol

from holdfast.bounds import BATCH_BYTES
from holdfast.records import Ask, Claim, Item, Lease, Loaded, Renewal, Verdict

BUDGET = "budget"  # by whom a run is paused that has reached it
START = -1  # before the first step: the seq of a plan's first row is 0
TRANSACTION_SECONDS = 5.0  # how long a function may keep the store's transaction to itself

Thread = Callable[[Callable[[], Any]], Awaitable[Any]]  # where plain code may block


class OwnEngine(NamedTuple):
    """An engine, pool or connect function of the user's, and what its plain functions are called by."""

    engine: Any
    thread: Thread


class Holding(Protocol):
    """The moves of a holder. A worker without the current lease changes nothing."""

    async def claim(self, ask: Ask) -> list[Claim]:
        """Take pending, due, not deleted runs of these types (and tenants), by priority (lower
        first), then run_at, then id; at most `limit`. One commit. Finding none writes nothing.

        Each becomes leased by `worker` until now + lease, attempt + 1, fence + 1, and comes back
        with all its steps by seq, as they are stored. Concurrent claimers get disjoint sets. A run that
        crashed c >= 1 times is passed over once the claim holds as many with >= k crashes as ask.crashed[k-1]
        allows, for any k <= c (above the list: its last; crashed=None: no limit). The cost does
        not grow with runs of other types or tenants, nor with finished, sleeping or later ones.
        The answer brings at most ask.bytes bytes of params, labels and steps, in order: a run that does not
        fit into what is left of them comes `unread`, without any, and `load` reads them; its trace comes
        along. A store may leave a run unread that would fit, if finding out means to read much. What the
        registry does not leave to ask.runtime, or a limit holds back, is passed over (see `Registry` and
        `Limits`, which say what else decides the order): the limits hold in this very commit. Trail: leased.
        """

    async def load(self, lease: Lease, after: int = START, bytes: int = BATCH_BYTES) -> Loaded:
        """Read large records of one run, for its holder. One page: the steps with seq > `after`, by seq, in
        at most `bytes` bytes, but at least one step.

        With after=START also params and labels. It reads under the fence: status leased, fence equal and
        lease_until >= now; if not, `cancelled` or `lost`, and nothing is read. It writes nothing. A wait that
        is settled between two pages moves behind the last seq and is read again there: of two steps with
        the same key the later one counts.
        """

    async def commit(self, batch: Sequence[Item]) -> list[Verdict]:
        """Apply what holders write: the single write path of a worker. Each item is fenced on its own;
        answers come in order; one commit holds all. An item that is refused does not touch the others. A
        batch holds at most one item of a run.

        What an item does is written in `machine/`:
        `machine.commit.answer`       repeats, and who is refused
        `machine.commit.write`        the order in which the parts of an item are applied
        `machine.steps.record_steps`  steps, waits and children
        `machine.chains.handed_on`    the next run of a chain, which a complete starts
        `machine.moves`               a pause that is asked for, at every move
        `machine.moves.checkpoint`, `machine.moves.advance`, `machine.moves.begin_plan`, `machine.moves.park`,
        `machine.moves.complete`, `machine.moves.fail`, `machine.moves.retry`, `machine.moves.release`: moves
        `machine.plans.strays`        which steps a move of a plan may bring
        `machine.ending.end`          how a run ends, whoever ends it
        `machine.moves.Writing.count`, `machine.moves.Writing.verdict`: attempts, and the answer

        Whoever commits events or a child's end calls `deliver` then; if the caller dies, a keeper's tick
        does.
        """

    async def transact(
        self,
        item: Item,
        work: Callable[[Any], Any],
        limit_seconds: float = TRANSACTION_SECONDS,
        on: OwnEngine | None = None,
    ) -> Verdict:
        """One checkpoint that `work` completes: given a connection to this database it answers the item with
        one more step, the last, and with the events and trail rows that belong to it. What it writes on the
        connection and the item are one commit, or neither is there.

        Repeat first, as in `commit`: `work` is not called again. Not held: `work` is not called. Held
        is asked again after `work`, in the same commit, so that whoever was overtaken meanwhile leaves
        nothing behind. What `work` raises rolls everything back and is raised here, as it is; so is
        whatever it leaves half done (a commit or rollback of its own: UsageError). Longer than
        limit_seconds: rolled back, StepTimeout. `work` is plain and may be called on another thread, or
        with traits.awaits_work what it answers is awaited; a call of this store from inside it is refused
        (UsageError): it would wait for itself or not be a part of it. A commit whose outcome is not known:
        Unavailable. A store without a database of its own: UsageError.
        `on`: the connection comes from there, begun and ended here; UsageError when it is of a kind that this
        store does not know, or leads to another database.
        """

    def renew(self, worker: str, leases: Sequence[Lease], lease_seconds: float) -> Renewal:
        """Extend leases to now + lease_seconds, in one write, each fenced like a commit's item.

        BLOCKING, and called from a thread of its own: a blocked event loop must not starve it.
        It goes before queued commits. Answers per lease: applied, cancelled or lost; whether it was renewed
        (not, if someone else keeps the row: then nothing of this lease is written); whether a pause is
        asked; waits settled with seq > known, or `more`, as in commit. started_at: `started` goes into the
        trail unless it is there for this fence. heartbeat: a row of it. progress: stored, if JSON.
        survived: as `machine.claiming.forgive` says.
        strays: runs leased to this worker which it did not name, with their fences; they are
        named, not changed. No leases and no strays: nothing is written.
        """
