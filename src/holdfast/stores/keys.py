"""Rules about API keys and audit rows that all stores share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import asdict, replace

from holdfast.contract import USED_SECONDS
from holdfast.errors import Conflict
from holdfast.machine.durations import micros
from holdfast.records import (
    AUDIT_TEXT_MAX,
    ApiKey,
    AuditEntry,
    AuditWrite,
    Instant,
    NewApiKey,
    SigningKey,
    instant,
    moment,
)
from holdfast.records.sizes import ROW

SIGNING_KEYS = 2  # as many signing keys are kept

Span = tuple[Instant | None, Instant | None]


def made(new: NewApiKey, now: Instant) -> ApiKey:
    """Return a new key."""
    same = {name: value for name, value in asdict(new).items() if name not in {"by", "expires_at"}}
    expires_at = None if new.expires_at is None else moment(new.expires_at)
    return ApiKey(**same, expires_at=expires_at, created_at=moment(now), created_by=new.by)


def known(key: ApiKey, new: NewApiKey) -> ApiKey:
    """Return a key that was created before, as callers see it; it must be the same."""
    if (key.tenant, key.name, key.secret_hash) != (new.tenant, new.name, new.secret_hash):
        raise id_taken(new)
    return shown(key)


def rotated(key: ApiKey, secret_hash: str, overlap_seconds: float, now: Instant) -> ApiKey | None:
    """Return the key with a new secret; None: it has that secret."""
    if key.revoked_at is not None:
        raise revoked(key.id)
    if key.secret_hash == secret_hash:
        return None
    return replace(
        key,
        secret_hash=secret_hash,
        old_secret_hash=key.secret_hash,
        old_secret_until=moment(now + micros(overlap_seconds)),
        rotated_at=moment(now),
    )


def used(key: ApiKey, now: Instant) -> ApiKey | None:
    """Return the key with the time of its last use; None: that is known well enough."""
    if key.last_used_at is not None and key.last_used_at > moment(now - micros(USED_SECONDS)):
        return None
    return replace(key, last_used_at=moment(now))


def with_signing_key(keys: tuple[SigningKey, ...], fresh: bytes, now: Instant) -> tuple[SigningKey, ...]:
    """Return the signing keys, newest first, with a fresh one; the same, if that is the newest."""
    newest = keys[0] if keys else None
    if newest is not None and newest.secret == fresh:
        return keys
    number = 1 if newest is None else newest.id + 1
    return (SigningKey(id=number, secret=fresh, created_at=moment(now)), *keys)[:SIGNING_KEYS]


def is_asked_for(entry: AuditEntry, actions: Sequence[str], keys: Sequence[str], between: Span) -> bool:
    """Return True when an audit row has one of these actions, is of one of these keys, and of that time."""
    return (
        (not actions or entry.action in actions)
        and (not keys or (entry.key_id != "" and entry.key_id in keys))
        and is_within(instant(entry.at), between)
    )


def is_within(at: Instant, between: Span) -> bool:
    since, until = between
    return (since is None or at >= since) and (until is None or at < until)


def id_taken(new: NewApiKey) -> Conflict:
    """Return the error for an id that another key has."""
    return Conflict(f"there is another API key with the id {new.id}: use a new id")


def name_taken(name: str, id: str) -> Conflict:
    """Return the error for a name that a live key of the tenant has."""
    return Conflict(f"API key {id} of this tenant has the name {name!r}: revoke it, or use another name")


def revoked(id: str) -> Conflict:
    """Return the error for a rotation of a revoked key."""
    return Conflict(f"API key {id} is revoked, for good: create another one")


def shown(key: ApiKey) -> ApiKey:
    """Return the key without its hashes."""
    return replace(key, secret_hash="", old_secret_hash="")


def key_bytes(key: ApiKey) -> int:
    """Return the size of a key in an answer, about."""
    return 2 * ROW + sum(map(len, (key.tenant, key.name, key.created_by, key.revoked_by, *key.patterns)))


def entry_bytes(entry: AuditEntry) -> int:
    """Return the size of an audit row in an answer, about."""
    return ROW + sum(len(value) for value in msgspec.structs.astuple(entry) if isinstance(value, str))


def cut(entries: Iterable[AuditWrite]) -> list[AuditWrite]:
    """Return the rows with texts that every store can keep."""
    return [AuditWrite(**{name: _cut(text) for name, text in _texts(entry)}) for entry in entries]


def about_key(entry: AuditWrite, key: ApiKey) -> AuditWrite:
    """Return the row with the tenant and the id of the key that was changed, where they are empty."""
    return replace(entry, tenant=entry.tenant or key.tenant, target=entry.target or key.id)


def _texts(entry: AuditWrite) -> list[tuple[str, str]]:
    return [(name, getattr(entry, name)) for name in entry.__struct_fields__]


def _cut(text: str) -> str:
    kept = str.__str__(text)[:AUDIT_TEXT_MAX].replace("\0", "?")
    return kept if kept.isascii() else kept.encode(errors="replace").decode()
