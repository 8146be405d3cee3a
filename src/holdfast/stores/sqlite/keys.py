"""API keys, signing keys and the audit log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec.structs import asdict

from holdfast import bounds
from holdfast.bounds import page
from holdfast.contract import AUDIT_SECONDS, AUDIT_SLACK_SECONDS, KEY_KEEP_SECONDS, USED_SECONDS
from holdfast.errors import UnknownApiKey
from holdfast.machine.durations import micros
from holdfast.records import (
    ApiKey,
    AuditEntry,
    AuditWrite,
    Instant,
    NewApiKey,
    Scope,
    SigningKey,
    Tenant,
    moment,
    tenant_name,
)
from holdfast.stores import keys as rules

from .connection.database import Database, Row, text
from .connection.writer import Work
from .page_sessions import PageSessionVerbs
from .sql import statements

T = TypeVar("T")
Span = tuple[Instant | None, Instant | None]

_SQL = statements("keys")
_SQL = {name: sql.replace("$columns", _SQL["columns"]) for name, sql in _SQL.items()}
_decode_scopes = msgspec.json.Decoder(tuple[Scope, ...]).decode
_decode_texts = msgspec.json.Decoder(tuple[str, ...]).decode


def find(db: Database, id: str) -> ApiKey | None:
    row = db.one(_SQL["one"], (id,))
    return None if row is None else _key(row)


def listed(db: Database, tenant: str | None, limit: int, after: str | None) -> list[ApiKey]:
    asked = {"tenant": tenant, "after": after or "", "limit": max(0, limit)}
    rows = db.each(_SQL["list" if tenant is None else "list_of_tenant"], asked)
    return page((rules.shown(_key(row)) for row in rows), rules.key_bytes, limit)


def create(db: Database, now: Instant, new: NewApiKey, audit: AuditWrite | None) -> ApiKey:
    known = find(db, new.id)
    if known is not None:
        if (known.tenant, known.name, known.secret_hash) != (new.tenant, new.name, new.secret_hash):
            raise rules.id_taken(new)
        return rules.shown(known)
    namesake = db.one(_SQL["namesake"], {"tenant": new.tenant, "name": new.name, "now": now})
    if namesake is not None:
        raise rules.name_taken(new.name, namesake[0])
    values = {**asdict(new), "scopes": text(new.scopes), "patterns": text(new.patterns), "now": now}
    db.run(_SQL["insert"], values)
    return _changed(db, now, new.id, audit)


def rotate(db: Database, now: Instant, key: ApiKey, secret: tuple[str, float], audit: Any) -> ApiKey:
    """Give the key another secret. `secret`: its hash, and how long the present one stays valid."""
    secret_hash, overlap_seconds = secret
    if key.revoked_at is not None:
        raise rules.revoked(key.id)
    if key.secret_hash == secret_hash:
        return rules.shown(key)
    until = now + micros(overlap_seconds)
    db.run(_SQL["rotate"], {"id": key.id, "secret_hash": secret_hash, "until": until, "now": now})
    return _changed(db, now, key.id, audit)


def revoke(db: Database, now: Instant, key: ApiKey, by: str, audit: AuditWrite | None) -> ApiKey:
    if key.revoked_at is not None:
        return rules.shown(key)
    db.run(_SQL["revoke"], {"id": key.id, "by": by, "now": now})
    return _changed(db, now, key.id, audit)


def of_tenant(db: Database, id: str, tenant: str | None) -> ApiKey:
    key = find(db, id)
    if key is None or tenant not in {None, key.tenant}:
        raise UnknownApiKey(id)
    return key


def _changed(db: Database, now: Instant, id: str, audit: AuditWrite | None) -> ApiKey:
    """Write the audit row of a change. Return the changed key as callers see it."""
    key = find(db, id)
    assert key is not None
    if audit is not None:
        note(db, now, [rules.about_key(audit, key)])
    return rules.shown(key)


def is_unused(db: Database, now: Instant, ids: Sequence[str]) -> bool:
    """Return True when the last use of one of the keys has to be written."""
    return db.one(_SQL["unused"], {"ids": text(ids), "since": now - micros(USED_SECONDS)}) is not None


def use(db: Database, now: Instant, ids: Sequence[str]) -> None:
    db.run(_SQL["use"], {"ids": text(ids), "since": now - micros(USED_SECONDS), "now": now})


def signing(db: Database) -> tuple[SigningKey, ...]:
    rows = db.all(_SQL["signing"], (rules.SIGNING_KEYS,))
    return tuple(SigningKey(id=row[0], secret=row[1], created_at=moment(row[2])) for row in rows)


def add_signing(db: Database, now: Instant, fresh: bytes, *, first: bool) -> tuple[SigningKey, ...]:
    """Add a signing key. `first`: only if there is none."""
    known = signing(db)
    if known and (first or known[0].secret == fresh):
        return known
    db.run(_SQL["add_signing"], (fresh, now))
    db.run(_SQL["forget_signing"], (rules.SIGNING_KEYS,))
    return signing(db)


def note(db: Database, now: Instant, entries: Sequence[AuditWrite]) -> None:
    db.many(_SQL["note"], [(now, *msgspec.structs.astuple(entry)) for entry in rules.cut(entries)])


def audited(db: Database, where: dict[str, Any], limit: int) -> tuple[list[AuditEntry], int | None]:
    """Return rows of a slice of the audit log, and where the next slice begins; None: this is the last one.
    `where`: the values that the rows must have; None: any.
    """
    span = _audit_span(db, where)
    if span is None:
        return [], None
    where = where | span
    index, terms = "", _audit_terms(where, "after", "first")
    if where["keys"] is not None:
        index, floor = "indexed by idx_workflow_audit_key", _SQL["audit_floor_of_keys"]
    else:
        floor = _SQL["audit_floor"]
        if where["tenant"] is not None:
            index, terms = (
                "indexed by idx_workflow_audit_tenant",
                _audit_terms(where, "after", "first", "tenant"),
            )
    asked = {name: value for name, value in where.items() if value is not None}
    row = db.one(_filled(floor, index, terms), {**asked, "rows": bounds.AUDIT_ROWS})
    end = None if row is None else row[0]
    if end is not None:
        asked["first"] = where["first"] = end
    rows = db.each(
        _filled(_SQL["audit"], index, _audit_terms(where, *_TERMS)), {**asked, "limit": max(0, limit)}
    )
    return page(map(_entry, rows), rules.entry_bytes, limit), end


def _audit_span(db: Database, where: dict[str, Any]) -> dict[str, int] | None:
    """Return the rows that may be between the two instants, as numbers; None: there are none."""
    slack, span = micros(AUDIT_SLACK_SECONDS), {}
    if where["since"] is not None:
        row = db.one(_SQL["audit_first"], (where["since"] - slack,))
        if row is None:
            return None
        span["first"] = row[0]
    if where["until"] is not None:
        row = db.one(_SQL["audit_last"], (where["until"] + slack,))
        if row is None:
            return None
        after = where["after"]
        span["after"] = row[0] + 1 if after is None else min(after, row[0] + 1)
    return span


def _audit_terms(where: dict[str, Any], *names: str) -> str:
    return " and ".join(_TERMS[name] for name in names if where[name] is not None) or "true"


def _filled(sql: str, index: str, terms: str) -> str:
    return sql.replace("$index", index).replace("$terms", terms)


_TERMS = {
    "tenant": "tenant = :tenant",
    "after": "seq < :after",
    "first": "seq >= :first",
    "actions": "action in (select value from json_each(:actions))",
    # The second part is that of the index.
    "keys": "key_id in (select value from json_each(:keys)) and key_id <> ''",
    "since": "at >= :since",
    "until": "at < :until",
}


def old_audit(db: Database, now: Instant, limit: int) -> list[int]:
    """Return numbers of audit rows that a purge removes."""
    return [seq for (seq,) in db.all(_SQL["old_audit"], (now - micros(AUDIT_SECONDS), limit))]


def remove_audit(db: Database, seqs: Sequence[int]) -> None:
    db.run(_SQL["remove_audit"], (text(seqs),))


def ended_keys(db: Database, now: Instant, limit: int) -> list[str]:
    """Return ids of API keys that a purge removes."""
    asked = {"since": now - micros(KEY_KEEP_SECONDS), "limit": limit}
    return [row[0] for row in db.all(_SQL["ended_keys"], asked)]


def remove_keys(db: Database, ids: Sequence[str]) -> None:
    db.run(_SQL["remove_keys"], (text(ids),))


def _key(row: Row) -> ApiKey:
    return ApiKey(
        id=row[0], tenant=row[1], name=row[2], scopes=_decode_scopes(row[3]), patterns=_decode_texts(row[4]),
        secret_hash=row[5], old_secret_hash=row[6], old_secret_until=_moment(row[7]),
        expires_at=_moment(row[8]), rate=row[9], open_runs_max=row[10], created_at=moment(row[11]),
        created_by=row[12], last_used_at=_moment(row[13]), rotated_at=_moment(row[14]),
        revoked_at=_moment(row[15]), revoked_by=row[16],
    )  # fmt: skip


def _entry(row: Row) -> AuditEntry:
    return AuditEntry(
        seq=row[0], at=moment(row[1]), tenant=row[2], key_id=row[3], key_name=row[4], action=row[5],
        target=row[6], outcome=row[7], code=row[8], request=row[9],
    )  # fmt: skip


def _moment(at: Instant | None) -> datetime | None:
    return None if at is None else moment(at)


class KeyVerbs(PageSessionVerbs):
    """The verbs of keys, of page sessions and of the audit log, as a mixin of the store."""

    _clock: Callable[[], Instant]

    if TYPE_CHECKING:

        def _read(self, work: Callable[..., T], *args: Any) -> T: ...

        async def _read_apart(self, work: Callable[..., T], *args: Any) -> T: ...

        async def _write(self, work: Work[T], *, news: bool = False, alone: bool = False) -> T: ...

    async def create_key(self, new: NewApiKey, audit: AuditWrite | None = None) -> ApiKey:
        return await self._write(lambda db, now: create(db, now, new, audit))

    async def keys(self, tenant: Tenant, limit: int = 100, after: str | None = None) -> list[ApiKey]:
        return self._read(listed, tenant_name(tenant), limit, after)

    async def find_key(self, id: str) -> ApiKey | None:
        return self._read(find, id)

    async def rotate_key(
        self,
        id: str,
        tenant: Tenant,
        secret_hash: str,
        overlap_seconds: float = 0.0,
        audit: AuditWrite | None = None,
    ) -> ApiKey:
        def rotated(db: Database, now: Instant) -> ApiKey:
            key = of_tenant(db, id, tenant_name(tenant))
            return rotate(db, now, key, (secret_hash, overlap_seconds), audit)

        return await self._write(rotated)

    async def revoke_key(
        self, id: str, tenant: Tenant, by: str = "", audit: AuditWrite | None = None
    ) -> ApiKey:
        def revoked(db: Database, now: Instant) -> ApiKey:
            return revoke(db, now, of_tenant(db, id, tenant_name(tenant)), by, audit)

        return await self._write(revoked)

    async def use_keys(self, ids: Sequence[str]) -> None:
        # Read first: most calls find nothing to write.
        unused: bool = self._read(is_unused, self._clock(), ids)
        if unused:
            await self._write(lambda db, now: use(db, now, ids))

    async def signing_keys(self, fresh: bytes) -> tuple[SigningKey, ...]:
        known = self._read(signing)
        return known or await self._write(lambda db, now: add_signing(db, now, fresh, first=True))

    async def add_signing_key(self, fresh: bytes) -> tuple[SigningKey, ...]:
        return await self._write(lambda db, now: add_signing(db, now, fresh, first=False))

    async def note_audit(self, entries: Sequence[AuditWrite]) -> None:
        if entries:
            await self._write(lambda db, now: note(db, now, entries))

    async def audit(
        self,
        tenant: Tenant,
        limit: int = 100,
        after: int | None = None,
        actions: Sequence[str] = (),
        keys: Sequence[str] = (),
        between: Span = (None, None),
    ) -> list[AuditEntry]:
        where = {
            "tenant": tenant_name(tenant),
            "after": after,
            "first": None,
            "actions": text(actions) if actions else None,
            "keys": text(keys) if keys else None,
            "since": between[0],
            "until": between[1],
        }
        while True:
            found, where["after"] = await self._read_apart(audited, where, limit)
            if found or where["after"] is None or limit <= 0:
                return found
