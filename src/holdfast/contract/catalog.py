"""Reads: what a store shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from holdfast.records import (
    RUNTIME,
    Definition,
    Due,
    Finding,
    Instant,
    Run,
    RunFilter,
    Stats,
    Step,
    Tenant,
    TrailEntry,
)


class Catalog(Protocol):
    """Reads. They change nothing, take no lock that a writer waits for, and show committed state.

    A page (of `list` and `trail`, and of `approvals`, `outbox`, `schedules`, `due_schedules`) holds at most
    `limit` records, and fewer when their values are large: it ends before the record that would bring it
    above `bounds.BATCH_BYTES`, but holds at least one. So only an empty page says that there are no more.
    """

    async def now(self) -> Instant:
        """The store's clock."""

    async def get(self, run: UUID, tenant: Tenant) -> Run | None:
        """The run, or None when it is unknown, deleted, or another tenant's. Each is shown as it is stored,
        with its `chain`, and the run that it has come to, `present`, at that same instant."""

    async def list(self, where: RunFilter, limit: int = 100, after: UUID | None = None) -> Sequence[Run]:
        """Runs by id, newest first, those after the cursor `after` (the last id of the page before).
        where.values=False: params_json is `null` and result_json None, whatever they are; it costs no more
        than if they were small."""

    async def steps(self, run: UUID, tenant: Tenant, *, largest: int | None = None) -> Sequence[Step]:
        """All steps by seq: in code runs the order in which their outcomes became known.
        In plan runs the plan's order, from 0. The current step of an open plan, while it is a task in the
        queue or at work, is shown with the run's status (`ready`, `running`), attempt and error.
        Read in parts of at most BATCH_BYTES: a step that is settled meanwhile is shown once, as it is then.
        An output, ask or wake of more than `largest` bytes as stored is not read: it is None, and the step
        says `left_out`. `UnknownRun` when there is no such run in that tenant."""

    async def trail(
        self,
        run: UUID | None,
        tenant: Tenant,
        types: Sequence[str] = (),
        after: int = 0,
        limit: int = 1000,
        between: tuple[Instant | None, Instant | None] = (None, None),
    ) -> Sequence[TrailEntry]:
        """What happened, oldest first, with seq > `after`; of one run or of all, of some types, at or
        after one instant and before another. Of a deleted run nothing, also where those of one tenant are
        asked for; over all runs of all tenants it is the audit, and shows deleted ones too."""

    async def waiting_on(self, topic: str, tenant: str) -> Sequence[UUID]:
        """The open runs that have an open wait on this topic, by id."""

    async def definitions(self) -> Sequence[Definition]:
        """Every published workflow, by type."""

    async def due(
        self,
        types: Sequence[str],
        tenants: Sequence[str] | None = None,
        *,
        wait_timeouts: bool = True,
        runtime: str = RUNTIME,
        besides: Sequence[tuple[UUID, int]] = (),
    ) -> Due:
        """When a claim for these types, and when each chore, may next find something (an instant at or before
        now: at once). What registry or limits hold back counts from when they let it go; what only a change
        of them or the end of another run sets free is not in sight. A chore: a lease that ends, a wait or run
        timeout that comes due, an event that is not delivered, a run that owes something, a schedule that
        is due (see `due_schedules`). wait_timeouts: as in `tick`. besides: id and rev of schedules that are
        left out."""

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
