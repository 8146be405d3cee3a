"""get, steps, due, stats and other reads."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from uuid import UUID

import msgspec

from holdfast.bounds import BATCH_BYTES, page
from holdfast.contract import DUE_COUNTED
from holdfast.errors import UnknownRun
from holdfast.lifecycle import OPEN, Status, StepKind, StepStatus
from holdfast.machine.rows import StepRow
from holdfast.machine.rows import shown as shown_step
from holdfast.records import (
    ANY,
    RUNTIME,
    Definition,
    Due,
    DueRuns,
    Instant,
    Run,
    Stats,
    Step,
    Tenant,
    tenant_name,
)
from holdfast.records.shown import without_large
from holdfast.records.sizes import shown_step_bytes
from holdfast.stores.claiming.capacity import Capacities
from holdfast.stores.claiming.served import unclaimable
from holdfast.stores.redis import indexes, rows
from holdfast.stores.redis.held import ids
from holdfast.stores.redis.names import Names
from holdfast.stores.redis.rows import RunRow
from holdfast.stores.redis.snapshot import Command, Snapshot

from . import limiting, outbox, schedules
from .counts import CountVerbs, counts
from .due_runs import heads, lanes_of
from .presence import present_workers
from .shown import Showing
from .steps import StepReads

PAGE = 200  # runs that are read at once
WAITS = 500  # waits on a topic that are read at once
_DEFINITION = msgspec.json.Decoder(Definition)
_LIVE = {Status.PENDING: StepStatus.READY, Status.LEASED: StepStatus.RUNNING}


class CatalogVerbs(CountVerbs, StepReads, Showing):
    """Reads, as a mixin of the store."""

    async def now(self) -> Instant:
        return await self._read(lambda snapshot: snapshot.now)

    async def _visible(self, run: UUID, tenant: Tenant) -> RunRow | None:
        name, (row,) = tenant_name(tenant), await self._rows([run])
        hidden = row is None or row.deleted_at is not None or name not in {None, row.tenant}
        return None if hidden else row

    async def get(self, run: UUID, tenant: Tenant) -> Run | None:
        row = await self._visible(run, tenant)
        return None if row is None else (await self._shown([row], running=True))[0]

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
        row = await self._visible(run, tenant)
        if row is None:
            raise UnknownRun(run)
        found: list[Step] = []
        async for stored in self._parts_of(row, after, before, BATCH_BYTES if bytes is None else bytes):
            shown = _shown_steps(row, stored)
            # At once: large values that are left out must not be here all together.
            found += shown if largest is None else [without_large(step, largest) for step in shown]
        found.sort(key=lambda step: step.seq)
        if before is not None:
            found = [step for step in reversed(found) if step.seq < before]
        elif after is not None:
            found = [step for step in found if step.seq > after]
        else:
            return found
        return page(found, shown_step_bytes, len(found), bytes)

    async def _parts_of(
        self, row: RunRow, after: int | None, before: int | None, most: int
    ) -> AsyncIterator[Sequence[StepRow]]:
        """Yield the steps that an answer is made of. A page of a large run is one part: a page may have fewer
        steps than fit."""
        is_large = row.bytes > BATCH_BYTES
        if before is not None and is_large:
            yield await self._steps_before(row, before, most)
        elif after is not None and is_large:
            yield (await self._steps_after(row, after, most))[0]
        else:
            async for part in self._all_steps(row):
                yield part

    async def waiting_on(self, topic: str, tenant: str) -> list[UUID]:
        key, low, found = self._names.waits(tenant, topic), "-", list[UUID]()
        while True:
            (members,) = await self._connections.ask([("ZRANGEBYLEX", key, low, "+", "LIMIT", 0, WAITS)])
            named = [*dict.fromkeys(ids(members))]
            seen = zip(named, await self._rows(named, small=True), strict=True)
            found += [id for id, row in seen if row and row.status in OPEN and row.deleted_at is None]
            if len(members) < WAITS:
                return [*dict.fromkeys(found)]
            low = f"({members[-1]}"

    async def definitions(self, *, schemas: bool = False) -> list[Definition]:
        (texts,) = await self._connections.ask([("HGETALL", self._names("definitions"))])
        found = sorted(map(_DEFINITION.decode, texts.values()), key=lambda one: one.type)
        if schemas:
            return found
        return [msgspec.structs.replace(one, params_schema=None, result_schema=None) for one in found]

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
        def due(snapshot: Snapshot) -> Due:
            names = snapshot.names
            snapshot.prefetch([
                *limiting.commands(names), *_chores(names), *schedules.commands(names, besides),
                *(("heads", queue) for queue in _queues(names, types, tenants)),
            ])  # fmt: skip
            claim_at = next_claim(snapshot, types, tenants, runtime)
            asked = sinks or webhooks
            message_at = outbox.relay_at(snapshot, sinks, tenants, webhooks=webhooks) if asked else None
            chores = next_chores(snapshot, besides, wait_timeouts=wait_timeouts)
            return Due(now=snapshot.now, claim_at=claim_at, relay_at=message_at, **chores)

        return await self._read(due)

    async def stats(self) -> Stats:
        due = [one for one in (await self.scale(ANY)).items if one.due]
        return await self._read(lambda snapshot: stats(snapshot, due))

    async def stuck(self, limit: int = 100) -> list[UUID]:
        # A pending run always has its time.
        found: list[UUID] = []
        for status in (Status.LEASED, Status.WAITING, Status.PAUSED):
            found += await self._stuck_in(status, max(0, limit))
        return sorted(found)[: max(0, limit)]

    async def _stuck_in(self, status: Status, limit: int) -> list[UUID]:
        found: list[UUID] = []
        key, low = self._names("status", status), "-"
        while len(found) < limit:
            (members,) = await self._connections.ask([("ZRANGEBYLEX", key, low, "+", "LIMIT", 0, PAGE)])
            if not members:
                break
            stored = await self._rows(ids(members), small=True)
            seen = [row for row in stored if row and row.status is status and row.deleted_at is None]
            asked = [("HMGET", self._names.steps(row.id), "", *rows.open_keys(row)) for row in seen]
            answers = await self._connections.ask(asked) if asked else []
            found += [row.id for row, texts in zip(seen, answers, strict=True) if not _goes_on(row, texts)]
            low = f"({members[-1]}"
        return found[:limit]


def _goes_on(row: RunRow, texts: Sequence[str | None]) -> bool:
    """Return True when something can move the run. texts: its open steps."""
    if row.status is Status.LEASED:
        return row.lease_until is not None and row.leased_by is not None
    waits = any(_can_come(rows.step_row(text)) for text in texts if text)
    if row.status is Status.WAITING:
        return waits
    return row.resume_to is Status.PENDING or (row.resume_to is Status.WAITING and waits)


def _can_come(wait: StepRow) -> bool:
    if wait.status is not StepStatus.WAITING:
        return False
    named = wait.due_at is not None or wait.topic is not None
    return named or wait.kind in {StepKind.APPROVAL, StepKind.CHILD}


def _shown_steps(row: RunRow, stored: Sequence[StepRow]) -> list[Step]:
    """Return these steps. The current task of a plan shows the live status of its run, which is not stored
    twice."""
    shown, live = list(map(shown_step, stored)), _LIVE.get(row.status)
    current = next((step for step in stored if step.key == row.current), None)
    if not row.is_plan or live is None or current is None:
        return shown
    if (current.kind, current.status) != (StepKind.TASK, StepStatus.PENDING):
        return shown
    now = msgspec.structs.replace(
        shown_step(current), status=live, attempts=row.attempt, error_json=row.error
    )
    return [now if step.key == current.key else step for step in shown]


def next_claim(
    snapshot: Snapshot, types: Sequence[str], tenants: Sequence[str] | None, runtime: str
) -> Instant | None:
    """Return when a claim may next find something."""
    book = limiting.Limiting(snapshot)
    capacities = book.capacities(snapshot.now)
    open_types = [type for type in dict.fromkeys(types) if capacities.rules.open_to(type, runtime)]
    if not capacities.rules.scopes:
        firsts = heads(snapshot, _queues(snapshot.names, open_types, tenants))
        return _first(at for one in firsts for _, at in one)
    whose = [None] if tenants is None else [*dict.fromkeys(tenants)]
    lanes = snapshot.each(
        [(type, tenant) for type in open_types for tenant in whose], lambda one: lanes_of(snapshot, *one)
    )
    found = [lane for some in lanes for lane in some]
    book.prefetch(capacities, found)
    return _first(_openings(snapshot, found, capacities))


def _queues(names: Names, types: Iterable[str], tenants: Sequence[str] | None) -> list[str]:
    if tenants is None:
        return [names.of("queue", type) for type in dict.fromkeys(types)]
    return [names.of("queue", type, one) for type in dict.fromkeys(types) for one in dict.fromkeys(tenants)]


def _openings(
    snapshot: Snapshot, lanes: Sequence[tuple[str, str, str | None]], capacities: Capacities
) -> Iterator[Instant]:
    """Yield when runs of these lanes may be claimed: due, and not held back by a limit."""
    opened = [(lane, at) for lane in lanes if (at := capacities.opens_at(*lane)) is not None]
    queues = [indexes.lane(snapshot.names, *lane) for lane, _ in opened]
    for found, (_, opens_at) in zip(heads(snapshot, queues), opened, strict=True):
        yield from (max(at, opens_at) for _, at in found)


def _chores(names: Names) -> list[Command]:
    sets = ("leases", "timeouts", "timers", "timers:plans")
    return [
        *(("ZRANGE", names(one), 0, 0, "WITHSCORES") for one in sets),
        ("ZCARD", names("undelivered")), ("ZCARD", names("owing")),
    ]  # fmt: skip


def next_chores(
    snapshot: Snapshot,
    besides: Sequence[tuple[UUID, int]],
    *,
    wait_timeouts: bool,
) -> dict[str, Instant | None]:
    """Return when each chore may next find something, and when a schedule is due, except those left out."""
    leases, timeouts, timers, plans, undelivered, owing = snapshot.all(_chores(snapshot.names))
    waits = [*timers, *(plans if wait_timeouts else ())]
    return {
        "expire_at": _first(int(score) + 1 for _, score in leases),
        "time_out_at": _first(int(score) for _, score in timeouts),
        "lapse_at": _first(int(score) for _, score in waits),
        "deliver_at": 0 if undelivered or owing else None,
        "fire_at": _first(schedules.due_at(snapshot, besides)),
    }


def _first(times: Iterable[Instant | None]) -> Instant | None:
    return min((at for at in times if at is not None), default=None)


def stats(snapshot: Snapshot, due: Sequence[DueRuns]) -> Stats:
    """Return an overview of the store."""
    names, workers = snapshot.names, present_workers(snapshot)
    undelivered, owing = snapshot.all([("ZCARD", names("undelivered")), ("ZCARD", names("owing"))])
    return Stats(
        now=snapshot.now,
        by_status={status.value: 0 for status in Status} | counts(snapshot, None).by_status(),
        workers=tuple(workers),
        oldest_due_at=_first(one.oldest_due_at for one in due),
        unclaimable=unclaimable(due, workers, limiting.Limiting(snapshot).rules()),
        undelivered=min(DUE_COUNTED, undelivered) + min(DUE_COUNTED, owing),
    )
