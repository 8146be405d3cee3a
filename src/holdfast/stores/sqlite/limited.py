"""claim where limits or registry entries are set: what may be taken, in the order of the queue or of turns.

Runs are first read in plain order. Once too many of them were held back the walk goes lane by lane instead,
and a lane that is full, of a tenant or a key, is passed over as a whole.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from functools import cached_property

from holdfast.records import Ask, Instant
from holdfast.stores.rules import Entry, Rooms, Rule, Rules, Shares, Used

from . import walks
from .database import Database, Row, text
from .sql import statements
from .walks import Walk

_SQL = statements("limited")
NONE = Rules((), ())
PATIENCE = 50  # how many runs that are held back one stream reads before it goes lane by lane


def rules_of(db: Database, mark: int | None) -> Rules:
    """What is set, read anew when it has changed."""
    if mark is None:
        return NONE
    if db.rules is None or db.rules[0] != mark:
        entries = (Entry(name, runtime, bool(enabled)) for name, runtime, enabled in db.all(_SQL["registry"]))
        db.rules = (mark, Rules(entries, (Rule(*row) for row in db.all(_SQL["limits"]))))
    return db.rules[1]


def mark_of(db: Database) -> int | None:
    row = db.one(_SQL["mark"])
    return None if row is None else row[0]


def rooms_of(db: Database, now: Instant, rules: Rules) -> Rooms:
    counts: dict[str, dict[str, int]] = {}

    def leased(scope: str, name: str) -> int:
        if scope == "key":
            row = db.one(_SQL["leased_key"], (name,))
            return 0 if row is None else row[0]
        if not counts:
            counts.update(_leased(db))
        return counts[scope].get(name, 0)

    def spent(scope: str, name: str, rate: int, period: int) -> Used:
        return _used(db, now, (scope, name), rate, period)

    return Rooms(rules, now, leased, spent)


def _leased(db: Database) -> dict[str, dict[str, int]]:
    types: dict[str, int] = {}
    tenants: dict[str, int] = {}
    for type_, tenant, count in db.all(_SQL["leased"]):
        types[type_] = types.get(type_, 0) + count
        tenants[tenant] = tenants.get(tenant, 0) + count
    return {"type": types, "tenant": tenants}


def _used(db: Database, now: Instant, of: tuple[str, str], rate: int, period: int) -> Used:
    scope, name = of
    window = {"scope": scope, "name": name, "since": now - period}
    row = db.one(_SQL["used"], {**window, "until": now + period})
    if row is None:
        return Used(0, now)
    last, before = row
    if last - before < rate:
        return Used(last - before, now)
    oldest = db.one(_SQL["free"], {**window, "number": last - rate})
    return Used(last - before, now if oldest is None else oldest[0] + period)


class Limited:
    """One claim, or a look at what one would find."""

    def __init__(self, db: Database, now: Instant, ask: Ask, mark: int) -> None:
        self._db, self._now, self._ask = db, now, ask
        self._rules = rules_of(db, mark)
        self._rooms = rooms_of(db, now, self._rules)
        self._taken: set[str] = set()

    @cached_property
    def _shares(self) -> Shares:
        passed = self._db.one(_SQL["passed"])
        return Shares(self._rules, passed[0] if passed is not None else 0, dict(self._db.all(_SQL["shares"])))

    @cached_property
    def _types(self) -> list[str]:
        return [
            each for each in dict.fromkeys(self._ask.types) if self._rules.open_to(each, self._ask.runtime)
        ]

    @cached_property
    def _tenants(self) -> list[str]:
        if self._ask.tenants is not None:
            return list(dict.fromkeys(self._ask.tenants))
        return [row[0] for row in self._db.all(_SQL["tenants"])]

    def fitting(self) -> Iterator[Row]:
        """Due runs that fit, best first; each counts as taken by the time the next one is asked for."""
        for row in self._in_turn() if self._rules.weighs else self._in_order():
            if not self._rooms.full(*row[4:7]):
                yield row

    def take(self, row: Row) -> None:
        """Count it in."""
        self._taken.add(row[2])
        self._rooms.take(*row[4:7])
        if self._rules.weighs:
            self._shares.take(row[5])

    def _in_order(self) -> Iterator[Row]:
        tenants = [None] if self._ask.tenants is None else self._tenants
        return heapq.merge(*(self._stream(tenant, each) for tenant in tenants for each in self._types))

    def _in_turn(self) -> Iterator[Row]:
        """The tenant whose turn it is, each time anew. Nothing is read for one whose turn does not come."""
        turns = [self._shares.turn(tenant) for tenant in self._tenants]
        heapq.heapify(turns)
        queues: dict[str, Iterator[Row]] = {}
        while turns:
            _, tenant = heapq.heappop(turns)
            if tenant not in queues:
                queues[tenant] = heapq.merge(*(self._stream(tenant, each) for each in self._types))
            row = next(queues[tenant], None)
            if row is not None:
                yield row
                heapq.heappush(turns, self._shares.turn(tenant))

    def _stream(self, tenant: str | None, type_: str) -> Iterator[Row]:
        held_back = 0
        for row in self._plain(tenant, type_):
            if not self._rooms.full(*row[4:7]):
                yield row
                continue
            held_back += 1
            if held_back > PATIENCE:
                break
            if self._rooms.full(type_, tenant):
                return
        else:
            return
        yield from heapq.merge(*self._lanes(tenant, type_))

    def _plain(self, tenant: str | None, type_: str) -> Iterator[Row]:
        begin = None if self._rooms.full(type_, tenant) else walks.first(self._db, tenant, type_)
        if begin is None:
            return iter(())
        streams = walks.opened(self._db, self._now, tenant, type_, begin, named=True)
        return streams[0] if len(streams) == 1 else heapq.merge(*streams)

    def _lanes(self, tenant: str | None, type_: str) -> Iterator[Iterator[Row]]:
        for each in self._tenants if tenant is None else [tenant]:
            if not self._rooms.full(type_, each):
                for key in (None, *self._keys(each, type_)):
                    if not self._rooms.full(type_, each, key):
                        yield self._lane(each, type_, key)

    def _lane(self, tenant: str, type_: str, key: str | None) -> Iterator[Row]:
        for row in walks.due(self._db, self._now, walks.lane(tenant, type_, key), named=True):
            if self._rooms.full(type_, tenant, key):
                return
            if row[2] not in self._taken:  # it was read in plain order before
                yield row

    def _keys(self, tenant: str, type_: str) -> list[str]:
        return [row[0] for row in self._db.all(_SQL["keys"], {"tenant": tenant, "type": type_})]

    def opens_at(self) -> Instant | None:
        """When something may next fit."""
        times = (
            (walks.next_run_at(self._db, walk), opens_at)
            for type_ in self._types
            for walk, opens_at in self._opening(type_)
            if opens_at is not None
        )
        return min((max(run_at, opens_at) for run_at, opens_at in times if run_at is not None), default=None)

    def _opening(self, type_: str) -> Iterator[tuple[Walk, Instant | None]]:
        """The walks of a type that have to be told apart, and from when on each may be taken."""
        rooms, scopes = self._rooms, self._rules.scopes
        if self._ask.tenants is None and not scopes & {"tenant", "key"}:
            yield walks.of_type(type_), rooms.opens_at(type_)
            return
        for tenant in self._tenants:
            if "key" in scopes:
                for key in (None, *self._keys(tenant, type_)):
                    yield walks.lane(tenant, type_, key), rooms.opens_at(type_, tenant, key)
            else:
                for walk in walks.all_of(tenant, type_):
                    yield walk, rooms.opens_at(type_, tenant)

    def note(self) -> None:
        """What has to be remembered of the claims that were made."""
        rated = list(self._rooms.rated())
        for room in rated:
            period = room.period or 0
            of = {"scope": room.scope, "name": room.name}
            self._db.run(_SQL["go_back"], {**of, "until": self._now + period})
            self._db.run(_SQL["use"], {**of, "now": self._now, "taken": room.taken, "period": period})
        if rated:
            self._db.run(_SQL["forget_used"], (self._now,))
        if self._rules.weighs and self._taken:
            self._note_shares()

    def _note_shares(self) -> None:
        shares = self._shares
        ahead = [(tenant, at) for tenant in shares.moved if (at := shares.tenants[tenant]) > shares.passed]
        self._db.run(_SQL["set_passed"], (shares.passed,))
        self._db.run(_SQL["set_shares"], (text(ahead),))
        self._db.run(_SQL["drop_shares"], (shares.passed,))
