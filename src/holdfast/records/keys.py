"""API keys, the keys that sign tokens of HTTP workers, and the audit log."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

import msgspec

from .units import Instant

AUDIT_TEXT_MAX = 255  # characters of each text of an audit row; the rest is cut off
KEY_RATE_MAX = 10_000.0  # requests a second of one API key
OPEN_RUNS_MAX = 10_000  # the largest limit on the open runs of one API key
OUTCOMES = ("done", "refused")  # of an act in the audit log


class Scope(StrEnum):
    """One right of an API key, in its own tenant.

    runs.read         read runs, steps and trails, without values
    payloads.read     read params, results and other values too
    runs.write        start and change runs
    approvals.decide  decide gates
    work              claim and execute runs, perhaps only of some types
    metrics           read the metrics
    admin             manage the keys of the tenant, and read its audit log
    operator          use its other scopes in every tenant, and operate the store: registry, limits, sinks,
                      workers; only somebody with access to the store can give it
    """

    RUNS_READ = "runs.read"
    PAYLOADS_READ = "payloads.read"
    RUNS_WRITE = "runs.write"
    APPROVALS_DECIDE = "approvals.decide"
    WORK = "work"
    METRICS = "metrics"
    ADMIN = "admin"
    OPERATOR = "operator"


class NewApiKey(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """An API key that is to be stored. The secret itself is never stored: only its SHA-256 is."""

    id: str  # 12 characters of a-z and 0-9
    tenant: str
    name: str  # unique among the live keys of the tenant
    scopes: tuple[Scope, ...]
    patterns: tuple[str, ...] = ()  # types that scope `work` may claim; none: all
    secret_hash: str  # SHA-256 of the secret, in hex
    expires_at: Instant | None = None
    rate: float | None = None  # requests a second
    open_runs_max: int | None = None  # runs started with this key that may be open at once
    by: str = ""


class ApiKey(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """A stored API key. Only `find_key` shows its hashes; every other answer has empty texts there."""

    id: str
    tenant: str
    name: str
    scopes: tuple[Scope, ...]
    patterns: tuple[str, ...] = ()
    secret_hash: str = ""
    old_secret_hash: str = ""  # of the secret before the last rotation
    old_secret_until: datetime | None = None  # from this instant on the old secret is refused
    expires_at: datetime | None = None  # from this instant on the key is refused
    rate: float | None = None
    open_runs_max: int | None = None
    created_at: datetime
    created_by: str = ""
    last_used_at: datetime | None = None  # within a minute
    rotated_at: datetime | None = None
    revoked_at: datetime | None = None
    revoked_by: str = ""

    def is_live(self, now: datetime) -> bool:
        """Return True when the key is neither revoked nor expired."""
        return self.revoked_at is None and (self.expires_at is None or self.expires_at > now)


class SigningKey(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """A key of the store that signs the tokens of HTTP workers. It never leaves the server, and no export
    may contain it.
    """

    id: int  # grows with each key of the store
    secret: bytes  # 32 random bytes
    created_at: datetime

    def __repr__(self) -> str:
        """Leave out the secret: it must not get into a log."""
        return f"SigningKey(id={self.id}, created_at={self.created_at!r})"


class AuditWrite(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """An act of somebody who holds an API key, or of an operator, as it is to be noted.

    Stores keep the first AUDIT_TEXT_MAX characters of each text.
    """

    tenant: str
    key_id: str = ""  # empty: not by an API key
    key_name: str = ""  # the name of the key, or of the person
    action: str
    target: str = ""  # the id of the run, key, … that it is about
    outcome: str = "done"  # one of OUTCOMES
    code: str = ""  # why it was refused
    request: str = ""  # the id of the HTTP request


class AuditEntry(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """One row of the audit log. `seq` grows over all tenants of the store."""

    seq: int
    at: datetime
    tenant: str
    key_id: str
    key_name: str
    action: str
    target: str
    outcome: str
    code: str
    request: str
