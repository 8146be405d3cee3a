"""API keys and the audit log in words."""

from __future__ import annotations

from datetime import datetime

from holdfast.records import ApiKey, AuditEntry

from .text import clean
from .times import ago, stamp


def key_state(key: ApiKey, now: datetime) -> str:
    """`live`, `live, expires in 3 d`, `expired 2 h ago`, `revoked 5 min ago`."""
    if key.revoked_at is not None:
        return f"revoked {ago(key.revoked_at, now)}"
    if key.expires_at is None:
        return "live"
    when = ago(key.expires_at, now)
    return f"live, expires {when}" if key.is_live(now) else f"expired {when}"


def key_row(key: ApiKey, now: datetime) -> list[str]:
    """The cells of a key: id, name, tenant, state, last use, scopes."""
    used = "never" if key.last_used_at is None else ago(key.last_used_at, now)
    return [clean(key.id), clean(key.name), clean(key.tenant), key_state(key, now), used, key_rights(key)]


def key_rights(key: ApiKey) -> str:
    """The scopes of a key, with the types that it may claim."""
    only = f" (only {', '.join(map(clean, key.patterns))})" if key.patterns else ""
    return ", ".join(key.scopes) + only


def audit_row(entry: AuditEntry) -> list[str]:
    """The cells of an audit row: time, tenant, who, action, outcome, target."""
    by_key = f"key {clean(entry.key_id)}" if entry.key_id else ""
    outcome = entry.outcome if not entry.code else f"{entry.outcome}: {clean(entry.code)}"
    return [
        stamp(entry.at),
        clean(entry.tenant) or "-",
        " ".join(word for word in (clean(entry.key_name), f"({by_key})" if by_key else "") if word) or "-",
        clean(entry.action),
        outcome,
        clean(entry.target) or "-",
    ]
