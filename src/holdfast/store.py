"""The contract. What a store must offer; these docstrings are the law, and one suite tests them all.

Three laws hold for every verb: a change of state and its trail share one commit; a worker without
the current lease changes nothing; what was recorded is never run again. "Now" is the store's own
clock, in microseconds. Times, timers and deadlines are due at equality; leases end after it.
Every verb that changes something is all or nothing, after a crash at any instant. A verb that
raises `Unavailable` may or may not have been carried out: sending the same call again is safe.
Every verb refuses numbers, times and names that no store can keep (`stores/checked.py`), with `UsageError`:
nothing has changed then.

Trail rows that verbs write (`data` in brackets; `status` there is the run's status from then on):
created [type, steps: the names of a plan's] · leased [worker attempt fence] · started [at] ·
heartbeat [worker] ·
step_succeeded [step status?] · step_failed [step error] · waiting [step kind, status on the row that parks] ·
approval_opened [the same] · approved, rejected [step by comment status?] · step_added [step] ·
child_started [step child] ·
woken [step event? child? error?: the child failed, and with it the step; status?] ·
timed_out [step approved?: what a gate then says; status?, or no step: the run itself] ·
retried [attempt delay error step? status by?] · released [] · lease_expired [worker crashes] ·
paused [by] · resumed [by status] · cancelled [by, or step: a wait was given up] ·
rewound [step forgotten status by] · deleted [by, status when it was leased] · restored [by] · succeeded [] ·
failed [kind message] · log [message level …].
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from .errors import HoldfastError
from .records import (
    Ask,
    Chore,
    Claim,
    Definition,
    Emitted,
    Item,
    Lease,
    NewEvent,
    NewRun,
    Presence,
    Purged,
    Renewal,
    Run,
    Started,
    Step,
    Tenant,
    Ticked,
    Traits,
    Verdict,
)
from .rooms import Approvals, Catalog, Limits, Outbox, Recorded, Registry, Schedules

LIVE_SECONDS = 45.0  # a worker whose presence is older than this is taken for gone
EVENT_KEEP_SECONDS = 7 * 86400.0
TTL_SECONDS = 30 * 86400.0  # how long a finished run without a ttl of its own is kept
DELETED_SECONDS = 7 * 86400.0  # how long a deleted run can be restored
GONE_SECONDS = 7 * 86400.0  # how long a worker that is not seen any more is remembered
SLICE = 100  # how many runs or waits one commit of a chore touches at most
SLICES = 100  # how many commits one call of `deliver`, or one part of `tick`, makes at most
PURGE_SLICE = 100  # how many runs one slice of a purge removes at most
BUDGET = "budget"  # by whom a run is paused that has reached it
GIVE_UP_SECONDS = 3 * 86400.0  # how long a message that cannot be delivered is tried, from its first try on
TRANSACTION_SECONDS = 5.0  # how long a function may keep the store's transaction to itself

Thread = Callable[[Callable[[], Any]], Awaitable[Any]]  # where plain code may block


class OwnEngine(NamedTuple):
    """An engine, pool or connect function of the user's, and what its plain functions are called by."""

    engine: Any
    thread: Thread


class Store(Catalog, Recorded, Approvals, Outbox, Registry, Limits, Schedules, Protocol):
    """Writes. Batches first; each verb is one round trip and one commit unless it says otherwise.

    `traits` says what differs from store to store; everything else is the same on each.
    """

    traits: Traits

    async def open(self) -> None:
        """Connect; bring the schema up to date (forward only, under a lock, safe when many open
        at once). `SchemaMismatch` for another major version, `NotADatabase`, `Unavailable`."""

    async def close(self) -> None:
        """Finish what is under way and let go of everything. Twice is fine."""

    async def start(self, runs: Sequence[NewRun], connection: Any = None) -> list[Started | HoldfastError]:
        """Record intents; one commit for all; answers in order; an error is the answer for its item
        alone (`KeyReused`, `DuplicateRun`, `UnknownRun`, `UsageError`) and the others are started. Of
        several, one that meets somebody's open transaction may be answered `Unavailable`; alone it waits.

        Same tenant and key: the existing run's id with created=False when the digest is the same
        (two items of one call too), else KeyReused; the key is looked at before the id. A new run
        is pending, attempt 0, run_at as given, else now + delay, else now. Its fence is no smaller
        than any that this store has given so far: its id may be that of a run that was purged, whose
        holder must stay shut out. max_attempts, timeout and budget: as given, else the published
        definition's, else 3 and none. Trail: created.

        A parent that is unknown, deleted or another tenant's: UnknownRun(parent); key and id are looked at
        first. What becomes of the parent later changes nothing of the child, but for its cancels.

        A published plan: kind `plan`, and all its steps are rows, pending, seq from 0, key = name, each with
        its max_attempts (a task's: else the run's), topic, timeout, ask. Then the first becomes current, as
        in `advance`: the run is waiting when it is a gate, an awaited event or a sleep.

        `connection`: the caller's own, on this store's database, in his open transaction; the runs are
        part of it: rolled back, they never existed; nobody can claim them before it commits. It is
        used on the calling thread. UsageError when it is of a kind this store does not know, is not
        on this database, or has no transaction open (one that begins by itself is begun).
        """

    async def claim(self, ask: Ask) -> list[Claim]:
        """Take pending, due, not deleted runs of these types (and tenants), by priority (lower
        first), then run_at, then id; at most `limit`. One commit. Finding none writes nothing.

        Each becomes leased by `worker` until now + lease, attempt + 1, fence + 1, and comes back
        with all its steps by seq, as they are stored. Concurrent claimers get disjoint sets. A run that
        crashed c >= 1 times is passed over once the claim holds as many with >= k crashes as ask.crashed[k-1]
        allows, for any k <= c (above the list: its last; crashed=None: no limit). The cost does
        not grow with runs of other types or tenants, nor with finished, sleeping or later ones.
        The answer brings at most ask.bytes bytes of params, labels and steps, in order: a run that does not
        fit into what is left of them comes `unread`, without any, and `load` reads them. A store may leave a
        run unread that would fit, if finding out means to read much.
        What the registry does not leave to ask.runtime, or a limit holds back, is passed over (see `Registry`
        and `Limits`, which say what else decides the order): the limits hold in this very commit.
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
        is left alone); starts (an id or key that is there is left alone, and so is a start whose parent is
        refused as in `start`, unless that is this run's own parent; one with a parent_step takes this run's
        place in that step, if it names this run); outbox rows (an id that is there is left alone); the
        move. Events, starts and children are of this run's own tenant; another is refused with UsageError.
        Whoever commits events or a child's end calls `deliver` then; if he dies, a keeper's tick does.

        Steps. A new key gets the run's next seq. A key whose row is settled keeps its first
        value, which is returned in `kept`. A row that is `ready` takes the new outcome, and the
        next seq; cost adds up. A `waiting` row written as waiting again stays as it is (first
        due_at kept). CANCELLED gives a wait up: what it was settled with, unread, is
        undone and its event is free for another wait of the run; WAITING opens it anew, its `since`
        mark kept. SUCCEEDED writes step_succeeded, FAILED step_failed, a new WAITING `waiting`,
        CANCELLED `cancelled` with the step.
        An opened wait's due_at is as given, else now + delay_seconds, else none. An item that opens a
        wait looks at once, as park does: every open wait is settled that can be (BATCH_BYTES a commit).
        `child`: that run is started with the row, as a child of this one (parent, parent_step), its id in
        the row; trail child_started, before the row's own. A key that stands starts none. WAITING: `waits` of
        the row grows by one. SUCCEEDED: the child is only started, and no wait that could ever be settled.
        A gate that is opened writes approval_opened instead of `waiting`; its started_at is now.
        The run's cost grows by the cost of every step that was not kept. If that brings it from below its
        budget to it or above, a pause is asked for by BUDGET, unless one is.
        Progress = a step settled by this item (SUCCEEDED or FAILED, not kept): crashes 0, attempt 1;
        the move then adds or takes back its own. Touch the run row only where something differs.

        The moves (pause asked = pause_asked_by is set; then leaving or staying ends in `paused`
        with answer `paused`, trail: the move's own row if it has one, then `paused`; complete and
        fail win over a pause):
        checkpoint  leased still; at least one step. The lease is renewed when less than two
                    thirds of lease_seconds are left. Paused: attempt - 1.
        advance     a plan's step: exactly one, SUCCEEDED, which must be the current one, the first that has
                    not succeeded; else `lost`, and nothing changes. It keeps its seq. Then the next row is
                    current: a task leaves the run leased when in_place (attempt 1, lease as in checkpoint,
                    the row is in `settled`), else pending now (attempt 0, status in step_succeeded). A gate,
                    an awaited event or a sleep is opened: due_at by its timeout; look at once, as park does,
                    and what can be settled is, and the next row is current; else waiting, lease cleared,
                    attempt 0. No further row: as complete, with `result` if this step is the last row;
                    without one if rows behind it were settled here, as when they are later. A next row that
                    is not pending: as fail, kind `drift`. A pause asked: paused, and what comes next is done
                    at resume (succeeding and failing win).
                    With `plan` and no step: if the run has no rows, they are inserted as at start, kind
                    becomes `plan`, and the first becomes current; never in place: pending now, attempt - 1,
                    trail step_added for each, released. With rows: the same without inserting.
        park        look first: every open wait of the run is settled if it can be (see `tick`
                    and `deliver`). If any wait has been settled with seq > known (before or just
                    now), the run stays leased, applied, `settled` holds them. Otherwise waiting,
                    lease cleared, attempt - 1; waiting_on, wait_topic, deadline_at for people from
                    the first due open wait. Paused: resumes to waiting, or to pending when
                    something was settled. Of a plan: exactly one step, the current task, WAITING with a
                    topic, due_at or both; `waits` of its row grows by one, its `wake` is cleared. What
                    settles it (see `deliver`) puts it back to pending with its `wake`; settled at once, the
                    run stays leased, and the row is in `settled`: that is progress.
        complete    succeeded, result, finished_at, expires_at by ttl, lease cleared, open steps
                    (ready, waiting) cancelled, error cleared. Trail: succeeded.
        fail        failed, error, last_error, otherwise as complete. Trail: failed.
        However a plan's run ends without success, here or elsewhere, its current step ends with it: failed,
        with the run's error (trail step_failed before failed), unless it has failed already; cancelled when
        it is cancelled. Later ones stay pending.
        However a run ends that has a parent_step, it owes its parent the news: see `deliver`.
        retry       error, last_error. in_place: leased still, attempt + 1 unless refund, lease as
                    in checkpoint. Else pending at now + delay (now, if a wait has been settled
                    with seq > known), lease cleared, attempt - 1 if refund. Trail: retried, one for
                    each step that is READY; only a retry may write such steps. Of a plan: the current task,
                    if any; its row stays as it is, but for its cost.
        release     pending, run_at now, lease cleared, attempt - 1. Trail: released.
        Of a plan a move brings the current task in its own status, and nothing else: advance and park must
        (SUCCEEDED, WAITING), retry and fail may (READY, FAILED), release does not. Any other step is `lost`,
        and so are its checkpoints and completes: it goes on by advance alone.
        Attempts never go below 0. `known` given: `settled` lists the run's waits settled with
        seq > known, by seq, on every applied answer, and `seq` is its highest. Above NEWS_BYTES,
        `settled` is empty and `more` is true: `load` reads them. Of a plan's row that is large, `settled`
        says nothing: `steps` does.
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
        It goes before queued commits. Answers per lease: applied, cancelled or lost; whether a
        pause is asked; waits settled with seq > known, or `more`, as in commit. started_at: `started` goes
        into the trail unless it is there for this fence. heartbeat: a row of it. progress: stored, if JSON.
        strays: runs leased to this worker which it did not name, with their fences; they are
        named, not changed. No leases and no strays: nothing is written.
        """

    async def tick(
        self, limit: int = SLICE, *, wait_timeouts: bool = True, only: Chore | None = None
    ) -> Ticked:
        """A keeper's round; any number of keepers at once; finding nothing writes nothing.
        All parts, or `only` one; each in commits as those of `deliver`, until nothing is due, or SLICES of
        them: then `more` is set. Many runs are woken no faster than workers take them up, if any does.
        expire    leased, lease_until < now: crashes + 1, fence + 1, lease cleared, error of kind
                  lease_expired. At max_crashes failed (trail lease_expired, failed); a pause
                  asked: paused (lease_expired, paused); else pending at now + crash_delay(crashes).
        time_out  open runs with timeout_at <= now: failed, kind timeout, fence + 1 (trail
                  timed_out, failed [kind message]).
        lapse     open waits with due_at <= now of open runs: a sleep succeeds (woken). An event
                  wait takes the oldest available event stored at or before due_at (woken), else
                  fails with error kind timeout (timed_out). A gate is decided as its on_timeout says, with
                  timed_out in its output (trail timed_out). A plan's task that waits: as an event wait, but
                  it is pending again, wake {"reason": "timeout"}; an awaited event of a plan that fails
                  fails its run, kind timeout. wait_timeouts=False: plans' tasks and awaited events are left.
        deliver   as `deliver`.
        """

    async def emit(self, event: NewEvent, connection: Any = None) -> Emitted:
        """Record an event (durable from then on), then deliver it to its end, in commits as of `deliver`; a
        topic that somebody keeps locked for ten seconds is left to a keeper.
        `connection`: as in `start`. The event is part of the caller's transaction and is delivered by
        a keeper after it commits; `woken` is None.

        Same tenant and id while the first is kept: nothing is recorded, delivery is helped to its
        end, and the first number comes back with duplicate=True; this is looked at first. `run`
        unknown or another tenant's: UnknownRun; ended: IllegalMove with its status.
        """

    async def deliver(self, limit: int = SLICE) -> int:
        """Hand recorded events that are not delivered yet to those who wait, oldest event first,
        in commits of at most `limit` waits and BATCH_BYTES of copied values, but always one wait; may be
        repeated. Answers the number of runs woken. Events that take several commits go by turns; after
        SLICES commits, or 30 s, the next call, of any process, goes on where each event has come to.
        An event is available to a wait of a run: same tenant and topic; addressed to that run,
        or to none and recorded after the run was started; no receipt of that run for it; if the
        wait is since_now, recorded after the wait was opened. A wait takes the oldest available
        one. Stored after the wait's due_at: the wait lapses instead.
        Also carried out here, and first, is what runs owe since their own commit: the end of a child settles
        its parent's step, if that waits for this very run: succeeded, or failed with error kind child_failed,
        either way with output {"run", "status", "result" or "error" (the child's own)}; the cancels of
        children (`cancel`, `rewind`), theirs included; and the rest of a look that `commit` has cut short.
        Settling: the step takes the next seq, succeeded with output
        {"id","topic","at" (µs),"payload"} (a sleep: null) or failed with its error; a receipt
        (run, event, step key) is written. A waiting run becomes pending, run_at now, attempt and
        crashes 0; a pending one that backs off gets run_at now; a paused one will resume to
        pending; a leased one stays. The event's count of woken runs grows unless the run is
        paused or deleted. Trail: woken or timed_out, with `status` pending if the run was waiting.
        In a plan a settled step keeps its seq. A task is pending again with wake {"reason": "event", "event":
        the output above}; any other succeeds, and the next row is current, as in `advance`; run_at is not
        earlier than it was. Whenever a plan's wait is settled, attempt and crashes begin anew: 0, also in a
        pause, at whose end all that is done; 1 where a park finds it so.
        """

    async def cancel(self, run: UUID, tenant: Tenant, by: str = "", *, children: bool = True) -> Run:
        """Open: cancelled, fence + 1, lease cleared, finished_at, open steps cancelled, in one commit;
        finished steps keep their results. Cancelled: unchanged. Else IllegalMove. Answers the run as it is
        now. `UnknownRun` here as in every verb on one run: another tenant's is one, and ANY means all.
        children: that its open children (parent, and of its tenant) are cancelled too is recorded in this
        commit and carried out right after it, as `deliver` does."""

    async def pause(self, run: UUID, tenant: Tenant, by: str = "") -> Run:
        """Pending, waiting: paused at once (trail paused). Leased: asked, kept until a boundary (no trail
        yet). Paused: unchanged. Final: IllegalMove."""

    async def resume(self, run: UUID, tenant: Tenant, by: str = "") -> Run:
        """Paused: waiting while nothing has come for it, else pending with the run_at it had (now, when
        something came). Leased with a pause asked: withdrawn. Else IllegalMove. Trail: resumed (not for a
        withdrawn pause). A plan goes on by its rows: the current one is a task: pending; a gate, event or
        sleep: opened if it is not yet; there is none: succeeded; it was rejected or timed out: failed."""

    async def rewind(
        self, run: UUID, step: str, tenant: Tenant, by: str = "", *, children: bool = True
    ) -> Run:
        """Forget that step and all with a higher seq, and every cancelled one, with their
        receipts; the run is pending now (a paused one stays paused, resuming to pending), attempt
        and crashes 0, fence + 1, result, error, finished_at and a pause asked cleared, its
        timeout counted anew. Cost stays. `UnknownStep` names the steps there are. Trail: rewound.
        A plan's rows become pending again instead, as they were at the start, and the step becomes current
        (a gate is opened: waiting); one that has not begun is no step to rewind to.
        children: that the children of forgotten steps are cancelled is recorded in this commit and carried
        out right after it; the step starts another one. Outbox rows stay.
        """

    async def retry_run(self, run: UUID, tenant: Tenant, by: str = "") -> Run:
        """Failed: pending now with fresh attempts and crashes, fence + 1, error and finished_at
        cleared, timeout anew; the step that its error names, and cancelled steps, are forgotten
        with their receipts. Else IllegalMove. Trail: retried [by status forgotten]. A plan's failed step:
        as in rewind. Open children of forgotten steps are cancelled, as in rewind."""

    async def append_step(
        self, run: UUID, name: str, tenant: Tenant, max_attempts: int | None = None
    ) -> Step:
        """A further task behind the last row of an open plan run; max_attempts: else the run's. Ended:
        IllegalMove. No plan, or a step of that name: Conflict. But the last row, if it was added (the trail
        has step_added) with these attempts and is still pending, is answered as the first time, and nothing
        changes. Trail: step_added."""

    async def delete(self, run: UUID, tenant: Tenant, by: str = "") -> Run:
        """Hide a run from claims, lists and every verb but `restore`; its status stays, chores go on, and its
        key stays taken until `purge`. Leased: first given back as pending (paused, if that was asked for),
        fence + 1, attempt - 1, so that whoever is at it writes nothing more. Deleted: unchanged. Trail:
        deleted. A parent waits on, for it may be restored until it is purged."""

    async def restore(self, run: UUID, tenant: Tenant, by: str = "") -> Run:
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
        open wait for it, if it has ended or that is deleted. Else it was deleted and will never end: such a
        wait is settled in the same commit, as by `deliver`: failed, with status "gone". At most `limit` runs
        a slice, fewer when they have many rows or large values.
        Also: delivered events for no one run whose retention is over (never before EVENT_KEEP_SECONDS: the
        same id again must be known), and workers not seen for GONE_SECONDS.
        """

    async def publish(self, definitions: Sequence[Definition]) -> None:
        """Make workflows known by type. The same again writes nothing; a change is taken over. But a plan
        with other steps than those published under its type, or of another kind: Conflict, and none of them
        is written: its version is to be bumped."""

    async def present(self, presence: Presence) -> None:
        """Note that a worker is there, now."""

    async def absent(self, worker: str) -> None:
        """Note that a worker has gone."""

    def listen(self, hint: Callable[[], None]) -> Callable[[], None]:
        """Call `hint` on the caller's event loop whenever there may be news: work, an event, an
        end. Never trusted, never needed, may come too often. Answers the call that ends it."""
