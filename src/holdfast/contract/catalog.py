"""Reads: everything that a store shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from holdfast.records import (
    RUNTIME,
    ChildCounts,
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

LABELS_MAX = 100  # the labels of a run that lists look at
LABEL_MAX = 255  # characters of a label's name and value in a filter
CHILDREN_COUNTED = 10_000  # children of a run that are counted


class Catalog(Protocol):
    """Reads. They change nothing, take no lock that a writer waits for, and show committed state.

    A page (of `list` and `trail`, and of `approvals`, `outbox`, `schedules`, `due_schedules`) holds at most
    `limit` records, and fewer when their values are large: it ends before the record that would bring it
    above `bounds.BATCH_BYTES`, but holds at least one. So only an empty page says that there are no more.
    """

    async def now(self) -> Instant:
        """The store's clock."""

    async def get(self, run: UUID, tenant: Tenant) -> Run | None:
        """The run, or None when it is unknown, deleted, or another tenant's. It is returned as it is stored,
        with its `chain`, and with the present run of the chain, `present`, at that same instant.
        """

    async def list(self, where: RunFilter, limit: int = 100, after: UUID | None = None) -> Sequence[Run]:
        """Runs by id, newest first, after the cursor `after` (the last id of the previous page). A run is
        listed when it matches all fields of the filter. An SQL store takes the ids from the index of one
        filter, and checks at most some thousands of runs in one statement. When no index is selective, it
        needs several statements to find one run: a page may be short, and still only an empty one is the end.
        where.labels: the first LABELS_MAX labels of a run count. where.error: by `Run.fingerprint`; on a
        sealed store only the whole of it, and for one tenant. where.values=False: params_json is `null` and
        result_json None, whatever they are; then large values cost no more than small ones.
        """

    async def children(
        self, runs: Sequence[UUID], tenant: Tenant, most: int = CHILDREN_COUNTED
    ) -> Sequence[ChildCounts]:
        """The children of these runs, counted by status; at most `most` of each run, and `more` when it has
        more of them. Deleted children do not count. A run without children, and a run that is unknown,
        deleted or another tenant's, is left out; the order is that of `runs`.
        """

    async def steps(self, run: UUID, tenant: Tenant, *, largest: int | None = None) -> Sequence[Step]:
        """All steps by seq: in code runs the order in which their outcomes became known. In plan runs the
        plan's order, from 0. The current step of an open plan, while it is a task in the queue or running,
        has the run's status (`ready`, `running`), attempt and error. The steps are read in parts of at most
        BATCH_BYTES: a step that is settled meanwhile is returned once, as it is then. An output, ask or wake
        of more than `largest` bytes as stored is not read: it is None, and the step says `left_out`.
        `UnknownRun` when there is no such run in that tenant.
        """

    async def trail(
        self,
        run: UUID | None,
        tenant: Tenant,
        types: Sequence[str] = (),
        after: int = 0,
        limit: int = 1000,
        between: tuple[Instant | None, Instant | None] = (None, None),
    ) -> Sequence[TrailEntry]:
        """Trail rows, oldest first, with seq > `after`; of one run or of all, of some types, at or after one
        instant and before another. Nothing of a deleted run, also for one tenant's trail; over all runs of
        all tenants it is the audit, and includes deleted ones.
        """

    async def waiting_on(self, topic: str, tenant: str) -> Sequence[UUID]:
        """The open runs that have an open wait on this topic, by id."""

    async def definitions(self, *, schemas: bool = False) -> Sequence[Definition]:
        """Every published workflow, by type. Without `schemas` those are None, and cost nothing."""

    async def due(
        self,
        types: Sequence[str],
        tenants: Sequence[str] | None = None,
        *,
        wait_timeouts: bool = True,
        runtime: str = RUNTIME,
        besides: Sequence[tuple[UUID, int]] = (),
    ) -> Due:
        """The next instants at which a claim for these types, and each chore, may find something (an instant
        at or before now: at once). Runs that registry or limits hold back count from when they become free;
        runs that only a change of those, or the end of another run, sets free are not in sight. Chores: a
        lease that ends, a wait or run timeout that comes due, an event that is not delivered, a run that owes
        something, a schedule that is due (see `due_schedules`). wait_timeouts: as in `tick`. besides: id and
        rev of schedules that are left out.
        """

    async def stats(self) -> Stats:
        """Counts by status, workers present in the last LIVE_SECONDS, runs that no worker can take."""

    async def stuck(self, limit: int = 100) -> Sequence[UUID]:
        """Open runs, by id, that can never continue: pending without run_at, leased without lease_until,
        waiting without an open wait that has a time, a topic, a gate or a child, paused with nothing to
        resume to. No move leaves such a run behind; a check-up looks for them all the same.
        """

    async def checkup(self) -> Sequence[Finding]:
        """Findings about the store's own settings and state that matter to durability and speed: each is
        well, or says what is wrong and how to mend it. It writes nothing and does not scan all runs; it may
        test whether others could write.
        """
