"""Reads: everything that a store shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from holdfast.bounds import BATCH_BYTES
from holdfast.records import (
    RUNTIME,
    ChildCounts,
    Definition,
    Due,
    Finding,
    Followed,
    Found,
    Instant,
    Run,
    RunFilter,
    RunOutline,
    Stats,
    Step,
    Tenant,
    TrailEntry,
    TrailPage,
)

LABELS_MAX = 100  # the labels of a run that lists look at
LABEL_MAX = 255  # characters of a label's name and value in a filter
CHILDREN_COUNTED = 10_000  # children of a run that are counted
FOLLOWED_MAX = 1000  # runs in one call of `follow`
OUTLINES_MAX = 1000  # runs in one call of `outlines`


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

    async def outlines(
        self, where: RunFilter, limit: int = OUTLINES_MAX, after: UUID | None = None
    ) -> Sequence[RunOutline]:
        """The runs that `list` returns for the same filter and the same cursor, in the same order, with a few
        fields of each: a store reads no steps, waits, trail or values for them. At most OUTLINES_MAX; a
        higher limit is refused. A page may be short for the same reasons as a page of `list`, except for
        large values, and only an empty one is the end. where.values changes nothing.
        """

    async def search(self, text: str, where: RunFilter, limit: int = 100, after: UUID | None = None) -> Found:
        r"""Runs by id, newest first, that match the filter and hold `text` (1 to SEARCHED_MAX characters) in
        their params, result, labels (names and values), key, `last_error` or the message of their error.

        One call looks at no more than `bounds.SEARCH_RUNS` runs that match the filter, and no more than
        SEARCH_BYTES of their values, but at least at one run. It ends there, after `limit` runs, or where a
        page would end, and says where the next call goes on: it may find nothing and not be at the end. An
        SQL store also ends a call after some thousands of runs that do not match the filter.
        The text is literal, and case counts. Params, result and labels are compared as the JSON text that is
        stored, with the text as JSON: as our codec writes it, or with the escapes of ASCII alone that other
        libraries write. Not found: other escapes (`\/`, `\u00E9` with capitals), and text that reaches over
        the quotes of a JSON text, such as `"a":1`. The letter of an escape counts as a letter: `no` is found
        in a line break before an `o`. Of an error that is no JSON object only `last_error` counts. With
        where.values=False the values are looked at, and not shown. A sealed store refuses: it cannot read
        them.
        """

    async def children(
        self, runs: Sequence[UUID], tenant: Tenant, most: int = CHILDREN_COUNTED
    ) -> Sequence[ChildCounts]:
        """The children of these runs, counted by status; at most `most` of each run, and `more` when it has
        more of them. Deleted children do not count. A run without children, and a run that is unknown,
        deleted or another tenant's, is left out; the order is that of `runs`.
        """

    async def steps(
        self,
        run: UUID,
        tenant: Tenant,
        *,
        largest: int | None = None,
        after: int | None = None,
        before: int | None = None,
        bytes: int | None = None,
    ) -> Sequence[Step]:
        """All steps by seq: in code runs the order in which their outcomes became known. In plan runs the
        plan's order, from 0. The current step of an open plan, while it is a task in the queue or running,
        has the run's status (`ready`, `running`), attempt and error. The steps are read in parts of at most
        BATCH_BYTES: a step that is settled meanwhile is returned once, as it is then. An output, ask or wake
        of more than `largest` bytes as stored is not read: it is None, and the step says `left_out`.
        after: one page only: the steps with a seq above it, in at most `bytes` (None: BATCH_BYTES), but at
        least one; START for the first page. Only an empty page is the end. before: the same from the end: the
        steps with a seq below it, the newest first; not together with `after`.
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

    async def follow(
        self, runs: Sequence[tuple[UUID, int]], tenant: Tenant, limit: int = 1000, bytes: int = BATCH_BYTES
    ) -> Sequence[Followed]:
        """The news of runs for those who follow them, all at one instant. Each pair is a run and the seq of
        the last trail row that its follower has. The answer has an entry, in the order of `runs`, for each
        run that has later rows, or has a final status, or has continued as another run of its chain, or is
        `gone`: unknown, deleted, or another tenant's. At most FOLLOWED_MAX runs; more are refused. The rows
        are read in the order of `runs`: at most `limit` in all, and at most `bytes`, but at least one. A run
        with rows that did not fit says `more`, also when none of its rows did: ask again at once. Within one
        run no row appears with a lower seq than one that was visible before. So a follower that asks after
        its last seq, again and again, sees every row once. The cost is some index lookups for each run.
        """

    async def follow_all(
        self,
        tenant: Tenant,
        types: Sequence[str] = (),
        after: int | None = None,
        limit: int = 1000,
        bytes: int = BATCH_BYTES,
    ) -> TrailPage:
        """The trail of all runs for a follower: the rows of `trail` without a run, with seq > `after`, and
        the seq after which the next call continues. All rows up to that seq have been looked at, and none
        appears there later, so a follower sees every row once. The seq also grows when no row matches.
        `more`: there are further rows already, because the page is full (`limit`; `bytes`, but at least one
        row), or because bounds.SCAN_ROWS rows were looked at. after=None is from now on: no rows, and a seq
        that is below that of every row that appears later. Two kinds of rows may be missed: those of a
        caller's own transaction that was open for more than ten minutes, and for one tenant those of a run
        that was deleted when they were looked at and is restored later.
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
        sinks: Sequence[str] = (),
        webhooks: bool = False,
    ) -> Due:
        """The next instants at which a claim for these types, and each chore, may find something (an instant
        at or before now: at once). Runs that registry or limits hold back count from when they become free;
        runs that only a change of those, or the end of another run, sets free are not in sight. Chores: a
        lease that ends, a wait or run timeout that comes due, an event that is not delivered, a run that owes
        something, a schedule that is due (see `due_schedules`). wait_timeouts: as in `tick`. besides: id and
        rev of schedules that are left out. relay_at: what `relay_at` answers for `sinks`, `webhooks` and
        `tenants`; None when neither sinks nor webhooks are asked for.
        """

    async def stats(self) -> Stats:
        """Counts by status, workers present in the last LIVE_SECONDS, runs that no worker can take. It is
        made from `counts` and `scale`, and costs as much as they do.
        """

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
