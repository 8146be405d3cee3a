"""Schedules, and the one verb that turns their times into runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from holdfast.records import Fired, Firing, Instant, NewSchedule, Schedule, Tenant

QUEUE_MAX = 1000  # how many times of one schedule may stand in line


class Schedules(Protocol):
    """A schedule belongs to a tenant, under a name. Which instants its rhythm means, a store does not know:
    whoever writes brings the next one along.
    """

    async def schedules(
        self,
        tenant: Tenant,
        name: str | None = None,
        limit: int = 100,
        after: tuple[str, str] | None = None,
    ) -> Sequence[Schedule]:
        """Schedules by tenant and name, or the one of that name, those after the cursor `after` (tenant and
        name of the last one of the page before). ANY: of all."""

    async def schedule(self, new: NewSchedule) -> Schedule:
        """Make it, or change the one of that tenant and name; answers it as it stands now.

        There already: its id, pause, line and counts stay. The same cron, zone and every: so do anchor_at
        and next_at, and when nothing else differs either, nothing is written. Any change: rev + 1. From
        `allow` to another overlap: of the runs that it has started till now, the last one counts."""

    async def unschedule(self, name: str, tenant: str) -> bool:
        """Whether there was one. Its runs go on; what stood in line is gone."""

    async def pause_schedule(self, name: str, tenant: str, by: str = "") -> Schedule:
        """It fires no more, save by hand. Paused: unchanged. `UnknownSchedule`. rev + 1."""

    async def resume_schedule(self, name: str, rev: int, next_at: Instant | None, tenant: str) -> Schedule:
        """Paused: it goes on, with next_at as its next time, rev + 1; Conflict when it is no longer at `rev`.
        Not paused: unchanged. `UnknownSchedule`."""

    async def due_schedules(self, limit: int = 100, after: UUID | None = None) -> Sequence[Schedule]:
        """Those not paused that have next_at <= now, or a time in line and no open run; by id, those after
        the cursor `after`. A run of a schedule is open until its chain has ended, or while it is not deleted;
        one that was started under `allow` does not count."""

    async def fire_schedule(self, firing: Firing) -> Fired:
        """Start the runs of some times of a schedule and move it on, in one commit. Only if the schedule is
        the one that was seen: same id and rev, and not paused unless it is fired by hand; else `lost`, and
        nothing changes. So each time is fired once, however many keepers there are.

        rhythm  next_at as given; last_missed_at, if given. Then each time, in order. allow: it is started.
                skip: started while no run of the schedule is open, else skipped. queue: started while none is
                open and none waits, else it waits in line; skipped, if QUEUE_MAX do.
        queue   exactly one, the first in line, else `lost`: it leaves the line and is started, unless a run
                of the schedule is open: then `lost`.
        hand    exactly one: it is started, whatever else; next_at stays.
        Starting: as `start`. A run whose id is there was started for this very time before, if it has the
        same tenant and the same labels `schedule` and `fire_at`: it is not started again, but is a run of the
        schedule. Else, save by hand: `taken` with these ids, and nothing changes. last_at, last_run and
        `fired` tell of the last one started. rev + 1.
        """
