"""Metrics of the whole store, read when they are asked for, by verbs whose cost does not grow with the runs.

The reads of one app and event loop are shared: an answer serves every scrape for a second, and while one read
is under way no second one begins. So neither many scrapers nor a store that hangs can pile up reads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from weakref import WeakKeyDictionary

from holdfast.contract import Store
from holdfast.engine.app.client import StoreClient
from holdfast.errors import HoldfastError
from holdfast.escaping import safe_logger
from holdfast.lifecycle import FINAL, Status
from holdfast.records import (
    ANY,
    SECOND,
    Backlog,
    Counts,
    Instant,
    Limit,
    RunFilter,
    Scale,
    Stats,
    Tenant,
    instant,
)

from . import catalog
from .catalog import LABELS_MAX, OTHER, TENANTS_MAX, Metric
from .recorder import Family

log = safe_logger("holdfast.metrics")

FRESH_SECONDS = 1.0  # an answer serves all scrapes for so long
DEADLINE_SECONDS = 5.0  # a scrape waits so long for the store, and then says that it is down
LEASED_MAX = 5000  # leased runs that are looked at for limits of keys
AT_ONCE = 4  # reads of tenants at the same time
SCHEDULES_MAX = 100

Asked = tuple[Tenant, bool]
Labels = tuple[str, ...]


class StoreReader:
    """Reads the metrics of one store, on one event loop."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self.store, self._clock = store, clock
        self._reads: dict[Asked, asyncio.Task[list[Family]]] = {}
        self._answers: dict[Asked, tuple[float, list[Family]]] = {}

    async def families(self, tenant: Tenant, *, tenants: bool) -> list[Family]:
        """Return the metrics of the store; only `holdfast_store_up 0` when it does not answer in time."""
        asked = tenant, tenants
        made_at, answer = self._answers.get(asked, (0.0, None))
        if answer is not None and self._clock() - made_at < FRESH_SECONDS:
            return answer
        task = self._reads.get(asked)
        if task is None:
            task = self._reads[asked] = asyncio.get_running_loop().create_task(
                self._read(tenant, tenants=tenants), name="holdfast-metrics"
            )
            task.add_done_callback(lambda _: self._reads.pop(asked, None))
        await asyncio.wait([task], timeout=DEADLINE_SECONDS)
        if not task.done():
            log.warning("the store has not answered within %g s: its metrics are left out", DEADLINE_SECONDS)
            return [_up(0)]
        answer = task.result()
        # Only those that were asked for lately are kept: a tenant's answer is not kept for ever.
        now = self._clock()
        self._answers = {one: kept for one, kept in self._answers.items() if now - kept[0] < FRESH_SECONDS}
        self._answers[asked] = now, answer
        return answer

    async def _read(self, tenant: Tenant, *, tenants: bool) -> list[Family]:
        try:
            await self.store.open()
            return [_up(1), *await read(self.store, tenant, tenants=tenants)]
        except HoldfastError as error:
            log.warning("cannot read the metrics of the store: %s", error)
        except Exception:
            # Any error: the metrics of the process are shown all the same.
            log.exception("cannot read the metrics of the store")
        return [_up(0)]


_readers: WeakKeyDictionary[asyncio.AbstractEventLoop, WeakKeyDictionary[StoreClient, StoreReader]] = (
    WeakKeyDictionary()
)


async def families(app: StoreClient, tenant: Tenant, *, tenants: bool) -> list[Family]:
    """Return the metrics of the app's store."""
    readers = _readers.setdefault(asyncio.get_running_loop(), WeakKeyDictionary())
    reader = readers.get(app)
    if reader is None or reader.store is not app.store:
        # A bound method of the app would keep the app for ever.
        reader = readers[app] = StoreReader(app.store, app.world.monotonic)
    return await reader.families(tenant, tenants=tenants)


async def read(store: Store, tenant: Tenant, *, tenants: bool = False) -> list[Family]:
    """Read the metrics of a store; of one tenant only those of its runs."""
    scale = await store.scale(tenant)
    found: dict[Labels, Counts] = (
        await _by_tenant(store, scale, tenant) if tenants else {(): await store.counts(tenant)}
    )
    more = ("tenant",) if tenants else ()
    runs = [*_runs(found, more), *_queue(scale, found, more)]
    if tenant is not ANY:
        return runs
    stats, backlog, limits = await store.stats(), await store.backlog(), await store.limits()
    return [
        *runs,
        *_overview(stats),
        *_outbox(backlog, scale.now),
        Family(catalog.LIMITS_AT_CAP, {(): await _at_cap(store, limits, scale)}),
        Family(catalog.SCHEDULES_LATE, {(): await _schedules_late(store)}),
    ]


def _up(value: int) -> Family:
    return Family(catalog.STORE_UP, {(): value})


async def _by_tenant(store: Store, scale: Scale, tenant: Tenant) -> dict[Labels, Counts]:
    """Read the counts of tenants, at most TENANTS_MAX: of those with work now, with limits, with API keys."""
    names = dict.fromkeys(one.tenant for one in scale.items)
    if tenant is ANY:
        names |= dict.fromkeys(
            one.name for one in await store.limits() if one.scope == "tenant" and not one.name.endswith("%")
        )
        names |= dict.fromkeys(one.tenant for one in await store.keys(ANY, limit=1000) if one.tenant)
    else:
        names |= {str(tenant): None}
    few = asyncio.Semaphore(AT_ONCE)

    async def one(name: str) -> tuple[Labels, Counts]:
        async with few:
            return (name,), await store.counts(name)

    return dict(await asyncio.gather(*(one(name) for name in list(names)[:TENANTS_MAX])))


class _Sums:
    """Values by labels: at most LABELS_MAX types, all further ones under `other`."""

    def __init__(self, metric: Metric, more: Labels) -> None:
        self._metric, self._more = metric, more
        self._types: set[str] = set()
        self._values: dict[Labels, float] = {}

    def add(self, labels: Labels, number: float, *, largest: bool = False) -> None:
        type_ = labels[0] or OTHER  # the store itself names no type for what it has left out
        if type_ not in self._types and len(self._types) >= LABELS_MAX:
            type_ = OTHER
        self._types.add(type_)
        labels = (type_, *labels[1:])
        before = self._values.get(labels, 0)
        self._values[labels] = max(before, number) if largest else before + number

    def family(self) -> Family:
        return Family(self._metric, self._values, (*self._metric.labels, *self._more))


def _runs(found: dict[Labels, Counts], more: Labels) -> Iterable[Family]:
    started, finished, retried, expired, open_, suspended = (
        _Sums(metric, more)
        for metric in (
            catalog.RUNS_STARTED, catalog.RUNS_FINISHED, catalog.RUNS_RETRIED, catalog.LEASES_EXPIRED,
            catalog.RUNS_OPEN, catalog.RUNS_SUSPENDED,
        )
    )  # fmt: skip
    for tenant, counts in found.items():
        for type_, happened in _largest(counts.totals):
            started.add((type_, *tenant), happened.get("started", 0))
            retried.add((type_, *tenant), happened.get("retried", 0))
            expired.add((type_, *tenant), happened.get("expired", 0))
            for status in sorted(FINAL):
                finished.add((type_, status.value, *tenant), happened.get(status.value, 0))
        for type_, statuses in _largest(counts.by_type):
            for status in (one for one in Status if one not in FINAL):
                open_.add((type_, status.value, *tenant), statuses.get(status.value, 0))
            suspended.add((type_, *tenant), statuses.get(Status.WAITING.value, 0))
    return [one.family() for one in (started, finished, retried, expired, open_, suspended)]


def _largest(by_type: dict[str, dict[str, int]]) -> list[tuple[str, dict[str, int]]]:
    """Return the types with most runs first: those are named when there are too many."""
    return sorted(by_type.items(), key=lambda one: (-sum(one[1].values()), one[0]))


def _queue(scale: Scale, found: dict[Labels, Counts], more: Labels) -> Iterable[Family]:
    due, age = _Sums(catalog.DUE_RUNS, more), _Sums(catalog.QUEUE_AGE, more)
    # A type without due runs has a 0: a rule that scales workers needs a number.
    for tenant, counts in found.items():
        for type_ in counts.by_type:
            due.add((type_, *tenant), 0)
            age.add((type_, *tenant), 0.0)
    named: dict[str, None] = {}
    for one in scale.items:
        if more and len(named) >= TENANTS_MAX and one.tenant not in named:
            continue
        named[one.tenant] = None
        labels = (one.type, one.tenant) if more else (one.type,)
        late = 0.0 if one.oldest_due_at is None else max(0, scale.now - one.oldest_due_at) / SECOND
        due.add(labels, one.due)
        age.add(labels, late, largest=True)
    return [due.family(), age.family()]


def _overview(stats: Stats) -> Iterable[Family]:
    unclaimable = _Sums(catalog.UNCLAIMABLE, ())
    for type_, number in stats.unclaimable.items():
        unclaimable.add((type_,), number)
    return [
        unclaimable.family(),
        Family(catalog.WORKERS, {(): len(stats.workers)}),
        Family(catalog.UNDELIVERED, {(): stats.undelivered}),
    ]


def _outbox(backlog: Sequence[Backlog], now: Instant) -> Iterable[Family]:
    pending, lag, dead = (
        _Sums(metric, ()) for metric in (catalog.OUTBOX_PENDING, catalog.OUTBOX_LAG, catalog.OUTBOX_DEAD)
    )
    for one in backlog:
        pending.add((one.sink,), one.pending)
        late = 0.0 if one.oldest_at is None else max(0, now - one.oldest_at) / SECOND
        lag.add((one.sink,), late, largest=True)
        dead.add((one.sink,), one.dead)
    return [pending.family(), lag.family(), dead.family()]


async def _at_cap(store: Store, limits: Sequence[Limit], scale: Scale) -> int:
    """Count limits: paused, or as many runs of one of its names are leased as it allows."""
    leased: dict[tuple[str, str], int] = {}
    for item in scale.items:
        for name in (("type", item.type), ("tenant", item.tenant)):
            leased[name] = leased.get(name, 0) + item.leased
    if any(one.scope == "key" and one.concurrency is not None for one in limits):
        leased |= await _leased_keys(store)
    full = {
        rule
        for (scope, name), number in leased.items()
        if (rule := _rule(limits, scope, name)) is not None and number >= (rule.concurrency or 0)
    }
    paused = {one for one in limits if one.paused_until is not None and instant(one.paused_until) > scale.now}
    return len(full | paused)


def _rule(limits: Sequence[Limit], scope: str, name: str) -> Limit | None:
    """Return the limit whose concurrency counts for a name: its own, else that with the longest prefix."""
    of = [
        one
        for one in limits
        if one.scope == scope and one.concurrency is not None
        and (one.name == name or (one.name.endswith("%") and name.startswith(one.name[:-1])))
    ]  # fmt: skip
    return max(of, key=lambda one: (one.name == name, len(one.name)), default=None)


async def _leased_keys(store: Store) -> dict[tuple[str, str], int]:
    """Count leased runs by limit_key, among the newest LEASED_MAX."""
    where = RunFilter(statuses=(Status.LEASED,), tenant=ANY, values=False)
    found: dict[tuple[str, str], int] = {}
    after, looked_at = None, 0
    while looked_at < LEASED_MAX and (page := await store.list(where, 1000, after)):
        after, looked_at = page[-1].id, looked_at + len(page)
        for run in page:
            if run.limit_key is not None:
                found["key", run.limit_key] = found.get(("key", run.limit_key), 0) + 1
    return found


async def _schedules_late(store: Store) -> float:
    due = await store.due(())
    if due.fire_at is None or due.fire_at > due.now:
        return 0.0
    if due.fire_at > 0:
        return (due.now - due.fire_at) / SECOND
    # A queued time is due at once, and hides the others: they are looked up, as far as one page goes.
    times = [
        instant(at)
        for one in await store.due_schedules(SCHEDULES_MAX)
        for at in (one.next_at, *one.waiting[:1])
        if at is not None
    ]
    return max(0, due.now - min(times, default=due.now)) / SECOND


def forget(loop: asyncio.AbstractEventLoop) -> None:
    """Forget what was read on an event loop that ends."""
    with suppress(KeyError):
        del _readers[loop]
