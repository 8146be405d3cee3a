"""Sessions of the pages.

| key | content |
|---|---|
| `pagesessions` | hash: hash of the id → JSON |
| `pagesessions:ends` | sorted set: sessions by the time when they end |
| `pagesessions:of:<key>` | sorted set: sessions of an API key by the time of their beginning |
"""

from __future__ import annotations

import msgspec

from holdfast.contract import SESSIONS_PER_KEY
from holdfast.records import Instant, NewPageSession, PageSession, instant
from holdfast.stores import page_sessions as rules
from holdfast.stores.redis.core import Core
from holdfast.stores.redis.snapshot import Snapshot

_SESSION = msgspec.json.Decoder(PageSession)


def _find(snapshot: Snapshot, id_hash: str) -> PageSession | None:
    text = snapshot.guarded("HGET", snapshot.names("pagesessions"), id_hash)
    return None if text is None else _SESSION.decode(text)


def _put(snapshot: Snapshot, session: PageSession) -> None:
    names = snapshot.names
    snapshot.do("HSET", names("pagesessions"), session.id_hash, msgspec.json.encode(session).decode())
    snapshot.do("ZADD", names("pagesessions:ends"), instant(session.ends_at), session.id_hash)


def _remove(snapshot: Snapshot, session: PageSession) -> None:
    names = snapshot.names
    snapshot.do("HDEL", names("pagesessions"), session.id_hash)
    snapshot.do("ZREM", names("pagesessions:ends"), session.id_hash)
    snapshot.do("ZREM", names.of("pagesessions:of", session.key_id), session.id_hash)


def create(snapshot: Snapshot, new: NewPageSession) -> PageSession:
    """Store a session; of its key the newest stay."""
    if (found := _find(snapshot, new.id_hash)) is not None:
        return rules.known(found, new)
    session, of_key = rules.made(new, snapshot.now), snapshot.names.of("pagesessions:of", new.key_id)
    for one in snapshot.read("ZRANGE", of_key, 0, -SESSIONS_PER_KEY):
        if (oldest := _find(snapshot, one)) is not None:
            _remove(snapshot, oldest)
    _put(snapshot, session)
    snapshot.do("ZADD", of_key, instant(session.created_at), session.id_hash)
    return session


def use(snapshot: Snapshot, id_hash: str) -> PageSession | None:
    """Return a live session; note its use at most once a minute."""
    found = _find(snapshot, id_hash)
    if found is None or not rules.is_live(found, snapshot.now):
        return None
    if (used := rules.used(found, snapshot.now)) is None:
        return found
    _put(snapshot, used)
    return used


def end(snapshot: Snapshot, id_hash: str) -> None:
    """Remove a session."""
    if (found := _find(snapshot, id_hash)) is not None:
        _remove(snapshot, found)


def purge(snapshot: Snapshot, limit: int, now: Instant) -> int:
    """Remove sessions that have ended; return how many."""
    ended = snapshot.read(
        "ZRANGEBYSCORE", snapshot.names("pagesessions:ends"), "-inf", now, "LIMIT", 0, max(0, limit)
    )
    snapshot.all([("HGET", snapshot.names("pagesessions"), one) for one in ended])
    found = [_find(snapshot, one) for one in ended]
    gone = [one for one in found if one is not None and not rules.is_live(one, now)]
    for one in gone:
        _remove(snapshot, one)
    return len(gone)


class PageSessionVerbs(Core):
    """The verbs of page sessions, as a mixin of the store."""

    async def create_session(self, new: NewPageSession) -> PageSession:
        return await self._change(lambda snapshot: create(snapshot, new))

    async def use_session(self, id_hash: str) -> PageSession | None:
        return await self._change(lambda snapshot: use(snapshot, id_hash))

    async def end_session(self, id_hash: str) -> None:
        await self._change(lambda snapshot: end(snapshot, id_hash))
