"""The built-in workflow that carries out a bulk operation. Every Python worker executes it.

It lists matching runs in pages, newest id first. The ids of a page are recorded before the first of them is
touched. Then the verb is applied to each, at an even pace, with `unchanged_since`: the store itself refuses
a run that has changed since the operation began. So a page that is executed again after a crash does nothing
twice; runs that this operation had already moved are recognised by the trail and counted.

Cancel and pause then take a changed run all the same, if it was created before the operation began and the
operation has not moved it yet: each wake of a run is a change, and a run that wakes often could never be
stopped. Both verbs leave a run alone that is already cancelled or paused.

Between two pages the run goes back to the queue when its pace leaves more than a moment, or when it has been
executed for a second: a slow operation holds no slot while it waits, and operations take turns. The instant
of the next call is recorded with the page. It needs no keeper: the run is pending until then, not asleep.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from uuid import UUID

import msgspec

from holdfast.backoff import Backoff
from holdfast.contract import OUTLINES_MAX
from holdfast.engine.code.context import Context
from holdfast.engine.code.map_items import all_items
from holdfast.engine.code.waits import back_off
from holdfast.engine.definitions import Workflow
from holdfast.errors import (
    ChangedSince,
    HoldfastError,
    IllegalMove,
    StoreError,
    UnknownRun,
    UnknownStep,
)
from holdfast.lifecycle import Status, spoken_status
from holdfast.records import ANY, RUNTIME, SECOND, Instant, Run, RunFilter, RunOutline, Tenant, instant
from holdfast.records.shown import outline

from .asked import (
    BULK_TYPE,
    CHANGED,
    GONE,
    OPERATOR_TENANT,
    Bulk,
    BulkReport,
    BulkVerb,
    filter_of,
    takes,
)
from .pace import Pace

PAGE_MAX = 200  # runs of a page: a pause takes effect at the end of a page
PAGES = 50  # pages of one run; then its chain goes on, so that no record grows without end
COUNT_MAX = 10_000  # runs that are counted; more are shown as "10,000+"
# Longest wait for the next call that holds a slot; of slower operations a page has one run.
IN_SLOT_SECONDS = 0.2
TURN_SECONDS = 1.0  # executed so long, it goes back to the queue at the end of a page
LANES = 8  # calls at the same time: one slow call must not slow down the pace
REASON_MAX = 120  # characters
RETRY = Backoff.exponential(0.5, attempts=30, cap=30)  # the store may be away for some minutes
# The row of the trail that shows that a verb was applied.
WORDS = {
    BulkVerb.CANCEL: "cancelled",
    BulkVerb.PAUSE: "paused",
    BulkVerb.RESUME: "resumed",
    BulkVerb.RETRY: "retried",
    BulkVerb.REWIND: "rewound",
}

STOPS = frozenset({BulkVerb.CANCEL, BulkVerb.PAUSE})  # they take runs that have changed, too


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """Runs that the verb is applied to. after: the last listed run; None: there are no more. begin_at: the
    first call is not made before.
    """

    runs: tuple[UUID, ...] = ()
    changed: BulkReport = BulkReport()
    after: UUID | None = None
    begin_at: Instant = 0


async def bulk(ctx: Context, asked: Bulk) -> BulkReport:
    """Apply a verb to every run that a filter matches."""
    work = _Work(ctx, asked)
    work.total = await ctx.step("count", work.count, retry=RETRY)
    report, after = asked.report, asked.after
    for n in range(PAGES):
        page = await ctx.step("list", work.listed, after, key=f"list[{n}]", retry=RETRY)
        if page.after is None:
            return report
        report, after = report.plus(page.changed), page.after
        if page.runs:
            await work.turn(page, f"pace[{n}]")
            part = await ctx.step("apply", work.apply, page, report, key=f"apply[{n}]", retry=RETRY)
            report = report.plus(part)
    goes_on = {"first": work.first, "began_at": work.began_at, "after": after, "report": report}
    return ctx.continue_as(msgspec.structs.replace(asked, **goes_on))


class Count(msgspec.Struct, frozen=True, kw_only=True):
    """The number of runs that an operation would take. more: there may be more, which were not counted.

    first: the newest few of them, each with the run that is listed before it (None: nothing is).
    """

    count: int = 0
    more: bool = False
    first: tuple[tuple[UUID, UUID | None], ...] = ()


Outlines = Callable[[RunFilter, int, UUID | None], Awaitable[Sequence[RunOutline]]]
Runs = Callable[[RunFilter, int, UUID | None], Awaitable[Sequence[Run]]]


def _note(report: BulkReport) -> str:
    others = {"refused": sum(report.refused.values()), "left out": sum(report.left_out.values())}
    return ", ".join([f"{report.done:,} done", *(f"{n:,} {word}" for word, n in others.items() if n)])


async def counted(
    fetch: Outlines,
    where: RunFilter,
    verb: BulkVerb | None,
    after: UUID | None = None,
    sample: int = 0,
    most: int = COUNT_MAX,
) -> Count:
    """Count the runs that an operation would take, among the first `most` that match, or some more."""
    first, listed, count = list[tuple[UUID, UUID | None]](), 0, 0
    while listed < most and (page := await fetch(where, OUTLINES_MAX, after)):
        listed += len(page)
        for run in page:
            if takes(run, verb):
                count += 1
                if len(first) < sample:
                    first.append((run.id, after))
            after = run.id
    return Count(count=count, more=listed >= most, first=tuple(first))


async def sampled(fetch: Runs, where: RunFilter, count: Count) -> list[Run]:
    """Return the first runs of a count. Mostly they are side by side, and one call brings all of them; a call
    brings at least one, unless the runs have changed meanwhile.
    """
    found, wanted = list[Run](), [*count.first]
    while wanted and (page := await fetch(where, len(wanted), wanted[0][1])):
        ids = {run for run, _ in wanted}
        found += [run for run in page if run.id in ids]
        wanted = [one for one in wanted[1:] if one[0] < page[-1].id]
    return found


class _Work:
    """The steps of one bulk operation."""

    def __init__(self, ctx: Context, asked: Bulk) -> None:
        run = self._run = ctx._run  # noqa: SLF001 - a workflow of the engine itself
        self._executed_since = run.world.monotonic()
        self._asked, self._store, self._progress = asked, run.worker.store, ctx.progress
        self.total: int | None = None
        self._tenant: Tenant = ANY if ctx.tenant == OPERATOR_TENANT else ctx.tenant
        self.first: UUID = asked.first or ctx.run_id
        self.began_at: Instant = run.claim.created_at if asked.began_at is None else asked.began_at
        self._where = filter_of(asked, self._tenant)
        self._by = f"{asked.by} (bulk {str(self.first)[-8:]})".lstrip()
        self._pace = Pace(run.world, asked.rate)
        self._call = self._calls(self.began_at)[asked.verb]
        self._call_stop = self._calls(None)[asked.verb] if asked.verb in STOPS else None

    def _calls(self, since: Instant | None) -> dict[BulkVerb, Callable[[UUID], Awaitable[Run]]]:
        store, tenant, by, asked = self._store, self._tenant, self._by, self._asked
        return {
            BulkVerb.CANCEL: lambda run: store.cancel(
                run, tenant, by, children=asked.children, unchanged_since=since
            ),
            BulkVerb.PAUSE: lambda run: store.pause(run, tenant, by, unchanged_since=since),
            BulkVerb.RESUME: lambda run: store.resume(run, tenant, by, unchanged_since=since),
            BulkVerb.RETRY: lambda run: store.retry_run(run, tenant, by, unchanged_since=since),
            BulkVerb.REWIND: lambda run: store.rewind(
                run, asked.step, tenant, by, children=asked.children, unchanged_since=since
            ),
            BulkVerb.DELETE: lambda run: store.delete(run, tenant, by, unchanged_since=since),
        }

    async def count(self) -> int | None:
        """Return the number of runs that are left, to show progress; None if there are too many."""
        found = await counted(self._store.outlines, self._where, self._asked.verb, self._asked.after)
        return None if found.more else found.count

    async def listed(self, after: UUID | None) -> Page:
        """Return the next page. Runs that have changed already are only counted; see STOPS."""
        size = 1 if self._is_slow else min(self._asked.rate, PAGE_MAX)
        found = await self._store.list(self._where, size, after)
        if not found:
            return Page()
        runs, changed = [], BulkReport()
        for run in found:
            if not takes(outline(run), self._asked.verb):
                continue
            if self._is_late(run):
                changed = changed.counting("left_out", CHANGED, 1, (run.id,))
            else:
                runs.append(run.id)
        begin_at = self._run.now() + int(SECOND / self._asked.rate)
        return Page(runs=tuple(runs), changed=changed, after=found[-1].id, begin_at=begin_at)

    @property
    def _is_slow(self) -> bool:
        return 1 / self._asked.rate > IN_SLOT_SECONDS

    async def turn(self, page: Page, key: str) -> None:
        """Wait for the turn of a page: in the queue if that takes long, or if it is for others to go first.

        A successor of a killed worker may begin with a page that was already applied in part. It goes through
        the same runs at the same pace, so the first one that it moves keeps its distance.
        """
        run, left = self._run, self._seconds_until(page.begin_at)
        if left > IN_SLOT_SECONDS or run.world.monotonic() - self._executed_since >= TURN_SECONDS:
            run.stage.check()
            await back_off(run, key, max(page.begin_at, run.now()))
        interval = 0.0 if self._is_slow else 1 / self._asked.rate
        self._pace.begin(max(interval, self._seconds_until(page.begin_at)))

    def _seconds_until(self, at: Instant) -> float:
        return max(0.0, (at - self._run.now()) / SECOND)

    def _is_late(self, run: Run) -> bool:
        if self._call_stop is not None:
            return instant(run.created_at) >= self.began_at
        return run.status is not Status.LEASED and instant(run.updated_at) >= self.began_at

    async def apply(self, page: Page, before: BulkReport) -> BulkReport:
        """Apply the verb to the runs of a page, at the pace of the operation. The commit of the step also
        shows how far the operation is: a pause takes effect right after it.
        """
        runs, parts = iter(page.runs), list[BulkReport]()
        await all_items([self._lane(runs, parts) for _ in range(min(LANES, len(page.runs)))])
        report = BulkReport()
        for part in parts:
            report = report.plus(part)
        seen = before.plus(report)
        total = None if self.total is None else self.total + self._asked.report.seen
        self._progress(seen.seen, None if total is None else max(total, seen.seen), _note(seen))
        return report

    async def _lane(self, runs: Iterator[UUID], parts: list[BulkReport]) -> None:
        for run in runs:
            await self._pace.turn()
            parts.append(await self._applied(run))

    async def _applied(self, run: UUID) -> BulkReport:
        """Apply the verb to one run. An error of the store is one of the operation itself, and
        retried; all others are counted.
        """
        try:
            await self._call(run)
        except StoreError:
            raise
        except ChangedSince:
            if await self._is_ours(run) or await self._is_stopped(run):
                return BulkReport(done=1)
            return BulkReport().counting("left_out", CHANGED, 1, (run,))
        except UnknownRun:
            return BulkReport().counting("left_out", GONE, 1, (run,))
        except HoldfastError as error:
            return BulkReport().counting("refused", self._reason(run, error), 1, (run,))
        return BulkReport(done=1)

    async def _is_stopped(self, run: UUID) -> bool:
        """Apply a verb of STOPS to a run that has changed; return False when it has ended or is gone."""
        if self._call_stop is None:
            return False
        try:
            await self._call_stop(run)
        except (IllegalMove, UnknownRun):
            return False
        return True

    async def _is_ours(self, run: UUID) -> bool:
        """Return True when it was this operation that changed the run, before a crash."""
        word = WORDS.get(self._asked.verb)
        if word is None:  # deleted runs show no trail
            return await self._store.get(run, self._tenant) is None
        try:
            rows = await self._store.trail(run, self._tenant, (word,), between=(self.began_at, None))
        except UnknownRun:
            return False
        return any(row.data.get("by") == self._by for row in rows)

    def _reason(self, run: UUID, error: HoldfastError) -> str:
        match error:
            case IllegalMove():
                return f"cannot {self._asked.verb}: it is {spoken_status(error.status)}"
            case UnknownStep():
                return f"it has no step {self._asked.step!r}"[:REASON_MAX]
            case _:
                return f"{type(error).__name__}: {error}".replace(str(run), "…")[:REASON_MAX]


BULK = Workflow(BULK_TYPE, bulk, None, None, steps_max=4 * PAGES)
BULK.built_in = True
BUILT_IN: Mapping[str, Workflow] = {BULK.type: BULK}


def built_in(runtime: str) -> Mapping[str, Workflow]:
    """Return the workflows of the engine itself, for workers of this runtime."""
    return BUILT_IN if runtime == RUNTIME else {}
