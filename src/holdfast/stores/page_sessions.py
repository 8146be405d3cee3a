"""Rules of page sessions that all stores share."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from holdfast.arguments import check_number
from holdfast.clipped import clipped
from holdfast.contract import SEEN_SECONDS
from holdfast.errors import Conflict, UsageError
from holdfast.machine.durations import micros
from holdfast.records import Instant, NewPageSession, PageSession, instant, moment

from .key_arguments import check_key_id, check_secret_hash

LONGEST_SECONDS = 366 * 86400.0  # of a session


def check_new_session(what: str, new: Any) -> None:
    """Check a session that is to be stored."""
    if not isinstance(new, NewPageSession):
        raise UsageError(f"{what}: {clipped(new)} is no NewPageSession")
    check_secret_hash("id_hash", new.id_hash)
    check_key_id("key_id", new.key_id)
    check_secret_hash("secret_hash", new.secret_hash)
    for name in ("idle_seconds", "keep_seconds"):
        check_number(name, getattr(new, name), 1.0, LONGEST_SECONDS)


def made(new: NewPageSession, now: Instant) -> PageSession:
    """Return a session that begins now."""
    expires = now + micros(new.keep_seconds)
    return PageSession(
        id_hash=new.id_hash,
        key_id=new.key_id,
        secret_hash=new.secret_hash,
        idle_seconds=new.idle_seconds,
        created_at=moment(now),
        seen_at=moment(now),
        ends_at=moment(min(expires, now + micros(new.idle_seconds))),
        expires_at=moment(expires),
    )


def known(session: PageSession, new: NewPageSession) -> PageSession:
    """Return a stored session that the same call has made; Conflict: another one has."""
    if (session.key_id, session.secret_hash) != (new.key_id, new.secret_hash):
        raise Conflict("there is another session with this id: use a new random one")
    return session


def is_live(session: PageSession, now: Instant) -> bool:
    """Return True before the end of a session."""
    return now < instant(session.ends_at)


def used(session: PageSession, now: Instant) -> PageSession | None:
    """Return the session as it is after a use now; None: nothing has to be written."""
    if now < instant(session.seen_at) + micros(SEEN_SECONDS):
        return None
    ends = min(instant(session.expires_at), now + micros(session.idle_seconds))
    return replace(session, seen_at=moment(now), ends_at=moment(ends))
