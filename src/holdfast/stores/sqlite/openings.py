"""When a claim may next find something, where limits are set.

First in the order of time, as far as few runs are held back. Then by lanes, every one of them: a slice at a
time, so that the event loop on which it is asked does not stand still, and once for each state of the file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from holdfast.records import Ask, Instant

from . import lanes, limited, walks
from .database import Database, Row
from .limited import Limited
from .rooms import mark_of

T = TypeVar("T")

UNSURE = -1  # in place of an instant: to know it, every lane has to be looked at
SLICE = 250  # lanes, in one turn of the event loop
KINDS = 8  # of workers, whose answers are kept


def glance(db: Database, now: Instant, ask: Ask, mark: int) -> Instant | None:
    """When something may next fit, or UNSURE."""
    opening, patience = Opening(Limited(db, now, ask, mark)), limited.LOOK_PATIENCE
    for tenant, type_ in opening.scopes():
        for walk in walks.all_of(tenant, type_):
            for priority in walks.priorities(db, walk):
                for row in walks.coming(db, walk, priority):
                    if opening.at is not None and row[1] >= opening.at:
                        break
                    patience -= 1
                    if patience < 0:
                        return UNSURE
                    opening.consider(row)
    return opening.at


class Opening:
    """The earliest instant of those that were considered."""

    def __init__(self, limited: Limited) -> None:
        self._limited = limited
        self.at: Instant | None = None

    def scopes(self) -> list[tuple[str | None, str]]:
        """Tenants and types that are not held back as a whole until a run of theirs ends."""
        each = product(self._limited.tenants, self._limited.types)
        return [(tenant, type_) for tenant, type_ in each if self._opens_at(type_, tenant, None) is not None]

    def consider(self, row: Row) -> None:
        opens_at = self._opens_at(*row[4:7])
        if opens_at is not None:
            at = max(row[1], opens_at)
            self.at = at if self.at is None else min(self.at, at)

    def _opens_at(self, type_: str, tenant: str | None, key: str | None) -> Instant | None:
        return self._limited.rooms.opens_at(type_, tenant, key)


class Survey:
    """A look at every lane; or until something is found that may be taken now."""

    def __init__(self, now: Instant, ask: Ask, *, every: bool) -> None:
        self._now, self._ask, self._every = now, ask, every
        self._opening: Opening | None = None
        self._scopes: list[tuple[str | None, str]] = []
        self._after: lanes.Lane | None = None

    @property
    def at(self) -> Instant | None:
        """The answer, when there are no more slices."""
        return None if self._opening is None else self._opening.at

    def slice(self, db: Database) -> bool:
        """Some lanes; whether there are more to be looked at."""
        opening = self._begun(db)
        left = SLICE
        while opening is not None and self._scopes and left > 0:
            rows, self._after = lanes.heads(db, *self._scopes[0], self._after, left)
            for row in rows:
                opening.consider(row)
            left -= 1 + len(rows)
            if self._after is None:
                self._scopes.pop(0)
        return bool(self._scopes) and (self._every or self.at is None or self.at > self._now)

    def _begun(self, db: Database) -> Opening | None:
        if self._opening is None and (mark := mark_of(db)) is not None:
            self._opening = Opening(Limited(db, self._now, self._ask, mark))
            self._scopes = self._opening.scopes()
        return self._opening


class Surveyed(NamedTuple):
    """An answer, and what it holds for."""

    version: tuple[int, ...]
    now: Instant
    at: Instant | None

    def holds(self, version: tuple[int, ...], now: Instant) -> bool:
        """As long as nobody has written anything, and until its time comes."""
        return self.version == version and self.now <= now and (self.at is None or now < self.at)


def _version(db: Database) -> tuple[int, ...]:
    row = db.one("pragma data_version")
    assert row is not None
    # A connection does not count what it has written itself.
    return db.opened, row[0], db.connection.total_changes()


def known(db: Database, now: Instant, ask: Ask) -> Surveyed | None:
    """The answer to the same question, if it still holds."""
    answer: Surveyed | None = db.surveyed.get(_kind(ask))
    return answer if answer is not None and answer.holds(_version(db), now) else None


def _keep(db: Database, ask: Ask, answer: Surveyed) -> None:
    others = [item for item in db.surveyed.items() if item[0] != _kind(ask)]
    db.surveyed = dict([*others[1 - KINDS :], (_kind(ask), answer)])


def _kind(ask: Ask) -> object:
    return ask.types, ask.tenants, ask.runtime


class Openings:
    """For a store that reads at once, on the caller's event loop."""

    _clock: Callable[[], Instant]

    if TYPE_CHECKING:

        def _read(self, work: Callable[..., T], *args: Any) -> T: ...

    async def _opens_at(self, ask: Ask, *, every: bool = True) -> Instant | None:
        """When something may next be claimed; not every: some instant of the past, if there is one."""
        now, version = self._clock(), self._read(_version)
        survey = Survey(now, ask, every=every)
        while self._read(survey.slice):  # noqa: ASYNC110  # it waits for nothing: others have their turn
            await asyncio.sleep(0)
        self._read(_keep, ask, Surveyed(version, now, survey.at))
        return survey.at

    async def _is_open(self, ask: Ask) -> bool:
        """Whether something may be claimed now."""
        at = await self._opens_at(ask, every=False)
        return at is not None and at <= self._clock()
