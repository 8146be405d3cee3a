"""Limits and registry entries as the database file has them, and how much of each limit is used."""

from __future__ import annotations

from collections import Counter
from functools import partial

from holdfast.records import Instant
from holdfast.stores.claiming.capacity import Capacities, Used
from holdfast.stores.claiming.rules import Entry, LimitRule, Rules
from holdfast.stores.sqlite.connection.database import Database
from holdfast.stores.sqlite.sql import statements

_SQL = statements("claiming/capacity")
NONE = Rules((), ())
FEW = 16  # names that are looked up one by one; after that all names are read at once


def rules_of(db: Database, revision: int | None) -> Rules:
    """Return the settings, read again when their revision has changed."""
    if revision is None:
        return NONE
    if db.rules is None or db.rules[0] != revision:
        entries = (Entry(name, runtime, bool(enabled)) for name, runtime, enabled in db.all(_SQL["registry"]))
        db.rules = (revision, Rules(entries, (LimitRule(*row) for row in db.all(_SQL["limits"]))))
    return db.rules[1]


def rules_revision(db: Database) -> int | None:
    """Return the number that changes with every setting. None: nothing is set."""
    row = db.one(_SQL["revision"])
    return None if row is None else row[0]


def capacities_of(db: Database, now: Instant, rules: Rules) -> Capacities:
    counts = _Counts(db, now)
    return Capacities(rules, now, counts.leased, counts.spent)


class _Counts:
    """Usage of limits. The first few names are looked up one by one: there may be many, and few are
    needed."""

    def __init__(self, db: Database, now: Instant) -> None:
        self._db, self._now = db, now
        self._asked: Counter[object] = Counter()
        self._leased: dict[str, dict[str, int]] = {}
        self._claims: dict[tuple[str, int], dict[str, tuple[int, int]]] = {}

    def leased(self, scope: str, name: str) -> int:
        if scope == "key" and scope not in self._leased:
            self._asked[scope] += 1
            if self._asked[scope] <= FEW:
                row = self._db.one(_SQL["leased_key"], (name,))
                return 0 if row is None else row[0]
            self._leased[scope] = dict(self._db.all(_SQL["leased_keys"]))
        elif scope not in self._leased:
            self._leased |= _leased(self._db)
        return self._leased[scope].get(name, 0)

    def spent(self, scope: str, name: str, rate: int, period: int) -> Used:
        window = {"scope": scope, "since": self._now - period}
        last, before = self._claimed(window, name, period)
        number = {**window, "name": name, "number": last - rate}
        return Used(last - before, partial(self._free_at, number, period))

    def _claimed(self, window: dict[str, object], name: str, period: int) -> tuple[int, int]:
        """Return the number of the newest claim in the period, and of the newest claim before it.

        Claims of a name are numbered: the difference is the usage.
        """
        of = (str(window["scope"]), period)
        # A claim further in the future was made when the clock was wrong.
        values = {**window, "until": self._now + period}
        if of not in self._claims:
            self._asked[of] += 1
            if self._asked[of] <= FEW:
                row = self._db.one(_SQL["used"], {**values, "name": name})
                return (0, 0) if row is None else (row[0], row[1])
            rows = self._db.all(_SQL["all_used"], values)
            self._claims[of] = {used: (last, before) for used, last, before in rows if last is not None}
        return self._claims[of].get(name, (0, 0))

    def _free_at(self, number: dict[str, object], period: int) -> Instant:
        oldest = self._db.one(_SQL["free"], number)
        return self._now if oldest is None else oldest[0] + period


def _leased(db: Database) -> dict[str, dict[str, int]]:
    types: dict[str, int] = {}
    tenants: dict[str, int] = {}
    for type_, tenant, count in db.all(_SQL["leased"]):
        types[type_] = types.get(type_, 0) + count
        tenants[tenant] = tenants.get(tenant, 0) + count
    return {"type": types, "tenant": tenants}
