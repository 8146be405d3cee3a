"""Claims by the machine: due runs in the order of the queues, as far as registry and limits allow."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from uuid import UUID

from holdfast.lifecycle import Status
from holdfast.machine import claiming as machine
from holdfast.machine.durations import micros
from holdfast.machine.rows import shown
from holdfast.records import Ask, Claim, Instant
from holdfast.stores.claiming.capacity import Capacities
from holdfast.stores.claiming.shares import Shares
from holdfast.stores.redis import indexes
from holdfast.stores.redis.indexes import placed
from holdfast.stores.redis.names import Names
from holdfast.stores.redis.rows import LARGE, RunRow
from holdfast.stores.redis.snapshot import Command, Snapshot
from holdfast.stores.redis.view import RedisView

from . import limiting

PAGE = 100  # members of a queue that are read at once
PATIENCE = 300  # runs that do not fit and are read before a claim goes lane by lane
FEW = 10  # the same where so few lanes have room
SOME = 5  # runs of one queue of many that are read at once
MANY = 100  # queues that are read at once before it is known which of them count
Found = tuple[str, RunRow]  # a member of a queue, and its run


def claim(
    snapshot: Snapshot, ask: Ask, crashes: Sequence[int], *, weighs: bool = False
) -> tuple[list[RunRow], list[Claim], bool]:
    """Take due runs. Return their rows and claims, and True when each is a change of its own. weighs: tenants
    have weights, probably.

    `crashes`: those of runs that this claim has taken before.
    """
    snapshot.prefetch(_commands(snapshot.names, ask, weighs=weighs))
    view = RedisView(snapshot)
    book = limiting.Limiting(snapshot)
    capacities = book.capacities(view.now)
    book.prefetch(capacities, [(type, None, None) for type in ask.types])
    types = [type for type in dict.fromkeys(ask.types) if capacities.rules.open_to(type, ask.runtime)]
    due, shares = _due(view, ask, types, capacities, book)
    taken: list[RunRow] = []
    crashed = list(crashes)
    for row in due:
        if len(taken) >= ask.limit:
            break
        named = (row.type, row.tenant, row.limit_key)
        if not capacities.full(*named) and not _too_many_crashed(ask.crashed, crashed, row):
            taken.append(row)
            crashed.append(row.crashes)
            capacities.take(*named)
            shares.take(row.tenant) if capacities.rules.weighs else None
    claims = _taken(view, ask, taken)
    apart = not capacities.rules.scopes and not capacities.rules.weighs
    view.save(taken if apart else None)
    if taken and apart:
        book.depend_each()
    elif taken:
        book.note_claims(capacities, view.now)
        if capacities.rules.weighs:
            book.note_turns(ask, shares, view.now)
        book.depend()
    return taken, claims, apart


def _commands(names: Names, ask: Ask, *, weighs: bool) -> list[Command]:
    """Return the commands that read what each claim needs."""
    types = [*dict.fromkeys(ask.types)]
    found = limiting.commands(names)
    if weighs:
        lanes = [("ZRANGE", names.of("lanes", type), 0, -1) for type in types]
        return [*found, *lanes, ("HGETALL", names("books"))]
    return [*found, *(_page(queue, "-", ask.limit) for queue in queues_of(names, ask, types))]


def _due(
    view: RedisView, ask: Ask, types: Sequence[str], capacities: Capacities, book: limiting.Limiting
) -> tuple[Iterator[RunRow], Shares]:
    free = [type for type in types if not capacities.full(type)]
    due = Due(view, ask, free, capacities, book)
    if not capacities.rules.weighs:
        return due.in_order(), book.shares(capacities.rules, ask, (), view.now)
    found = view.snapshot.all([("ZRANGE", view.names.of("lanes", type), 0, -1) for type in types])
    tenants = sorted({tenant for lane in found for tenant in lane})
    if ask.tenants is not None:
        tenants = [tenant for tenant in tenants if tenant in ask.tenants]
    queues = [view.names.of("queue", type, tenant) for tenant in tenants for type in types]
    if len(queues) <= MANY:
        pages = [
            _page(view.names.of("queue", type, tenant), "-", due.size(len(queues)))
            for tenant in tenants for type in free
        ]  # fmt: skip
        view.snapshot.prefetch([*pages, *(("heads", queue) for queue in queues)])
    firsts = dict(zip(queues, heads(view.snapshot, queues), strict=True))
    # A tenant that a limit holds back keeps its place, also if no run of its types may be claimed.
    waiting = [
        tenant for tenant in tenants
        if any(at <= view.now for type in types for _, at in firsts[view.names.of("queue", type, tenant)])
    ]  # fmt: skip
    shares = book.shares(capacities.rules, ask, waiting, view.now)
    # Only a tenant with a due run of a type that has room can have a turn.
    ready = [
        tenant for tenant in waiting
        if any(at <= view.now for type in free for _, at in firsts[view.names.of("queue", type, tenant)])
    ]  # fmt: skip
    first = sorted(ready, key=shares.turn)[: ask.limit]
    due.prefetch([view.names.of("queue", type, tenant) for tenant in first for type in free], len(queues))
    return _in_turn(due, ready, shares), shares


class Due:
    """The due runs that a claim under limits finds. The caller takes each that fits before it asks for the
    next.

    Runs are read in queue order first. After too many runs that do not fit, the claim goes lane by lane, and
    skips a full lane as a whole: its cost does not grow with the runs that wait behind a limit.
    """

    def __init__(
        self,
        view: RedisView,
        ask: Ask,
        types: Sequence[str],
        capacities: Capacities,
        book: limiting.Limiting,
    ) -> None:
        self._view, self._ask, self._types, self._capacities = view, ask, types, capacities
        self._book = book
        self._patience, self._size = PATIENCE, ask.limit

    def size(self, queues: int) -> int:
        """Return how many runs of each of so many queues are read at once."""
        return max(SOME, -(-self._ask.limit // max(1, queues)))

    def prefetch(self, queues: Sequence[str], among: int = 0) -> None:
        """Read the first runs of these queues together. `among`: so many queues."""
        self._size = self.size(among if 0 < among <= MANY else len(queues))
        self._prefetch(queues, self._size)

    def _prefetch(self, queues: Sequence[str], size: int) -> None:
        """Read the first due runs of several queues together, and what the limits say about them."""
        view = self._view
        pages = view.snapshot.all([_page(queue, "-", size) for queue in queues])
        places = [[placed(member) for member in page] for page in pages]
        view.snapshot.prefetch(  # of queues whose first runs are not due
            ("heads", queue)
            for queue, page in zip(queues, places, strict=True)
            if any(run_at > view.now for _, run_at, _ in page)
        )
        self._read([UUID(id_) for page in places for _, run_at, id_ in page if run_at <= view.now])

    def _read(self, runs: Sequence[UUID]) -> None:
        self._view.prefetch(runs)
        found = (row for run in runs if (row := self._view.peek(run)) is not None)
        self._book.prefetch(self._capacities, ((row.type, row.tenant, row.limit_key) for row in found))

    def in_order(self) -> Iterator[RunRow]:
        tenants = [None] if self._ask.tenants is None else [*dict.fromkeys(self._ask.tenants)]
        self.prefetch(queues_of(self._view.names, self._ask, self._types))
        return self._merged(self._stream(type, tenant) for tenant in tenants for type in self._types)

    def of(self, tenant: str) -> Iterator[RunRow]:
        return self._merged(self._stream(type, tenant) for type in self._types)

    def _merged(self, streams: Iterable[Iterator[Found]]) -> Iterator[RunRow]:
        return (row for _, row in heapq.merge(*streams, key=lambda found: found[0]))

    def _full(self, row: RunRow) -> bool:
        return self._capacities.full(row.type, row.tenant, row.limit_key)

    def _stream(self, type: str, tenant: str | None) -> Iterator[Found]:
        names = self._view.names
        queue = names.of("queue", type) if tenant is None else names.of("queue", type, tenant)
        seen: set[UUID] = set()
        unfit = 0
        for found in _found(self._view, queue, self._size, self._read):
            row = found[1]
            if not self._full(row):
                seen.add(row.id)
                yield found
                continue
            if self._capacities.full(type, tenant):
                return
            self._patience -= 1
            unfit += 1
            if self._patience < 0 or (unfit == FEW and len(self._with_room(type, tenant)) <= FEW):
                break
        else:
            return
        for found in self._lane_by_lane(type, tenant):
            if found[1].id not in seen:
                yield found

    def _with_room(self, type: str, tenant: str | None) -> list[str]:
        """Return the queues of the lanes that no limit holds back."""
        lanes = lanes_of(self._view.snapshot, type, tenant)
        self._book.prefetch(self._capacities, lanes)
        return [indexes.lane(self._view.names, *lane) for lane in lanes if not self._capacities.full(*lane)]

    def _lane_by_lane(self, type: str, tenant: str | None) -> Iterator[Found]:
        lanes = self._with_room(type, tenant)
        self._prefetch(lanes, SOME)
        return heapq.merge(*map(self._lane, lanes), key=lambda found: found[0])

    def _lane(self, queue: str) -> Iterator[Found]:
        for found in _found(self._view, queue, SOME, self._read):
            if self._full(found[1]):
                return
            yield found


def lanes_of(snapshot: Snapshot, type: str, tenant: str | None) -> list[tuple[str, str, str | None]]:
    """Return the lanes of a type that have pending runs, or those of a type and tenant."""
    names = snapshot.names
    tenants = [tenant] if tenant is not None else snapshot.read("ZRANGE", names.of("lanes", type), 0, -1)
    ends = snapshot.all([("ZRANGE", names.of("lanes", type, one), 0, -1) for one in tenants])
    return [
        (type, one, indexes.key_of(end)) for one, found in zip(tenants, ends, strict=True) for end in found
    ]


def queues_of(names: Names, ask: Ask, types: Iterable[str]) -> list[str]:
    if ask.tenants is None:
        return [names.of("queue", type) for type in types]
    return [names.of("queue", type, tenant) for type in types for tenant in dict.fromkeys(ask.tenants)]


def _in_turn(due: Due, tenants: Iterable[str], shares: Shares) -> Iterator[RunRow]:
    """Yield runs by turns of the tenants. The caller's `take` moves a tenant on. Nothing is read for a tenant
    whose turn does not come."""
    lanes: dict[str, Iterator[RunRow]] = {}
    left = set(tenants)
    while left:
        tenant = min(left, key=shares.turn)
        if tenant not in lanes:
            lanes[tenant] = due.of(tenant)
        row = next(lanes[tenant], None)
        if row is None:
            left.remove(tenant)
        else:
            yield row


def _page(queue: str, after: str, limit: int) -> tuple[str | int, ...]:
    return ("ZRANGEBYLEX", queue, after, "+", "LIMIT", 0, min(max(limit, 1), PAGE))


def _found(
    view: RedisView, queue: str, limit: int, read: Callable[[Sequence[UUID]], None]
) -> Iterator[Found]:
    """Yield the due runs of one queue, in order, with their members."""
    for member in _members(view, queue, limit, read):
        row = view.run(UUID(placed(member)[2]))
        # The row was read after the queue: another worker may have it by now.
        is_there = row is not None and row.status is Status.PENDING and row.deleted_at is None
        if row is not None and is_there and row.run_at <= view.now:
            yield member, row


def _members(
    view: RedisView, queue: str, limit: int, read: Callable[[Sequence[UUID]], None]
) -> Iterator[str]:
    """Yield the due members of one queue. Members that are not due are skipped, up to the next priority that
    has some. `limit`: of the first page. The next ones grow: there may be very many that do not fit."""
    snapshot, now, after = view.snapshot, view.now, "-"
    while True:
        size = min(max(limit, 1), PAGE)
        page = snapshot.read(*_page(queue, after, size))
        due: list[str] = []
        is_cut, is_last = False, len(page) < size
        for member in page:
            priority, run_at, _ = placed(member)
            if run_at > now:
                (firsts,) = heads(snapshot, [queue])
                later = [one for one, at in firsts if one > priority and at <= now]
                after, is_cut = f"[{min(later, default=0):03d}:", True
                is_last = not later
                break
            due.append(member)
        read([UUID(placed(member)[2]) for member in due])
        yield from due
        if is_last:
            return
        if not is_cut:
            after, limit = f"({page[-1]}", 2 * size


def heads(snapshot: Snapshot, queues: Sequence[str]) -> list[list[tuple[int, Instant]]]:
    """Return, for each of these queues, its priorities, and the time of the first run of each."""
    found = snapshot.all([("heads", queue) for queue in queues])
    return [[placed(member)[:2] for member in one] for one in found]


def _too_many_crashed(allowed: Sequence[int] | None, taken: Sequence[int], row: RunRow) -> bool:
    """Return True when for some k the claim already has as many runs with k crashes as the worker accepts."""
    if not allowed:
        return False
    return any(
        sum(other >= k for other in taken) >= allowed[min(k, len(allowed)) - 1]
        for k in range(1, row.crashes + 1)
    )


def _taken(view: RedisView, ask: Ask, taken: Sequence[RunRow]) -> list[Claim]:
    snapshot, names = view.snapshot, view.names
    # No fence of this epoch may be one that a server has given and lost: see scripts/epoch.lua.
    epoch = snapshot.epoch
    left, sizes = ask.bytes, []
    for row in taken:
        sizes.append(row.bytes <= left)
        left -= row.bytes if row.bytes <= left else 0
    fitting = [row for row, read in zip(taken, sizes, strict=True) if read]
    found = snapshot.all([
        *(("HMGET", names.run(row.id), *LARGE[:2]) for row in fitting),
        *(("HGETALL", names.steps(row.id)) for row in fitting if row.seq or row.is_plan),
    ])  # fmt: skip
    values = {row.id: (texts[0] or "null", texts[1]) for row, texts in zip(fitting, found, strict=False)}
    claims = []
    for row, read in zip(taken, sizes, strict=True):
        row.fence = max(row.fence, epoch)
        machine.claim(view, row, ask.worker, view.now + micros(ask.lease_seconds))
        claims.append(_shown(view, row, values.get(row.id, ("null", None)), read=read))
    return claims


def _shown(view: RedisView, row: RunRow, values: tuple[str, str | None], *, read: bool) -> Claim:
    assert row.lease_until is not None
    account = None if row.account is None else view.account(row.account)
    steps = view.outline(row) if read and (row.seq or row.is_plan) else ()
    return Claim(
        id=row.id, type=row.type, tenant=row.tenant, params=values[0] if read else "null", fence=row.fence,
        attempt=row.attempt, crashes=row.crashes, max_attempts=row.max_attempts,
        created_at=row.created_at, lease_until=row.lease_until, timeout_at=row.timeout_at,
        kind=row.kind, parent=row.parent, cost=row.cost, budget=row.budget,
        account=row.account, left=None if account is None else account.budget - account.spent,
        labels_json=values[1] if read else None, trace=row.trace, unread=not read,
        steps=tuple(map(shown, steps)), logs=row.logs, run_at=row.run_at,
    )  # fmt: skip
