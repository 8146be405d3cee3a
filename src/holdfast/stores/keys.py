"""Rules about API keys and audit rows that all stores share."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from holdfast.errors import Conflict
from holdfast.records import AUDIT_TEXT_MAX, ApiKey, AuditEntry, AuditWrite, NewApiKey
from holdfast.records.sizes import ROW

SIGNING_KEYS = 2  # as many signing keys are kept


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
    return msgspec.structs.replace(key, secret_hash="", old_secret_hash="")


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
    return msgspec.structs.replace(entry, tenant=entry.tenant or key.tenant, target=entry.target or key.id)


def _texts(entry: AuditWrite) -> list[tuple[str, str]]:
    return [(name, getattr(entry, name)) for name in entry.__struct_fields__]


def _cut(text: str) -> str:
    kept = str.__str__(text)[:AUDIT_TEXT_MAX].replace("\0", "?")
    return kept if kept.isascii() else kept.encode(errors="replace").decode()
