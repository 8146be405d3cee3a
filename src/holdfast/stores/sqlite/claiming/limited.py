"""One claim where limits or registry entries are set: due runs that fit, in queue order or by turns.

Runs are read in queue order first. After too many runs that do not fit, the claim goes lane by lane instead
and skips a full lane as a whole.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from functools import cached_property

from holdfast.records import Ask, Instant
from holdfast.stores.claiming.shares import Shares, book_of, kept_since
from holdfast.stores.sqlite.connection.database import Database, Row, text
from holdfast.stores.sqlite.sql import statements

from . import lanes, walks
from .capacity import capacities_of, rules_of

_SQL = statements("claiming/limited")
PATIENCE = 1000  # runs that do not fit and are read before the claim goes lane by lane
LOOK_PATIENCE = 250  # the same for a look without a write, which runs on the caller's event loop
FORGET = 100  # rows of old uses that a claim removes, or twice as many as it adds


class Limited:
    """One claim, or (deep=False) a look at what a claim would find."""

    def __init__(self, db: Database, now: Instant, ask: Ask, revision: int, *, deep: bool = True) -> None:
        self._db, self._now, self._ask = db, now, ask
        self._rules = rules_of(db, revision)
        self.capacities = capacities_of(db, now, self._rules)
        self._taken: set[str] = set()
        self._patience, self._deep = PATIENCE if deep else LOOK_PATIENCE, deep
        self.unsure = False  # a look ended where a claim would go lane by lane

    @cached_property
    def types(self) -> list[str]:
        return [
            each for each in dict.fromkeys(self._ask.types) if self._rules.open_to(each, self._ask.runtime)
        ]

    @cached_property
    def tenants(self) -> list[str | None]:
        return [None] if self._ask.tenants is None else list(dict.fromkeys(self._ask.tenants))

    def fitting(self) -> Iterator[Row]:
        """Yield due runs that fit, best first. The caller calls `take` before it asks for the next run."""
        # Turns do not matter to a look.
        for row in self._in_turn() if self._rules.weighs and self._deep else self._in_order():
            if not self._full(row):
                yield row

    def take(self, row: Row) -> None:
        """Count a run that the claim takes."""
        self._taken.add(row[2])
        self.capacities.take(*row[4:7])
        if self._rules.weighs and self._deep:
            self._shares.take(row[5])

    def _full(self, row: Row) -> bool:
        return self.capacities.full(*row[4:7])

    def _in_order(self) -> Iterator[Row]:
        return heapq.merge(*(self._stream(tenant, each) for tenant in self.tenants for each in self.types))

    def _in_turn(self) -> Iterator[Row]:
        """Yield runs by turns of the tenants. Nothing is read for a tenant whose turn does not come."""
        turns = [self._shares.turn(tenant) for tenant in self._shares.places]
        heapq.heapify(turns)
        queues: dict[str, Iterator[Row]] = {}
        while turns:
            _, tenant = heapq.heappop(turns)
            if tenant not in queues:
                queues[tenant] = heapq.merge(*(self._stream(tenant, each) for each in self.types))
            row = next(queues[tenant], None)
            if row is not None:
                yield row
                heapq.heappush(turns, self._shares.turn(tenant))

    def _stream(self, tenant: str | None, type_: str) -> Iterator[Row]:
        for row in self._in_queue_order(tenant, type_):
            if not self._full(row):
                yield row
                continue
            if self.capacities.full(type_, tenant):
                return
            self._patience -= 1
            if self._patience < 0:
                break
        else:
            return
        if not self._deep:
            self.unsure = True
            return
        for row in lanes.in_order(self._db, self._now, tenant, type_, self._full):
            if row[2] not in self._taken:  # it was already read in queue order
                yield row

    def _in_queue_order(self, tenant: str | None, type_: str) -> Iterator[Row]:
        begin = None if self.capacities.full(type_, tenant) else walks.first(self._db, tenant, type_)
        if begin is None:
            return iter(())
        streams = walks.opened(self._db, self._now, tenant, type_, begin, named=True)
        return streams[0] if len(streams) == 1 else heapq.merge(*streams)

    def note(self, now: Instant) -> None:
        """Record the uses of rates, and the turns. `now`: the instant of the leases."""
        rated = list(self.capacities.rated())
        for capacity in rated:
            period = capacity.period or 0
            of = {"scope": capacity.scope, "name": capacity.name}
            self._db.run(_SQL["go_back"], {**of, "until": now + period})
            self._db.run(_SQL["use"], {**of, "now": now, "taken": capacity.taken, "period": period})
        if rated:
            self._db.run(_SQL["forget_used"], (now, max(FORGET, 2 * len(rated))))
        if self._rules.weighs and self._taken:
            self._note_turns()

    # Turns of tenants.

    @cached_property
    def _book(self) -> tuple[int | None, int]:
        row = self._db.one(_SQL["book"], (book_of(self._ask), kept_since(self._now)))
        return (None, 0) if row is None else (row[0], row[1])

    @cached_property
    def _shares(self) -> Shares:
        book, passed = self._book
        places: dict[str, int] = {} if book is None else dict(self._db.all(_SQL["places"], (book,)))
        due: set[str] = set()
        for each in self.types:
            for tenant in self.tenants:
                due.update(lanes.due_tenants(self._db, self._now, tenant, each))
        return Shares(self._rules, passed, places, due)

    def _note_turns(self) -> None:
        db, shares, since = self._db, self._shares, kept_since(self._now)
        if self._book[0] is None:  # a new kind of worker: workers of old kinds may be gone
            db.run(_SQL["forget_places"], (since,))
            db.run(_SQL["forget_books"], (since,))
        row = db.one(_SQL["turn"], (book_of(self._ask), shares.passed, self._now))
        assert row is not None
        db.run(_SQL["place"], {"book": row[0], "places": text(list(shares.moved().items()))})
        if gone := shares.gone():
            db.run(_SQL["leave"], {"book": row[0], "tenants": text(gone)})
