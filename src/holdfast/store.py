"""The contract. What a store must offer; these docstrings are the law, and one suite tests them all.

Three laws hold for every verb: a change of state and its trail share one commit; a worker without
the current lease changes nothing; what was recorded is never run again. "Now" is the store's own
clock, in microseconds. Times, timers and deadlines are due at equality; leases end after it.
Every verb that changes something is all or nothing, after a crash at any instant. A verb that
raises `Unavailable` may or may not have been carried out: sending the same call again is safe.

Trail rows that verbs write (`data` in brackets; `status` there is the run's status from then on):
created [type] · leased [worker attempt fence] · started [at] · heartbeat [worker] ·
step_succeeded [step] · step_failed [step error] · waiting [step kind, status on the row that parks] ·
woken [step event status?] · timed_out [step status?, or no step: the run itself] ·
retried [attempt delay error step? status by?] · released [] · lease_expired [worker crashes] ·
paused [by] · resumed [by status] · cancelled [by, or step: a wait was given up] ·
rewound [step forgotten status by] · deleted [by, status when it was leased] · restored [by] · succeeded [] ·
failed [kind message] · log [message level …].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol
from uuid import UUID

from .errors import HoldfastError
from .records import (
    Ask,
    Claim,
    Definition,
    Due,
    Emitted,
    Finding,
    Instant,
    Item,
    Lease,
    NewEvent,
    NewRun,
    Presence,
    Purged,
    Renewal,
    Run,
    RunFilter,
    Started,
    Stats,
    Step,
    Ticked,
    TrailEntry,
    Verdict,
)

LIVE_SECONDS = 45.0  # a worker whose presence is older than this is taken for gone
EVENT_KEEP_SECONDS = 7 * 86400.0
TTL_SECONDS = 30 * 86400.0  # how long a finished run without a ttl of its own is kept
DELETED_SECONDS = 7 * 86400.0  # how long a deleted run can be restored
GONE_SECONDS = 7 * 86400.0  # how long a worker that is not seen any more is remembered
SLICE = 500  # how many runs one commit of a chore touches at most
PURGE_SLICE = 100  # how many runs one slice of a purge removes at most
TRANSACTION_SECONDS = 5.0  # how long a function may keep the store's transaction to itself


class Catalog(Protocol):
    """Reads. They change nothing, take no lock that a writer waits for, and show committed state."""

    async def now(self) -> Instant:
        """The store's clock."""

    async def get(self, run: UUID, tenant: str | None = None) -> Run | None:
        """The run, or None when it is unknown, deleted, or another tenant's."""

    async def list(self, where: RunFilter, limit: int = 100, after: UUID | None = None) -> Sequence[Run]:
        """Runs by id, newest first, those after the cursor `after` (the last id of the page before)."""

    async def steps(self, run: UUID, tenant: str | None = None) -> Sequence[Step]:
        """All steps by seq: in code runs the order in which their outcomes became known.
        `UnknownRun` when there is no such run in that tenant."""

    async def trail(
        self,
        run: UUID | None = None,
        tenant: str | None = None,
        types: Sequence[str] = (),
        after: int = 0,
        limit: int = 1000,
        between: tuple[Instant | None, Instant | None] = (None, None),
    ) -> Sequence[TrailEntry]:
        """What happened, oldest first, with seq > `after`; of one run or of all, of some types, at or
        after one instant and before another. Of a deleted run nothing; over all runs it is the audit,
        and shows deleted ones too."""

    async def waiting_on(self, topic: str, tenant: str = "default") -> Sequence[UUID]:
        """The open runs that have an open wait on this topic, by id."""

    async def definitions(self) -> Sequence[Definition]:
        """Every published workflow, by type."""

    async def due(self, types: Sequence[str], tenants: Sequence[str] | None = None) -> Due:
        """When a claim for these types, and when a chore, may next find something (an instant
        at or before now: at once). A chore: a lease that ends, a wait or run timeout that
        comes due, an event that is not delivered."""

    async def stats(self) -> Stats:
        """Counts by status, workers present in the last LIVE_SECONDS, what nobody can take."""

    async def stuck(self, limit: int = 100) -> Sequence[UUID]:
        """Open runs, by id, that have no way on: pending without run_at, leased without lease_until,
        waiting without an open wait that has a time, a topic, a gate or a child, paused with nothing
        to resume to. No move leaves one behind: a check-up looks for what should not be."""

    async def checkup(self) -> Sequence[Finding]:
        """What of the store's own settings and state matters to durability and speed, each as a
        finding: well, or what is wrong and how to mend it. It writes nothing and does not scan all
        runs; it may try whether others could write."""


class Store(Catalog, Protocol):
    """Writes. Batches first; each verb is one round trip and one commit unless it says otherwise."""

    async def open(self) -> None:
        """Connect; bring the schema up to date (forward only, under a lock, safe when many open
        at once). `SchemaMismatch` for another major version, `NotADatabase`, `Unavailable`."""

    async def close(self) -> None:
        """Finish what is under way and let go of everything. Twice is fine."""

    async def start(self, runs: Sequence[NewRun], connection: Any = None) -> list[Started | HoldfastError]:
        """Record intents; one commit for all; answers in order; an error is the answer for its
        item alone (`KeyReused`, `DuplicateRun`) and the others are started.

        Same tenant and key: the existing run's id with created=False when the digest is the same
        (two items of one call too), else KeyReused; the key is looked at before the id. A new run
        is pending, attempt 0, run_at as given, else now + delay, else now. Its fence is no smaller
        than any that this store has given so far: its id may be that of a run that was purged, whose
        holder must stay shut out. max_attempts and timeout: as given, else the published definition's,
        else 3 and none.
        Trail: created.

        `connection`: the caller's own, on this store's database, in his open transaction; the runs are
        part of it: rolled back, they never existed; nobody can claim them before it commits. It is
        used on the calling thread. UsageError when it is of a kind this store does not know, is not
        on this database, or has no transaction open (one that begins by itself is begun).
        """

    async def claim(self, ask: Ask) -> list[Claim]:
        """Take pending, due, not deleted runs of these types (and tenants), by priority (lower
        first), then run_at, then id; at most `limit`. One commit. Finding none writes nothing.

        Each becomes leased by `worker` until now + lease, attempt + 1, fence + 1, and comes back
        with all its steps by seq. Concurrent claimers get disjoint sets. A run that crashed c >= 1
        times is passed over once the claim holds as many with >= k crashes as ask.crashed[k-1]
        allows, for any k <= c (above the list: its last; crashed=None: no limit). The cost does
        not grow with runs of other types or tenants, nor with finished, sleeping or later ones.
        Trail: leased.
        """

    async def commit(self, batch: Sequence[Item]) -> list[Verdict]:
        """The one door for everything a holder writes. Each item is fenced on its own; answers in
        order; one commit for all. One item that is refused does not touch the others. At most
        one item of a run in a batch.

        Repeat first: an item whose (fence, number) was already applied (number <= the number of
        the row's last recorded commit under the same fence, or its steps stand under the same
        pair) is answered as the first time and changes nothing, also after the run has moved on,
        until another holder has written. For a repeat `settled` is looked up anew.

        Held means: status leased, fence equal, lease_until >= now. If not: `cancelled` when the
        run is cancelled, else `lost` (unknown runs too); nothing changes.

        Then, in this order: `started` into the trail if started_at is given and no renewal has
        written it for this fence; `trail` rows; steps; events into the inbox (an id that is there
        is left alone); starts (an id or key that is there is left alone); the move. Whoever
        commits events calls `deliver` afterwards; if he dies, a keeper's tick does.

        Steps. A new key gets the run's next seq. A key whose row is settled keeps its first
        value, which is returned in `kept`. A row that is `ready` takes the new outcome, and the
        next seq; cost adds up. A `waiting` row written as waiting again stays as it is (first
        due_at kept). CANCELLED gives a wait up: what it was settled with, unread, is
        undone and its event is free for another wait of the run; WAITING opens it anew, its `since`
        mark kept. SUCCEEDED writes step_succeeded, FAILED step_failed, a new WAITING `waiting`,
        CANCELLED `cancelled` with the step.
        An opened wait's due_at is as given, else now + delay_seconds, else none. An item that opens a
        wait looks at once, as park does: every open wait of the run is settled if it can be.
        The run's cost grows by the cost of every step that was not kept.
        Progress = a step settled by this item (SUCCEEDED or FAILED, not kept): crashes 0, attempt 1;
        the move then adds or takes back its own. Touch the run row only where something differs.

        The moves (pause asked = pause_asked_by is set; then leaving or staying ends in `paused`
        with answer `paused`, trail: the move's own row if it has one, then `paused`; complete and
        fail win over a pause):
        checkpoint  leased still; at least one step. The lease is renewed when less than two
                    thirds of lease_seconds are left. Paused: attempt - 1.
        park        look first: every open wait of the run is settled if it can be (see `tick`
                    and `deliver`). If any wait has been settled with seq > known (before or just
                    now), the run stays leased, applied, `settled` holds them. Otherwise waiting,
                    lease cleared, attempt - 1; waiting_on, wait_topic, deadline_at for people from
                    the first due open wait. Paused: resumes to waiting, or to pending when
                    something was settled.
        complete    succeeded, result, finished_at, expires_at by ttl, lease cleared, open steps
                    (ready, waiting) cancelled, error cleared. Trail: succeeded.
        fail        failed, error, last_error, otherwise as complete. Trail: failed.
        retry       error, last_error. in_place: leased still, attempt + 1 unless refund, lease as
                    in checkpoint. Else pending at now + delay (now, if a wait has been settled
                    with seq > known), lease cleared, attempt - 1 if refund. Trail: retried, one for
                    each step that is READY; only a retry may write such steps.
        release     pending, run_at now, lease cleared, attempt - 1. Trail: released.
        Attempts never go below 0. `known` given: `settled` lists the run's waits settled with
        seq > known, by seq, on every applied answer, and `seq` is its highest.
        """

    async def transact(
        self, item: Item, work: Callable[[Any], Item], limit_seconds: float = TRANSACTION_SECONDS
    ) -> Verdict:
        """One checkpoint that `work` completes: given a connection to this database it answers the item with
        one more step, the last, and with the events and trail rows that belong to it. What it writes on the
        connection and the item are one commit, or neither is there.

        Repeat first, as in `commit`: `work` is not called again. Not held: `work` is not called. Held
        is asked again after `work`, in the same commit, so that whoever was overtaken meanwhile leaves
        nothing behind. What `work` raises rolls everything back and is raised here, as it is; so is
        whatever it leaves half done (a commit or rollback of its own: UsageError). Longer than
        limit_seconds: rolled back, StepTimeout. `work` is plain and may be called on another thread; a
        call of this store from inside it is refused with UsageError, it would wait for itself.
        A store without a database of its own: UsageError.
        """

    def renew(self, worker: str, leases: Sequence[Lease], lease_seconds: float) -> Renewal:
        """Extend leases to now + lease_seconds, in one write, each fenced like a commit's item.

        BLOCKING, and called from a thread of its own: a blocked event loop must not starve it.
        It goes before queued commits. Answers per lease: applied, cancelled or lost; whether a
        pause is asked; waits settled with seq > known. started_at: `started` goes into the
        trail unless it is there for this fence. heartbeat: a heartbeat row. progress: stored.
        strays: runs leased to this worker which it did not name, with their fences; they are
        named, not changed. No leases and no strays: nothing is written.
        """

    async def tick(self, limit: int = SLICE) -> Ticked:
        """A keeper's round; any number of keepers at once; finding nothing writes nothing.
        Each part in commits of at most `limit` runs, until nothing is due.

        expire    leased, lease_until < now: crashes + 1, fence + 1, lease cleared, error of kind
                  lease_expired. At max_crashes failed (trail lease_expired, failed); a pause
                  asked: paused (lease_expired, paused); else pending at now + crash_delay(crashes).
        time_out  open runs with timeout_at <= now: failed, kind timeout, fence + 1 (trail
                  timed_out, failed [kind message]).
        lapse     open waits with due_at <= now of open runs: a sleep succeeds (woken). An event
                  wait takes the oldest available event stored at or before due_at (woken), else
                  fails with error kind timeout (timed_out).
        deliver   as `deliver`.
        """

    async def emit(self, event: NewEvent, connection: Any = None) -> Emitted:
        """Record an event, then deliver it. Durable when it returns.

        `connection`: as in `start`. The event is part of the caller's transaction and is delivered by
        a keeper after it commits; `woken` is None.

        Same tenant and id while the first is kept: nothing is recorded, delivery is helped to its
        end, and the first number comes back with duplicate=True; this is looked at first. `run`
        unknown or another tenant's: UnknownRun; ended: IllegalMove with its status.
        """

    async def deliver(self, limit: int = SLICE) -> int:
        """Hand recorded events that are not delivered yet to those who wait, oldest event first,
        in commits of at most `limit` waits; may be repeated. Answers the number of runs woken.

        An event is available to a wait of a run: same tenant and topic; addressed to that run,
        or to none and recorded after the run was started; no receipt of that run for it; if the
        wait is since_now, recorded after the wait was opened. A wait takes the oldest available
        one. Stored after the wait's due_at: the wait lapses instead.
        Settling: the step takes the next seq, succeeded with output
        {"id","topic","at" (µs),"payload"} (a sleep: null) or failed with its error; a receipt
        (run, event, step key) is written. A waiting run becomes pending, run_at now, attempt and
        crashes 0; a pending one that backs off gets run_at now; a paused one will resume to
        pending; a leased one stays. The event's count of woken runs grows unless the run is
        paused or deleted. Trail: woken or timed_out, with `status` pending if the run was waiting.
        """

    async def cancel(self, run: UUID, tenant: str | None = None, by: str = "") -> Run:
        """Open: cancelled, fence + 1, lease cleared, finished_at, open steps cancelled, in one
        commit; finished steps keep their results. Cancelled: unchanged. Else IllegalMove.
        `UnknownRun` here as in every verb on one run. Answers the run as it is now."""

    async def pause(self, run: UUID, tenant: str | None = None, by: str = "") -> Run:
        """Pending, waiting: paused at once (trail paused). Leased: asked, kept until a boundary
        (no trail yet). Paused: unchanged. Final: IllegalMove."""

    async def resume(self, run: UUID, tenant: str | None = None, by: str = "") -> Run:
        """Paused: waiting while nothing has come for it, else pending with the run_at it had
        (now, when something came). Leased with a pause asked: withdrawn. Else IllegalMove.
        Trail: resumed (not for a withdrawn pause)."""

    async def rewind(self, run: UUID, step: str, tenant: str | None = None, by: str = "") -> Run:
        """Forget that step and all with a higher seq, and every cancelled one, with their
        receipts; the run is pending now (a paused one stays paused, resuming to pending), attempt
        and crashes 0, fence + 1, result, error, finished_at and a pause asked cleared, its
        timeout counted anew. Cost stays. `UnknownStep` names the steps there are. Trail: rewound.
        """

    async def retry_run(self, run: UUID, tenant: str | None = None, by: str = "") -> Run:
        """Failed: pending now with fresh attempts and crashes, fence + 1, error and finished_at
        cleared, timeout anew; the step that its error names, and cancelled steps, are forgotten
        with their receipts. Else IllegalMove. Trail: retried [by status forgotten]."""

    async def delete(self, run: UUID, tenant: str | None = None, by: str = "") -> Run:
        """Hide a run from claims, lists and every verb but `restore`; its status stays, chores go on,
        and its key stays taken until `purge`. Leased: first given back as pending (paused, if that was
        asked for), fence + 1, attempt - 1, so that whoever is at it writes nothing more.
        Deleted: unchanged. Trail: deleted."""

    async def restore(self, run: UUID, tenant: str | None = None, by: str = "") -> Run:
        """Show a deleted run again, as it is by now. Not deleted: unchanged. Trail: restored."""

    async def purge(
        self,
        ttl_seconds: float = TTL_SECONDS,
        deleted_seconds: float = DELETED_SECONDS,
        limit: int = PURGE_SLICE,
    ) -> Purged:
        """Remove for good one slice of what has expired, in one short commit (several, for a run with
        very many rows: unseen first, its own row last); call again until it answers nothing. Finding
        nothing writes nothing.

        A finished run expires at its expires_at, else ttl_seconds after its end; a deleted one, open or
        not, deleted_seconds after it was deleted; an open one that is not deleted never. With it go
        its steps, trail, receipts, the events addressed to it and its outbox rows; its key is free.
        It stays while an outbox row of it is not delivered or dead, and while its open parent has an
        open wait for a child. At most `limit` runs a slice, fewer when they have many rows.
        Also: delivered events for no one run whose retention is over (never before EVENT_KEEP_SECONDS: the
        same id again must be known), and workers not seen for GONE_SECONDS.
        """

    async def publish(self, definitions: Sequence[Definition]) -> None:
        """Make workflows known by type. The same again writes nothing; a change is taken over."""

    async def present(self, presence: Presence) -> None:
        """Note that a worker is there, now."""

    async def absent(self, worker: str) -> None:
        """Note that a worker has gone."""

    def listen(self, hint: Callable[[], None]) -> Callable[[], None]:
        """Call `hint` on the caller's event loop whenever there may be news: work, an event, an
        end. Never trusted, never needed, may come too often. Answers the call that ends it."""
