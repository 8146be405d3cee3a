"""check_sets: compare the sets that lead to runs with the runs themselves, and rebuild them on request.

Scripts change a run and its sets together, so only another program, or a server that has lost a part of its
data, can make them differ. Everything is read in pages. What differs is looked at once more together with its
run, under the guards of a write: a run that moves meanwhile is no difference.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from functools import partial
from uuid import UUID

from holdfast.lifecycle import Status, StepKind
from holdfast.records import Finding
from holdfast.stores.redis import indexes
from holdfast.stores.redis.core import Core
from holdfast.stores.redis.held import ids
from holdfast.stores.redis.indexes import Entries
from holdfast.stores.redis.names import Names, unpart
from holdfast.stores.redis.rows import RunRow
from holdfast.stores.redis.snapshot import Snapshot
from holdfast.stores.redis.view import RedisView

PAGE = 100  # runs that are compared at once
ROWS = 1000  # rows of the trail that are read at once
SHOWN = 5  # runs that a finding names

Difference = tuple[str, UUID | None]  # an entry of a set, and its run


class SetsVerb(Core):
    """The verb `check_sets`, as a mixin of the store."""

    async def check_sets(self, *, repair: bool = False) -> list[Finding]:
        """Compare, and say what differs; repair: write it as the rows say. It reads all runs."""
        missing: list[Difference] = []
        async for runs in self._unlisted():
            missing += await self._change(partial(list_again, runs=runs, repair=repair))
        async for page in self._pages(self._names("runs"), PAGE):
            missing += await self._change(partial(compare, runs=ids(page), repair=repair))
        strays: list[Difference] = []
        async for key in self._sets():
            async for page in self._pages(key, PAGE):
                strays += await self._change(partial(look, key=key, members=page, repair=repair))
        async for counts, queues in self._lanes():
            strays += await self._change(partial(count_lanes, counts=counts, queues=queues, repair=repair))
        return [_finding(missing, strays, repair=repair)]

    async def _unlisted(self) -> AsyncIterator[list[UUID]]:
        """Yield runs by their first row in the trail, which no other set leads to."""
        after = 0
        while True:
            (members,) = await self._connections.ask(
                [("ZRANGEBYSCORE", self._names.trail, f"({after}", "+inf", "LIMIT", 0, ROWS)]
            )
            rows = [member.split(" ", 2) for member in members]
            created = [UUID(run) for _, run, what in rows if what == "created"]
            for at in range(0, len(created), PAGE):
                yield created[at : at + PAGE]
            if len(members) < ROWS:
                return
            after = int(rows[-1][0])

    async def _pages(self, key: str, size: int) -> AsyncIterator[list[str]]:
        """Yield the members of a set, in pages. Members that come and go may be left out."""
        left = 0
        while True:
            (members,) = await self._connections.ask([("ZRANGE", key, left, left + size - 1)])
            if members:
                yield members
            if len(members) < size:
                return
            (there,) = await self._connections.ask([("ZRANK", key, members[-1])])
            left = left + size if there is None else there + 1

    async def _sets(self) -> AsyncIterator[str]:
        """Yield the keys of the sets that can be named, among them all whose size or members a decision may
        depend on: those of limits, API keys, workers and open children."""
        for key in _whole(self._names):
            yield key
        async for tenants in self._pages(self._names("tenants"), PAGE):
            for tenant in tenants:
                async for key in self._of_tenant(tenant):
                    yield key
        async for kinds in self._pages(self._names("types"), PAGE):
            for kind in kinds:
                for parts in (("type", kind), ("queue", kind), ("leased", "type", kind)):
                    yield self._names.of(*parts)
        async for key in self._of_holders():
            yield key
        async for key in self._of_parents():
            yield key

    async def _of_parents(self) -> AsyncIterator[str]:
        async for runs in self._pages(self._names("runs"), ROWS):
            of_runs = [self._names("children:open", run) for run in runs]
            sizes = await self._connections.ask([("ZCARD", key) for key in of_runs])
            for key, size in zip(of_runs, sizes, strict=True):
                if size:
                    yield key

    async def _of_tenant(self, tenant: str) -> AsyncIterator[str]:
        for key in _of_tenant(self._names, tenant):
            yield key
        (fields,) = await self._connections.ask([("HKEYS", self._names.of("counts", tenant))])
        for kind in dict.fromkeys(unpart(field.partition(":")[0]) for field in fields):
            yield self._names.of("queue", kind, tenant)
            for end, queue in (await self._lanes_of(kind, tenant)).items():
                yield queue
                if (limit_key := indexes.key_of(end)) is not None:  # a lane that may be held back
                    yield self._names.of("leased", "key", limit_key)

    async def _of_holders(self) -> AsyncIterator[str]:
        (workers,) = await self._connections.ask([("HKEYS", self._names("workers"))])
        for worker in workers:
            yield self._names.of("leased:worker", worker)
        async for api_keys in self._pages(self._names("apikeys:ids"), PAGE):
            for api_key in api_keys:
                yield self._names.of("open:key", api_key)

    async def _lanes(self) -> AsyncIterator[tuple[str, dict[str, str]]]:
        """Yield each set that counts pending runs, with the queues that it counts, by its members."""
        names = self._names
        async for kinds in self._pages(names("types"), PAGE):
            for kind in kinds:
                async for tenants in self._pages(names("tenants"), PAGE):
                    yield names.of("lanes", kind), {one: names.of("queue", kind, one) for one in tenants}
                    for tenant in tenants:
                        yield names.of("lanes", kind, tenant), await self._lanes_of(kind, tenant)

    async def _lanes_of(self, kind: str, tenant: str) -> dict[str, str]:
        """Return the queues of the lanes of a type and tenant, by the ends of their names."""
        lane = self._names.of("lane", kind, tenant)
        (ends,) = await self._connections.ask([("ZRANGE", self._names.of("lanes", kind, tenant), 0, -1)])
        return {end: lane + end for end in ("", *ends)}


def _whole(names: Names) -> list[str]:
    plain = ("runs", "timeouts", "owing", "expiring", "ended", "deleted", "pending", "leases", "timers",
             "timers:plans", "approvals")  # fmt: skip
    return [
        *map(names, plain),
        *(names("status", status) for status in Status),
        *(names("waiting", kind.value) for kind in StepKind),
    ]


def _of_tenant(names: Names, tenant: str) -> list[str]:
    kinds = ("tenant", "approvals", *(f"status:{status}" for status in Status))
    return [*(names.of(kind, tenant) for kind in kinds), names.of("leased", "tenant", tenant)]


def entries(view: RedisView, row: RunRow, labels: str | None) -> Entries:
    """Return all entries that a run must have."""
    found: Entries = {(key, str(row.id)): 0 for key in indexes.fixed(view.names, row, labels)}
    found |= indexes.of_run(view.names, row)
    for step in view.open_steps(row):
        found |= indexes.of_step(view.names, row, step)
    return found


def list_again(snapshot: Snapshot, runs: Sequence[UUID], *, repair: bool) -> list[Difference]:
    """Return stored runs that the set of all runs lacks."""
    names = snapshot.names
    scores = snapshot.all([("ZSCORE", names("runs"), str(run)) for run in runs])
    lost = [run for run, score in zip(runs, scores, strict=True) if score is None]
    stored = snapshot.all([("HGET", names.run(run), "rev") for run in lost])
    found: list[Difference] = []
    for run, rev in zip(lost, stored, strict=True):
        if rev is not None:
            _depend(snapshot, run, ("rev", rev))
            snapshot.guard(("ZSCORE", names("runs"), str(run)), None)
            _settle(snapshot, repair, "ZADD", names("runs"), 0, str(run))
            # Without a repair no other check would come to the run.
            found.append((names("runs"), run))
    return found


def compare(snapshot: Snapshot, runs: Sequence[UUID], *, repair: bool) -> list[Difference]:
    """Return the entries that these runs should have and do not have."""
    view, names = RedisView(snapshot), snapshot.names
    asked = [("HGET", names.run(run), "labels") for run in runs]
    labels = snapshot.all([*asked, *view.commands(runs)])[: len(runs)]
    stored = zip(map(view.run, runs), labels, strict=True)
    rows = [(row, text) for row, text in stored if row is not None]
    wanted = snapshot.each(rows, lambda one: entries(view, *one))
    sought = [("ZSCORE", *entry) for of_run in wanted for entry in of_run]
    scores = dict(zip(sought, snapshot.all(sought), strict=True))
    found: list[Difference] = []
    for (row, _), of_run in zip(rows, wanted, strict=True):
        for (key, member), score in of_run.items():
            there = scores["ZSCORE", key, member]
            if there is None or float(there) != float(score):  # a score is a double: large ones are rounded
                _depend(snapshot, row.id, *_state(row))
                snapshot.guard(("ZSCORE", key, member), there)
                _settle(snapshot, repair, "ZADD", key, score, member)
                found.append((key, row.id))
    return found


def look(snapshot: Snapshot, key: str, members: Sequence[str], *, repair: bool) -> list[Difference]:
    """Return the members of a set that their runs do not have."""
    view, of_queue = RedisView(snapshot), key.startswith((snapshot.names("queue"), snapshot.names("lane")))
    runs = [UUID(member[-36:] if of_queue else member[:36]) for member in members]
    view.prefetch(runs)
    rows = [row for run in dict.fromkeys(runs) if (row := view.run(run)) is not None]
    wanted = dict(zip((row.id for row in rows), snapshot.each(rows, partial(_entries, view)), strict=True))
    found: list[Difference] = []
    for member, run in zip(members, runs, strict=True):
        if (key, member) not in wanted.get(run, {}):
            row = view.run(run)
            _depend(snapshot, run, *(_state(row) if row is not None else (("rev", None),)))
            _settle(snapshot, repair, "ZREM", key, member)
            found.append((key, run))
    return found


def _entries(view: RedisView, row: RunRow) -> Entries:
    return entries(view, row, None)


def count_lanes(snapshot: Snapshot, counts: str, queues: dict[str, str], *, repair: bool) -> list[Difference]:
    """Return the queues whose number of pending runs is kept wrongly."""
    found = list[Difference]()
    answers = snapshot.all([
        *(("ZSCORE", counts, member) for member in queues), *(("ZCARD", queue) for queue in queues.values()),
    ])  # fmt: skip
    kept, real = answers[: len(queues)], answers[len(queues) :]
    for (member, queue), number, size in zip(queues.items(), kept, real, strict=True):
        if int(float(number or 0)) != size:
            snapshot.new_group()
            snapshot.guard(("ZSCORE", counts, member), number)
            snapshot.guard(("ZCARD", queue), size)
            words = ("ZADD", counts, size, member) if size else ("ZREM", counts, member)
            _settle(snapshot, repair, *words)
            found.append((counts, None))
    return found


def _depend(snapshot: Snapshot, run: UUID, *fields: tuple[str, object]) -> None:
    """Begin a change that depends on one run alone: others of the page may move meanwhile."""
    snapshot.new_group()
    for field, value in fields:
        snapshot.guard(("HGET", snapshot.names.run(run), field), value)


def _state(row: RunRow) -> tuple[tuple[str, object], ...]:
    # A plain checkpoint changes `writes`, and `rev` only if it extends the lease.
    return ("rev", row.rev), ("writes", row.writes), ("lease_until", row.lease_until)


def _settle(snapshot: Snapshot, repair: bool, command: str, key: str, *words: object) -> None:  # noqa: FBT001
    """Write a correction. Without repair, only the guards are compared."""
    if repair:
        snapshot.do(command, key, *words)
    else:
        snapshot.do_once("EXISTS", key)


def _finding(missing: Sequence[Difference], strays: Sequence[Difference], *, repair: bool) -> Finding:
    if not missing and not strays:
        return Finding(level="ok", what="the sets that lead to runs agree with all runs")
    what = "; ".join(
        f"{len(some):,} {text}: {', '.join(dict.fromkeys(key for key, _ in some[:SHOWN]))}"
        for some, text in ((missing, "entries of runs are missing in sets"), (strays, "entries lead nowhere"))
        if some
    )
    runs = tuple(dict.fromkeys(run for _, run in (*missing, *strays) if run is not None))[:SHOWN]
    if not repair:
        return Finding(level="error", what=what, mend="`holdfast doctor --repair` rebuilds them", runs=runs)
    return Finding(
        level="warning", what=f"{what}; they are rebuilt", runs=runs,
        mend="Holdfast never leaves sets like this: find the program that has changed the server's keys",
    )  # fmt: skip
