"""Reads: runs, steps and counts as callers see them, and when there is next something to do."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec
from msgspec.structs import replace

from holdfast import bounds
from holdfast.bounds import page
from holdfast.contract import DUE_COUNTED, LIVE_SECONDS
from holdfast.errors import UnknownRun
from holdfast.lifecycle import Status, StepKind, StepStatus
from holdfast.machine.claiming import unrecorded
from holdfast.machine.durations import micros
from holdfast.records import (
    Ask,
    ChildCounts,
    Chore,
    Definition,
    Due,
    Instant,
    Json,
    Presence,
    Run,
    RunFilter,
    RunningStep,
    RunOutline,
    Stats,
    Step,
    Tenant,
    tenant_name,
)
from holdfast.records.sizes import run_bytes
from holdfast.stores.claiming.served import can_run, unclaimable
from holdfast.stores.paged import FIRST, StepsPage, all_steps
from holdfast.stores.run_filter import is_filtered

from . import listing
from .chores.timeouts import next_at
from .claiming.capacity import rules_of, rules_revision
from .claiming.next_claim import next_claim
from .connection.database import Database, Row, text
from .counts import by_status, scale
from .outbox import relay_at
from .rows import (
    LIST,
    LIST_WITHOUT_VALUES,
    OUTLINES,
    definition,
    outline_record,
    run_of,
    run_or_deleted,
    run_record,
    steps_after,
    steps_part,
    stored_key,
)
from .schedules import next_due
from .sql import statements

_SQL = statements("reads")
_decode_running = msgspec.json.Decoder(tuple[RunningStep, ...]).decode

_LIVE = {Status.PENDING.value: StepStatus.READY, Status.LEASED.value: StepStatus.RUNNING}

Term = tuple[Any, ...]  # a condition and its values


def get(db: Database, run: UUID, tenant: str | None) -> Run | None:
    found = run_of(db, str(run))
    if found is None or tenant not in {None, found.tenant}:
        return None
    return found if found.status is not Status.LEASED else replace(found, running=_running(db, found))


def _running(db: Database, run: Run) -> tuple[RunningStep, ...]:
    row = db.one(_SQL["running"], (str(run.id), run.fence))
    if row is None:
        return ()
    try:
        steps, recorded = _decode_running(row[0]), msgspec.json.decode(row[1])
    except msgspec.DecodeError:
        return ()  # somebody has written into the file: the run itself can be read
    return unrecorded(steps, {key: (StepStatus(status), attempts) for key, status, attempts in recorded})


def listed(db: Database, where: RunFilter, limit: int, after: UUID | None) -> list[Run]:
    """Return a page of runs by id, newest first. Values of a row are read last, because a row that is only
    sorted, or does not fit into the page, does not need them."""
    sql, values = _with_terms(LIST if where.values else LIST_WITHOUT_VALUES, where, after)
    if not where.values:
        slim = (run_record(db, row) for row in db.each(sql, (*values, max(0, limit))))
        return page(slim, run_bytes, limit)
    found = (run_or_deleted(db, run) for (run,) in db.all(sql, (*values, max(0, limit))))
    return page((run for run in found if run is not None), run_bytes, limit)


def outlined(db: Database, where: RunFilter, limit: int, after: UUID | None) -> list[RunOutline]:
    """Return the outlines of a page of runs by id, newest first."""
    sql, values = _with_terms(OUTLINES, where, after)
    return [outline_record(row) for row in db.all(sql, (*values, max(0, limit)))]


def _with_terms(sql: str, where: RunFilter, after: UUID | None) -> tuple[str, list[Any]]:
    """Return a statement with the conditions of a filter, and their values."""
    terms = [*_by_place(where, after), *_by_kind(where)]
    sql = sql.replace("$terms", " and ".join(term for term, *_ in terms) or "true")
    return sql, [value for _, *values in terms for value in values]


def _by_place(where: RunFilter, after: UUID | None) -> Iterator[Term]:
    if after is not None:
        yield "id < ?", str(after)
    # A run that a purge has begun to remove (-1) is hidden from everyone.
    yield ("coalesce(deleted_at, 0) >= 0" if where.deleted else "deleted_at is null",)
    if where.tenant is not None:
        yield "tenant = ?", where.tenant
    if where.key is not None and isinstance(where.tenant, str):
        yield "idempotency_key = ?", stored_key(where.tenant, where.key)
    elif where.key is not None:
        yield _SQL["has_key"], where.key
    if where.parent is not None:
        yield "parent_id = ?", str(where.parent)


def _by_kind(where: RunFilter) -> Iterator[Term]:
    if where.statuses:
        # Written into the statement, not bound: only then can the planner use a partial index.
        yield ("(" + " or ".join(f"status = '{status.value}'" for status in where.statuses) + ")",)
    if where.waiting_on is not None:
        yield _SQL["has_open_wait"], where.waiting_on.value
    if where.type is not None and where.type.endswith("%"):
        # LIKE would ignore case and treat _ as a wildcard, so compare a range.
        yield "type >= ? and type < ?", where.type[:-1], where.type[:-1] + listing.LAST_CHARACTER
    elif where.type is not None:
        yield "type = ?", where.type


async def list_runs(read: Callable[..., Any], where: RunFilter, limit: int, after: UUID | None) -> list[Run]:
    """Return a page. Each slice of a list with filters is a separate read; other tasks can run in between."""
    if not is_filtered(where):
        return read(listed, where, limit, after)  # type: ignore[no-any-return]
    place = None if after is None else str(after)
    while True:
        part: listing.Slice = read(listing.listed, where, limit, place)
        if part.runs or part.after is None or limit <= 0:
            return part.runs
        place = part.after
        await asyncio.sleep(0)


async def list_outlines(
    read: Callable[..., Any], where: RunFilter, limit: int, after: UUID | None
) -> list[RunOutline]:
    """Return a page of outlines, in slices as `list_runs` does."""
    if not is_filtered(where):
        return read(outlined, where, limit, after)  # type: ignore[no-any-return]
    place = None if after is None else str(after)
    while True:
        found: list[RunOutline]
        found, place = read(listing.outlined, where, limit, place)
        if found or place is None or limit <= 0:
            return found
        await asyncio.sleep(0)


async def children(
    read: Callable[..., Any], runs: Sequence[UUID], tenant: str | None, most: int
) -> list[ChildCounts]:
    """Return the children of these runs by status. Each run is a separate read."""
    found = []
    for run in dict.fromkeys(runs):
        statuses: list[str] = read(listing.children, run, tenant, most + 1)
        if statuses:
            counted = dict(Counter(statuses[:most]))
            found.append(ChildCounts(run=run, by_status=counted, more=len(statuses) > most))
        await asyncio.sleep(0)
    return found


async def steps(
    read: Callable[..., Any],
    run: UUID,
    tenant: str | None,
    largest: int | None,
    after: int | None,
    most: int | None,
) -> list[Step]:
    """Return all steps by seq, or one page. Each page is a separate read; other tasks can run in between."""
    if after is not None:
        one: list[Step] = read(_lone_page, run, tenant, after, largest, most)
        return one
    row: Row = ()

    async def read_page(after: int) -> StepsPage:
        nonlocal row
        if after != FIRST:
            await asyncio.sleep(0)
        found: StepsPage
        row, found = read(_steps_page, run, tenant, after, largest, None)
        return found

    found = await all_steps(read_page)
    return found if row[1] != "plan" else _live(found, *row[2:5])


class StepVerbs:
    """The verb `steps`."""

    if TYPE_CHECKING:

        def _read(self, work: Any, *args: Any) -> Any: ...

    async def steps(
        self,
        run: UUID,
        tenant: Tenant,
        *,
        largest: int | None = None,
        after: int | None = None,
        before: int | None = None,
        bytes: int | None = None,
    ) -> list[Step]:
        if before is None:
            return await steps(self._read, run, tenant_name(tenant), largest, after, bytes)
        found: list[Step] = self._read(steps_before, run, tenant_name(tenant), before, largest, bytes)
        return found


def _steps_page(
    db: Database, run: UUID, tenant: str | None, after: int, largest: int | None, most: int | None
) -> tuple[Row, StepsPage]:
    row = db.one(_SQL["owner"], (str(run),))
    if row is None or tenant not in {None, row[0]}:
        raise UnknownRun(run)
    found, _, more = steps_after(db, str(run), after, _budget(most), largest)
    return row, StepsPage(row[5], found, more)


def _lone_page(
    db: Database, run: UUID, tenant: str | None, after: int, largest: int | None, most: int | None
) -> list[Step]:
    row, found = _steps_page(db, run, tenant, after, largest, most)
    # The current step may be in an earlier page: then all steps of this one are still to come.
    is_later = row[1] == "plan" and db.one(_SQL["has_unfinished"], (str(run), after)) is not None
    return found.steps if row[1] != "plan" or is_later else _live(found.steps, *row[2:5])


def steps_before(
    db: Database, run: UUID, tenant: str | None, before: int, largest: int | None, most: int | None
) -> list[Step]:
    """Return a page of steps from the end, the newest first."""
    row = db.one(_SQL["owner"], (str(run),))
    if row is None or tenant not in {None, row[0]}:
        raise UnknownRun(run)
    found = steps_part(db, str(run), before, _budget(most), largest, newest=True)[0]
    if row[1] != "plan" or not found:
        return found
    # The current step may be an earlier one: then all steps of this page are still to come.
    if db.one(_SQL["has_unfinished"], (str(run), found[-1].seq - 1)) is not None:
        return found
    return _live(found[::-1], *row[2:5])[::-1]


def _budget(most: int | None) -> int:
    return bounds.BATCH_BYTES if most is None else most


def _live(steps: list[Step], status: str, attempt: int, error: Json | None) -> list[Step]:
    """Show the current task of a plan with the live status of its run. That status is not stored twice."""
    live = _LIVE.get(status)
    at = next((number for number, one in enumerate(steps) if one.status is not StepStatus.SUCCEEDED), None)
    if (
        live is None
        or at is None
        or (steps[at].kind, steps[at].status) != (StepKind.TASK, StepStatus.PENDING)
    ):
        return steps
    shown = replace(steps[at], status=live, attempts=attempt, error_json=error)
    return [*steps[:at], shown, *steps[at + 1 :]]


def holder_calls(db: Database) -> int:
    """Return the count of moves of leased runs by others than their holders."""
    row = db.one(_SQL["holder_calls"])
    return 0 if row is None else int(row[0])


def waiting_on(db: Database, topic: str, tenant: str) -> list[UUID]:
    return [UUID(row[0]) for row in db.all(_SQL["waiting_on"], (tenant, topic))]


def definitions(db: Database, *, schemas: bool) -> list[Definition]:
    if not schemas:
        return [definition(row) for row in db.all(_SQL["definitions"])]
    return [
        msgspec.structs.replace(definition(row), params_schema=row[8], result_schema=row[9])
        for row in db.all(_SQL["schemas"])
    ]


def due(
    db: Database,
    now: Instant,
    ask: Ask,
    *,
    wait_timeouts: bool = True,
    besides: Sequence[tuple[UUID, int]] = (),
    served: tuple[Sequence[str], bool] = ((), False),
) -> Due:
    chores = {f"{chore}_at": next_at(db, chore, wait_timeouts=wait_timeouts) for chore in Chore}
    sinks, webhooks = served
    asked = sinks or webhooks
    message_at = relay_at(db, sinks, ask.tenants, webhooks=webhooks) if asked else None
    claim_at, fire_at = next_claim(db, now, ask), next_due(db, besides)
    return Due(now=now, claim_at=claim_at, fire_at=fire_at, relay_at=message_at, **chores)


def _workers(db: Database, now: Instant) -> list[Presence]:
    return [_presence(row) for row in db.all(_SQL["workers"], (now - micros(LIVE_SECONDS),))]


def is_served(db: Database, runs: Sequence[str], now: Instant) -> bool:
    """Return True when a live worker can claim any of these runs."""
    rules, kinds = rules_of(db, rules_revision(db)), db.all(_SQL["kinds"], (text(runs),))
    live = _workers(db, now)
    return any(can_run(worker, kind, tenant, rules) for worker in live for kind, tenant in kinds)


def stats(db: Database, now: Instant, extra: dict[str, int]) -> Stats:
    live = _workers(db, now)
    due = scale(db, now, None).items
    undelivered = db.one(_SQL["undelivered"], {"most": DUE_COUNTED})
    return Stats(
        now=now,
        by_status=by_status(db, now),
        workers=tuple(live),
        oldest_due_at=min((one.oldest_due_at for one in due if one.oldest_due_at is not None), default=None),
        unclaimable=unclaimable(due, live, rules_of(db, rules_revision(db))),
        undelivered=undelivered[0] if undelivered is not None else 0,
        extra=extra,
    )


def stuck(db: Database, limit: int) -> list[UUID]:
    """Return runs that nothing could ever wake. There should be none."""
    return [UUID(run) for (run,) in db.all(_SQL["stuck"], (max(0, limit),))]


def _presence(row: tuple[object, ...]) -> Presence:
    worker, types, patterns, tenants, runtime, slots, stragglers, sinks, lacking, library, seen_at = row
    return msgspec.convert(
        {
            "worker": worker,
            "types": msgspec.json.decode(str(types)),
            "patterns": msgspec.json.decode(str(patterns)),
            "tenants": None if tenants is None else msgspec.json.decode(str(tenants)),
            "runtime": runtime,
            "slots": slots,
            "stragglers": stragglers,
            "sinks": msgspec.json.decode(str(sinks)),
            "lacking": msgspec.json.decode(str(lacking)),
            "library": library,
            "seen_at": seen_at,
        },
        Presence,
    )
