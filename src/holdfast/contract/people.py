"""Moves of people: cancel, pause, resume, rewind, retry, priority, delete and restore."""

from __future__ import annotations

from typing import Protocol
from uuid import UUID

from holdfast.records import Instant, Run, Step, Tenant


class People(Protocol):
    """A person's moves. Each is one commit; `by` names the person, for the trail.

    In a chain (`machine.chains`), cancel, pause, resume and `decide` take the id of any stored run of the
    chain. They act on the present run and return it. The present run is found in the commit of the verb, so
    that no move reaches a run that has just gone on as another. rewind and retry_run of an earlier run:
    IllegalMove, which names the present one.

    unchanged_since: a run that has changed at this instant or later is refused with `ChangedSince`, in the
    commit of the verb, also where the verb would leave the run as it is. The change that counts is
    `updated_at`. For a leased run it is its claim, or the withdrawal of a pause, whichever is later: what its
    holder records meanwhile does not count, or a busy run could not be stopped so. UnknownRun comes before
    `ChangedSince`, a wrong status after it.
    """

    async def cancel(
        self,
        run: UUID,
        tenant: Tenant,
        by: str = "",
        *,
        children: bool = True,
        unchanged_since: Instant | None = None,
    ) -> Run:
        """Open: cancelled, fence + 1, lease cleared, finished_at, open steps cancelled, in one commit;
        finished steps keep their results. Cancelled: unchanged. Else IllegalMove, also for a run that has
        moved to another store, where it goes on. Returns the run as it is now. `UnknownRun` here as in every
        verb on one run, also for another tenant's run; ANY means all tenants.
        children: its open children (by parent, of its tenant) are cancelled too. That is recorded in this
        commit and carried out right after it, as `deliver` does.
        """

    async def pause(
        self, run: UUID, tenant: Tenant, by: str = "", *, unchanged_since: Instant | None = None
    ) -> Run:
        """Pending, waiting: paused at once (trail paused). Leased: the pause is asked for, and takes effect
        at a boundary (no trail yet). Paused: unchanged. Final: IllegalMove.
        """

    async def resume(
        self,
        run: UUID,
        tenant: Tenant,
        by: str = "",
        *,
        budget: int | None = None,
        unchanged_since: Instant | None = None,
    ) -> Run:
        """Paused: waiting while nothing has come for it, else pending with the run_at it had (now, when
        something came). Leased with a pause asked for: the pause is withdrawn. Else IllegalMove. Trail:
        resumed. A plan goes on by its rows. The current row is a task: pending; a
        gate, event or sleep: opened if it is not open yet; there is none: succeeded; it was rejected or timed
        out: failed.
        budget: the run's new budget, set in this commit (trail budget_set); at or below what it has spent:
        IllegalMove. With it any open run is taken; one that is not paused keeps its status. Without it, a
        paused run that its budget has stopped (cost >= budget, or paused by BUDGET) is refused: IllegalMove.
        """

    async def rewind(
        self,
        run: UUID,
        step: str | None,
        tenant: Tenant,
        by: str = "",
        *,
        children: bool = True,
        unchanged_since: Instant | None = None,
    ) -> Run:
        """Forget that step and all with a higher seq, and every cancelled one (None: all steps), with their
        receipts. The run is pending now (a paused run stays paused, and will resume to pending), attempt and
        crashes 0, fence + 1; result, error, finished_at and a pause that is asked for are cleared; its
        timeout starts again. Cost stays. `UnknownStep` names the steps there are. Trail: rewound.
        A plan's rows become pending again instead, as at the start, and the step becomes current (a gate is
        opened: waiting); a step that has not begun cannot be rewound to.
        children: the children of forgotten steps are cancelled. That is recorded in this commit and carried
        out right after it; the step starts another child. Outbox rows stay.
        """

    async def retry_run(
        self, run: UUID, tenant: Tenant, by: str = "", *, unchanged_since: Instant | None = None
    ) -> Run:
        """Failed: pending now with fresh attempts and crashes, fence + 1, error and finished_at cleared,
        timeout started again. The step that its error names, and cancelled steps, are forgotten with their
        receipts. Else IllegalMove. Trail: retried [by status forgotten]. A plan's failed step: as in rewind.
        Open children of forgotten steps are cancelled, as in rewind.
        """

    async def set_priority(self, run: UUID, priority: int, tenant: Tenant, by: str = "") -> Run:
        """Give an open run another priority: 0 to 999, lower is claimed first. Pending: it counts at once.
        Leased, waiting, paused: it counts when the run is in the queue again; the holder goes on. The same
        priority: unchanged. Ended: IllegalMove (move "reprioritize"). Trail: reprioritized.
        """

    async def append_step(
        self, run: UUID, name: str, tenant: Tenant, max_attempts: int | None = None
    ) -> Step:
        """Add a task behind the last row of an open plan run; max_attempts: else the run's. Ended:
        IllegalMove. No plan, or a step of that name: Conflict. But if the last row was added before (the
        trail has step_added) with these attempts, and is still pending, the first answer is returned and
        nothing changes. Trail: step_added.
        """

    async def delete(
        self, run: UUID, tenant: Tenant, by: str = "", *, unchanged_since: Instant | None = None
    ) -> Run:
        """Hide a run from claims, lists and every verb but `restore`. Its status stays, chores go on, and its
        key stays taken until `purge`. Leased: first given back as pending (paused, if a pause was asked for),
        fence + 1, attempt - 1, so that its holder can write nothing more. Deleted: unchanged. Trail: deleted.
        A parent goes on waiting, because the run may be restored until it is purged.
        In a chain all runs are deleted: the first run and the present one, which is returned, in this commit;
        the others right after it, as recorded in this commit and carried out by `deliver`.
        """

    async def restore(self, run: UUID, tenant: Tenant, by: str = "") -> Run:
        """Show a deleted run again, as it is by now. Not deleted: unchanged. Trail: restored. In a chain all
        runs, as in `delete`.
        """
