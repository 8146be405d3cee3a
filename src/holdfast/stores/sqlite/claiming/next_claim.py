"""The next claim: the earliest time at which a claim may find something.

Without limits an index answers. With limits, runs are read in order of time as long as few of them are held
back. After that every lane has to be looked at. This survey runs in slices, because it is on the caller's
event loop, and its answer is kept until the file changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from holdfast.records import Ask, Instant
from holdfast.stores.sqlite.connection.database import Database, Row

from . import lanes, limited, walks
from .capacity import rules_revision
from .limited import Limited

T = TypeVar("T")

UNSURE = -1  # in place of an instant: only a survey of every lane can tell
SLICE = 250  # lanes in one turn of the event loop
KINDS = 8  # kinds of workers whose answers are kept


def next_claim(db: Database, now: Instant, ask: Ask) -> Instant | None:
    """Return when a claim may next find something, or UNSURE."""
    if db.surveyed and (answer := remembered(db, now, ask)) is not None:
        return answer.at
    times: list[Instant | None] = []
    for tenant, each in walks.scopes(ask):
        row = walks.first(db, tenant, each)
        if row is None:
            continue
        if row[1] is not None:
            return _within_limits(db, now, ask, row[1])
        times += [walks.next_run_at(db, walk) for walk in walks.all_of(tenant, each)]
    return min((at for at in times if at is not None), default=None)


def _within_limits(db: Database, now: Instant, ask: Ask, revision: int) -> Instant | None:
    """Return when a run may next fit into the limits, or UNSURE after too many runs that do not."""
    earliest, patience = Earliest(Limited(db, now, ask, revision)), limited.LOOK_PATIENCE
    for tenant, type_ in earliest.scopes():
        for walk in walks.all_of(tenant, type_):
            for priority in walks.priorities(db, walk):
                for row in walks.coming(db, walk, priority):
                    if earliest.at is not None and row[1] >= earliest.at:
                        break
                    patience -= 1
                    if patience < 0:
                        return UNSURE
                    earliest.consider(row)
    return earliest.at


class Earliest:
    """The earliest instant at which one of the considered runs may be claimed."""

    def __init__(self, limited: Limited) -> None:
        self._limited = limited
        self.at: Instant | None = None

    def scopes(self) -> list[tuple[str | None, str]]:
        """Return tenants and types, without those that are full until one of their leased runs ends."""
        each = product(self._limited.tenants, self._limited.types)
        return [(tenant, type_) for tenant, type_ in each if self._opens_at(type_, tenant, None) is not None]

    def consider(self, row: Row) -> None:
        opens_at = self._opens_at(*row[4:7])
        if opens_at is not None:
            at = max(row[1], opens_at)
            self.at = at if self.at is None else min(self.at, at)

    def _opens_at(self, type_: str, tenant: str | None, key: str | None) -> Instant | None:
        return self._limited.capacities.opens_at(type_, tenant, key)


class Survey:
    """A look at every lane, in slices. `every=False` ends it at the first run that may be claimed now."""

    def __init__(self, now: Instant, ask: Ask, *, every: bool) -> None:
        self._now, self._ask, self._every = now, ask, every
        self._earliest: Earliest | None = None
        self._scopes: list[tuple[str | None, str]] = []
        self._after: lanes.Lane | None = None

    @property
    def at(self) -> Instant | None:
        """The answer, once there are no more slices."""
        return None if self._earliest is None else self._earliest.at

    def slice(self, db: Database) -> bool:
        """Look at some lanes. Return True when more are left."""
        earliest = self._begun(db)
        left = SLICE
        while earliest is not None and self._scopes and left > 0:
            rows, self._after = lanes.heads(db, *self._scopes[0], self._after, left)
            for row in rows:
                earliest.consider(row)
            left -= 1 + len(rows)
            if self._after is None:
                self._scopes.pop(0)
        return bool(self._scopes) and (self._every or self.at is None or self.at > self._now)

    def _begun(self, db: Database) -> Earliest | None:
        if self._earliest is None and (revision := rules_revision(db)) is not None:
            self._earliest = Earliest(Limited(db, self._now, self._ask, revision))
            self._scopes = self._earliest.scopes()
        return self._earliest


class Surveyed(NamedTuple):
    """The answer of a survey, and the state of the file that it is about."""

    version: tuple[int, ...]
    now: Instant
    at: Instant | None

    def holds(self, version: tuple[int, ...], now: Instant) -> bool:
        """Return True while nobody has written anything and the time of the answer has not come."""
        return self.version == version and self.now <= now and (self.at is None or now < self.at)


def _version(db: Database) -> tuple[int, ...]:
    row = db.one("pragma data_version")
    assert row is not None
    # data_version does not count what this connection itself has written.
    return db.opened, row[0], db.connection.total_changes()


def remembered(db: Database, now: Instant, ask: Ask) -> Surveyed | None:
    """Return the answer to the same question, if it still holds."""
    answer: Surveyed | None = db.surveyed.get(_kind(ask))
    return answer if answer is not None and answer.holds(_version(db), now) else None


def _remember(db: Database, ask: Ask, answer: Surveyed) -> None:
    others = [item for item in db.surveyed.items() if item[0] != _kind(ask)]
    db.surveyed = dict([*others[1 - KINDS :], (_kind(ask), answer)])


def _kind(ask: Ask) -> object:
    return ask.types, ask.tenants, ask.runtime


class Surveys:
    """Surveys for a store that reads on the caller's event loop."""

    _clock: Callable[[], Instant]

    if TYPE_CHECKING:

        def _read(self, work: Callable[..., T], *args: Any) -> T: ...

    async def _opens_at(self, ask: Ask, *, every: bool = True) -> Instant | None:
        """Return when a run may next be claimed. With `every=False`: any instant in the past will do."""
        now, version = self._clock(), self._read(_version)
        survey = Survey(now, ask, every=every)
        while self._read(survey.slice):  # noqa: ASYNC110  # it polls nothing: it lets other tasks run
            await asyncio.sleep(0)
        self._read(_remember, ask, Surveyed(version, now, survey.at))
        return survey.at

    async def _is_open(self, ask: Ask) -> bool:
        """Return True when a run may be claimed now."""
        at = await self._opens_at(ask, every=False)
        return at is not None and at <= self._clock()
