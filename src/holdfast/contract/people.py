"""What people do to a run."""

from __future__ import annotations

from typing import Protocol
from uuid import UUID

from holdfast.records import Run, Step, Tenant


class People(Protocol):
    """A person's moves. Each is one commit; `by` is who it was, for the trail.

    Of a chain (`machine.chains`) cancel, pause, resume and `decide`, by the id of any of its runs that is
    stored, act on the present run, and answer it: that is found in the very commit of the verb, so that no
    move lands on a run which has just gone on as another. rewind and retry_run of an earlier run:
    IllegalMove, which names the present one.
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
        self, run: UUID, step: str | None, tenant: Tenant, by: str = "", *, children: bool = True
    ) -> Run:
        """Forget that step and all with a higher seq, and every cancelled one (None: all steps), with their
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

    async def set_priority(self, run: UUID, priority: int, tenant: Tenant, by: str = "") -> Run:
        """Give an open run another priority: 0 to 999, lower is claimed first. Pending: it counts at once.
        Leased, waiting, paused: it counts when the run is in the queue again; whoever holds the run goes on.
        The same priority: unchanged. Ended: IllegalMove (move "reprioritize"). Trail: reprioritized."""

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
        deleted. A parent waits on, for it may be restored until it is purged.
        Of a chain the whole of it: the first run and the present one, which is answered, in this commit; that
        the others are too is recorded there and carried out right after it, as `deliver` does."""

    async def restore(self, run: UUID, tenant: Tenant, by: str = "") -> Run:
        """Show a deleted run again, as it is by now. Not deleted: unchanged. Trail: restored. Of a chain the
        whole of it, as in `delete`."""
