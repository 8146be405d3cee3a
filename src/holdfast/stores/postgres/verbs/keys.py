"""API keys, signing keys and the audit log."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence

from msgspec import Struct
from msgspec.json import Decoder

from holdfast import bounds
from holdfast.machine.durations import bounded
from holdfast.records import (
    ApiKey,
    AuditEntry,
    AuditWrite,
    Instant,
    NewApiKey,
    SigningKey,
    Tenant,
    tenant_name,
)
from holdfast.stores.keys import cut

from .calls import Calls, json_text

_KEY = Decoder(ApiKey)
_KEYS = Decoder(list[ApiKey])
_SIGNING = Decoder(tuple[SigningKey, ...])


class _Audited(Struct, gc=False):
    """Rows of a slice of the audit log, and where the next slice begins; None: this is the last one."""

    entries: list[AuditEntry]
    after: int | None


_AUDITED = Decoder(_Audited)


class KeyVerbs(Calls):
    """The verbs of keys and of the audit log that need more than one plain call."""

    async def create_key(self, new: NewApiKey, audit: AuditWrite | None = None) -> ApiKey:
        return await self._ask(_KEY, "create_key", json_text(new), _act(audit))

    async def keys(self, tenant: Tenant, limit: int = 100, after: str | None = None) -> list[ApiKey]:
        return await self._ask(_KEYS, "keys", tenant_name(tenant), limit, after, bounds.BATCH_BYTES)

    async def rotate_key(
        self,
        id: str,
        tenant: Tenant,
        secret_hash: str,
        overlap_seconds: float = 0.0,
        audit: AuditWrite | None = None,
    ) -> ApiKey:
        given = (id, tenant_name(tenant), secret_hash, bounded(overlap_seconds), _act(audit))
        return await self._ask(_KEY, "rotate_key", *given)

    async def revoke_key(
        self, id: str, tenant: Tenant, by: str = "", audit: AuditWrite | None = None
    ) -> ApiKey:
        return await self._ask(_KEY, "revoke_key", id, tenant_name(tenant), by, _act(audit))

    async def use_keys(self, ids: Sequence[str]) -> None:
        if ids:
            await self._call("use_keys", json_text(ids))

    async def signing_keys(self, fresh: bytes) -> tuple[SigningKey, ...]:
        return await self._ask(_SIGNING, "signing_keys", b64encode(fresh).decode())

    async def add_signing_key(self, fresh: bytes) -> tuple[SigningKey, ...]:
        return await self._ask(_SIGNING, "add_signing_key", b64encode(fresh).decode())

    async def note_audit(self, entries: Sequence[AuditWrite]) -> None:
        if entries:
            await self._call("note_audit", json_text(cut(entries)))

    async def audit(
        self,
        tenant: Tenant,
        limit: int = 100,
        after: int | None = None,
        actions: Sequence[str] = (),
        keys: Sequence[str] = (),
        between: tuple[Instant | None, Instant | None] = (None, None),
    ) -> list[AuditEntry]:
        where = {"tenant": tenant_name(tenant), "after": after, "actions": actions, "keys": keys}
        where |= {"since": between[0], "until": between[1]}
        while True:
            sent = json_text(where), limit, bounds.BATCH_BYTES, bounds.AUDIT_ROWS
            part = await self._ask(_AUDITED, "audit", *sent)
            if part.entries or part.after is None or limit <= 0:
                return part.entries
            where["after"] = part.after


def _act(audit: AuditWrite | None) -> str | None:
    return None if audit is None else json_text(cut([audit])[0])
