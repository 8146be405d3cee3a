"""Sessions of the pages."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from holdfast.contract import SESSIONS_PER_KEY
from holdfast.records import Instant, NewPageSession, PageSession
from holdfast.stores import page_sessions as rules

if TYPE_CHECKING:
    from .rows import State


def create(rows: dict[str, PageSession], new: NewPageSession, now: Instant) -> PageSession:
    """Store a session; of its key the newest stay."""
    if (found := rows.get(new.id_hash)) is not None:
        return rules.known(found, new)
    session = rows[new.id_hash] = rules.made(new, now)
    of_key = sorted(
        (one for one in rows.values() if one.key_id == new.key_id),
        key=lambda one: (one.created_at, one.id_hash),
    )
    for one in of_key[:-SESSIONS_PER_KEY]:
        if one is not session:
            del rows[one.id_hash]
    return session


def purge(rows: dict[str, PageSession], limit: int, now: Instant) -> int:
    """Remove sessions that have ended; return how many."""
    gone = [one.id_hash for one in rows.values() if not rules.is_live(one, now)][: max(0, limit)]
    for one in gone:
        del rows[one]
    return len(gone)


class PageSessionVerbs:
    """The verbs of page sessions, as a mixin of the store."""

    _state: State
    _lock: AbstractContextManager[object]
    _clock: Callable[[], Instant]

    async def create_session(self, new: NewPageSession) -> PageSession:
        with self._lock:
            return create(self._state.page_sessions, new, self._clock())

    async def use_session(self, id_hash: str) -> PageSession | None:
        with self._lock:
            rows, now = self._state.page_sessions, self._clock()
            found = rows.get(id_hash)
            if found is None or not rules.is_live(found, now):
                return None
            found = rows[id_hash] = rules.used(found, now) or found
            return found

    async def end_session(self, id_hash: str) -> None:
        with self._lock:
            self._state.page_sessions.pop(id_hash, None)
