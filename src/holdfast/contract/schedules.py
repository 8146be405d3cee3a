"""Schedules, and the verb that turns their times into runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from holdfast.records import Fired, Firing, Instant, NewSchedule, Schedule, Tenant

QUEUE_MAX = 1000  # the most times of one schedule that may be queued


class Schedules(Protocol):
    """A schedule belongs to a tenant, under a name. A store does not compute times: every write brings the
    next time along.
    """

    async def schedules(
        self,
        tenant: Tenant,
        name: str | None = None,
        limit: int = 100,
        after: tuple[str, str] | None = None,
    ) -> Sequence[Schedule]:
        """Schedules by tenant and name, or the one of that name, after the cursor `after` (tenant and name of
        the last one of the previous page). ANY: of all tenants.
        """

    async def schedule(self, new: NewSchedule) -> Schedule:
        """Make a schedule, or change the one of that tenant and name; return it as it is now. Its type may be
        without version: it is kept as it is, and the keeper says in each firing which version is started.

        It exists: its id, pause, queue and counts stay. With the same cron, zone and every, anchor_at and
        next_at stay too; and when nothing else differs either, nothing is written. Any change: rev + 1. From
        `allow` to another overlap: of the runs that were started till now, only the last one counts.
        """

    async def unschedule(self, name: str, tenant: str) -> bool:
        """Remove a schedule; return whether there was one. Its runs go on; its queued times are gone."""

    async def pause_schedule(self, name: str, tenant: str, by: str = "") -> Schedule:
        """Stop a schedule; it can still be fired by hand. Paused: unchanged. `UnknownSchedule`. rev + 1."""

    async def resume_schedule(self, name: str, rev: int, next_at: Instant | None, tenant: str) -> Schedule:
        """Paused: the schedule goes on, with next_at as its next time, rev + 1; Conflict when it is no longer
        at `rev`. Not paused: unchanged. `UnknownSchedule`.
        """

    async def due_schedules(self, limit: int = 100, after: UUID | None = None) -> Sequence[Schedule]:
        """Schedules that are not paused and have next_at <= now, or a queued time and no open run; by id,
        after the cursor `after`. A run of a schedule is open until its chain has ended or is deleted; a run
        that was started under `allow` does not count.
        """

    async def fire_schedule(self, firing: Firing) -> Fired:
        """Start the runs of some times of a schedule and move it on, in one commit. Only if the schedule is
        as it was seen: same id and rev, and not paused unless it is fired by hand; else `lost`, and nothing
        changes. So each time is fired once, however many keepers there are.

        rhythm  next_at as given; last_missed_at, if given. Then each time, in order. allow: it is started.
                skip: started while no run of the schedule is open, else skipped. queue: started while no
                run is open and no time is queued, else queued; skipped, if QUEUE_MAX times are.
        queue   exactly one, the first queued time, else `lost`: it leaves the queue and is started, unless
                a run of the schedule is open: then `lost`.
        hand    exactly one: it is started in any case; next_at stays.
        Starting: as `start`. A run whose id exists was started for this very time before, if it has the same
        tenant and the same labels `schedule` and `fire_at`: it is not started again, but is a run of the
        schedule. Else, except by hand: `taken` with these ids, and nothing changes. last_at, last_run and
        `fired` describe the last run that was started. rev + 1.
        """
