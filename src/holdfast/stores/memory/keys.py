"""API keys, signing keys and the audit log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec.structs import asdict, replace

from holdfast.bounds import page
from holdfast.contract import AUDIT_SECONDS, KEY_KEEP_SECONDS
from holdfast.errors import UnknownApiKey
from holdfast.machine.durations import micros
from holdfast.records import (
    ApiKey,
    AuditEntry,
    AuditWrite,
    Instant,
    NewApiKey,
    SigningKey,
    Tenant,
    moment,
    tenant_name,
)
from holdfast.stores import keys as rules

if TYPE_CHECKING:
    from .rows import State


@dataclass(slots=True)
class KeyRows:
    """All API keys by id, the signing keys, newest first, and the audit log, oldest first."""

    api: dict[str, ApiKey] = field(default_factory=dict)
    signing: tuple[SigningKey, ...] = ()
    audit: list[AuditEntry] = field(default_factory=list)
    audit_seq: int = 0  # the highest number given so far

    def note(self, entries: Sequence[AuditWrite], now: Instant) -> None:
        for entry in rules.cut(entries):
            self.audit_seq += 1
            self.audit.append(AuditEntry(seq=self.audit_seq, at=moment(now), **asdict(entry)))

    def note_about(self, audit: AuditWrite | None, key: ApiKey, now: Instant) -> ApiKey:
        """Write the audit row of a change. Return the changed key as callers see it."""
        if audit is not None:
            self.note([rules.about_key(audit, key)], now)
        return rules.shown(key)


def create(rows: KeyRows, new: NewApiKey, audit: AuditWrite | None, now: Instant) -> ApiKey:
    if (known := rows.api.get(new.id)) is not None:
        return rules.known(known, new)
    for other in rows.api.values():
        if (other.tenant, other.name) == (new.tenant, new.name) and other.is_live(moment(now)):
            raise rules.name_taken(new.name, other.id)
    key = rows.api[new.id] = rules.made(new, now)
    return rows.note_about(audit, key, now)


def find(rows: KeyRows, id: str, tenant: str | None) -> ApiKey:
    key = rows.api.get(id)
    if key is None or tenant not in {None, key.tenant}:
        raise UnknownApiKey(id)
    return key


def revoke(rows: KeyRows, key: ApiKey, by: str, audit: AuditWrite | None, now: Instant) -> ApiKey:
    if key.revoked_at is not None:
        return rules.shown(key)
    rows.api[key.id] = changed = replace(key, revoked_at=moment(now), revoked_by=by)
    return rows.note_about(audit, changed, now)


def purge(rows: KeyRows, limit: int, now: Instant) -> tuple[int, int]:
    """Remove old audit rows and keys that ended long ago. Return how many of each."""
    since, ended = moment(now - micros(AUDIT_SECONDS)), moment(now - micros(KEY_KEEP_SECONDS))
    old = {entry.seq for entry in rows.audit if entry.at <= since}
    old = set(sorted(old)[: max(0, limit)])
    rows.audit = [entry for entry in rows.audit if entry.seq not in old]
    kept = max(rows.api, default="")  # a store that had keys never looks like one without
    gone = [
        key.id
        for key in rows.api.values()
        if key.id != kept and any(at is not None and at <= ended for at in (key.revoked_at, key.expires_at))
    ][: max(0, limit)]
    for one in gone:
        del rows.api[one]
    return len(old), len(gone)


class KeyVerbs:
    """The verbs of keys and of the audit log, as a mixin of the store."""

    _state: State
    _lock: AbstractContextManager[object]
    _clock: Callable[[], Instant]

    async def create_key(self, new: NewApiKey, audit: AuditWrite | None = None) -> ApiKey:
        with self._lock:
            return create(self._state.keyring, new, audit, self._clock())

    async def keys(self, tenant: Tenant, limit: int = 100, after: str | None = None) -> list[ApiKey]:
        name = tenant_name(tenant)
        with self._lock:
            found = sorted(self._state.keyring.api.values(), key=lambda key: key.id)
            mine = (key for key in found if name in {None, key.tenant} and (after is None or key.id > after))
            return page(map(rules.shown, mine), rules.key_bytes, limit)

    async def find_key(self, id: str) -> ApiKey | None:
        with self._lock:
            return self._state.keyring.api.get(id)

    async def rotate_key(
        self,
        id: str,
        tenant: Tenant,
        secret_hash: str,
        overlap_seconds: float = 0.0,
        audit: AuditWrite | None = None,
    ) -> ApiKey:
        with self._lock:
            rows, now = self._state.keyring, self._clock()
            key = find(rows, id, tenant_name(tenant))
            changed = rules.rotated(key, secret_hash, overlap_seconds, now)
            if changed is None:
                return rules.shown(key)
            rows.api[key.id] = changed
            return rows.note_about(audit, changed, now)

    async def revoke_key(
        self, id: str, tenant: Tenant, by: str = "", audit: AuditWrite | None = None
    ) -> ApiKey:
        with self._lock:
            rows = self._state.keyring
            return revoke(rows, find(rows, id, tenant_name(tenant)), by, audit, self._clock())

    async def use_keys(self, ids: Sequence[str]) -> None:
        with self._lock:
            keys, now = self._state.keyring.api, self._clock()
            for key in filter(None, map(keys.get, ids)):
                keys[key.id] = rules.used(key, now) or key

    async def signing_keys(self, fresh: bytes) -> tuple[SigningKey, ...]:
        with self._lock:
            rows = self._state.keyring
            rows.signing = rows.signing or rules.with_signing_key((), fresh, self._clock())
            return rows.signing

    async def add_signing_key(self, fresh: bytes) -> tuple[SigningKey, ...]:
        with self._lock:
            rows = self._state.keyring
            rows.signing = rules.with_signing_key(rows.signing, fresh, self._clock())
            return rows.signing

    async def note_audit(self, entries: Sequence[AuditWrite]) -> None:
        with self._lock:
            self._state.keyring.note(entries, self._clock())

    async def audit(
        self,
        tenant: Tenant,
        limit: int = 100,
        after: int | None = None,
        actions: Sequence[str] = (),
        keys: Sequence[str] = (),
        between: rules.Span = (None, None),
    ) -> list[AuditEntry]:
        name = tenant_name(tenant)
        with self._lock:
            found = (
                entry for entry in reversed(self._state.keyring.audit)
                if name in {None, entry.tenant} and (after is None or entry.seq < after)
                and rules.is_asked_for(entry, actions, keys, between)
            )  # fmt: skip
            return page(found, rules.entry_bytes, limit)
