"""Sessions of the pages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.contract import SESSIONS_PER_KEY
from holdfast.records import Instant, NewPageSession, PageSession, instant, moment
from holdfast.stores import page_sessions as rules

from .connection.database import Database, text
from .connection.writer import Work
from .sql import statements

T = TypeVar("T")
_SQL = statements("page_sessions")


def find(db: Database, id_hash: str) -> PageSession | None:
    row = db.one(_SQL["one"], (id_hash,))
    if row is None:
        return None
    return PageSession(
        id_hash=row[0], key_id=row[1], secret_hash=row[2], idle_seconds=row[3], created_at=moment(row[4]),
        seen_at=moment(row[5]), ends_at=moment(row[6]), expires_at=moment(row[7]),
    )  # fmt: skip


def create(db: Database, now: Instant, new: NewPageSession) -> PageSession:
    """Store a session; of its key the newest stay."""
    if (found := find(db, new.id_hash)) is not None:
        return rules.known(found, new)
    session = rules.made(new, now)
    times = {
        name: instant(getattr(session, name)) for name in ("created_at", "seen_at", "ends_at", "expires_at")
    }
    given = {"id_hash": new.id_hash, "key_id": new.key_id}
    db.run(
        _SQL["insert"],
        {**given, "secret_hash": new.secret_hash, "idle_seconds": float(new.idle_seconds), **times},
    )
    db.run(_SQL["forget_oldest"], {**given, "most": SESSIONS_PER_KEY - 1})
    return session


def use(db: Database, now: Instant, id_hash: str) -> PageSession | None:
    found = find(db, id_hash)
    if found is None or not rules.is_live(found, now):
        return None
    if (used := rules.used(found, now)) is None:
        return found
    times = {"seen_at": instant(used.seen_at), "ends_at": instant(used.ends_at)}
    db.run(_SQL["use"], {"id_hash": id_hash, **times})
    return used


def ended(db: Database, now: Instant, limit: int) -> list[str]:
    """Return hashes of sessions that a purge removes."""
    return [row[0] for row in db.all(_SQL["ended"], (now, limit))]


def remove(db: Database, ids: Sequence[str]) -> None:
    db.run(_SQL["remove"], (text(ids),))


class PageSessionVerbs:
    """The verbs of page sessions, as a mixin of the store."""

    _clock: Callable[[], Instant]

    if TYPE_CHECKING:

        def _read(self, work: Callable[..., T], *args: Any) -> T: ...

        async def _write(self, work: Work[T], *, news: bool = False, alone: bool = False) -> T: ...

    async def create_session(self, new: NewPageSession) -> PageSession:
        return await self._write(lambda db, now: create(db, now, new))

    async def use_session(self, id_hash: str) -> PageSession | None:
        # Read first: most calls find nothing to write.
        found, now = self._read(find, id_hash), self._clock()
        if found is None or not rules.is_live(found, now):
            return None
        if rules.used(found, now) is None:
            return found
        return await self._write(lambda db, at: use(db, at, id_hash))

    async def end_session(self, id_hash: str) -> None:
        await self._write(lambda db, _: db.run(_SQL["end"], (id_hash,)))
