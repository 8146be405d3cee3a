"""The verbs of API keys and of the audit log. They need a key with the scope `admin` or `operator`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from holdfast.arguments import (
    BIG_MAX,
    Seconds,
    check_datetime,
    check_duration,
    check_limit,
    check_list,
    check_name,
    check_text,
    check_whole,
)
from holdfast.engine.app.keys import ID_MAX, OVERLAP, NewKey, check_key_id
from holdfast.records import OWN, ApiKey, AuditEntry, OwnTenant, Scope, Tenant
from holdfast.shown.shapes import KeyData

from .base import PAGE_MAX, Base, no_by, set_fields, times
from .records import key_of


class Keys(msgspec.Struct, frozen=True):
    """One page of API keys."""

    items: tuple[KeyData, ...]


class KeySecret(msgspec.Struct, frozen=True):
    """A key and its secret."""

    key: KeyData
    secret: str


class Audit(msgspec.Struct, frozen=True):
    """One page of the audit log."""

    items: list[AuditEntry]


class KeyVerbs(Base):
    """The verbs of API keys and of the audit log; a part of `Client`."""

    async def create_key(
        self,
        name: str,
        *,
        scopes: Sequence[Scope | str],
        tenant: str | OwnTenant = OWN,
        patterns: Sequence[str] = (),
        expires_at: datetime | None = None,
        rate: float | None = None,
        open_runs_max: int | None = None,
        by: str = "",
    ) -> NewKey:
        """Create an API key, as `App.create_key` does, with scopes that the client's own key has. An operator
        key is made with access to the store only.
        """
        no_by(by)
        if expires_at is not None:
            check_datetime("expires_at", expires_at)
        body = set_fields(
            name=check_name("name", name),
            scopes=[str(one) for one in check_list("scopes", scopes)],
            patterns=[str(one) for one in check_list("patterns", patterns)],
            expires_at=expires_at,
            rate=rate,
            open_runs_max=open_runs_max,
        )
        made = await self._ask("create_key", KeySecret, query=self._one(tenant), body=body)
        return NewKey(key=key_of(made.key), secret=made.secret)

    async def keys(
        self, tenant: Tenant | OwnTenant = OWN, limit: int = 100, after: str | None = None
    ) -> Sequence[ApiKey]:
        """Return API keys by id, also revoked and expired ones, without their hashes.

        In pages of at most 500: `after` is the last id of the page before; only an empty page is the end.
        """
        query = self._whose(tenant)
        if after is not None:
            query.append(("after", check_text("after", after, ID_MAX)))
        if not (rows := check_limit(limit)):
            return []
        query.append(("limit", str(min(rows, PAGE_MAX))))
        return [key_of(one) for one in (await self._ask("keys", Keys, query=query)).items]

    async def rotate_key(self, id: str, *, overlap: Seconds = OVERLAP, by: str = "") -> NewKey:
        """Give a key a new secret, which is in this answer only. The old one stays valid for `overlap`."""
        no_by(by)
        path, body = {"key": check_key_id(id)}, {"overlap": check_duration("overlap", overlap)}
        made = await self._ask("rotate_key", KeySecret, path=path, query=self._of_run(), body=body)
        return NewKey(key=key_of(made.key), secret=made.secret)

    async def revoke_key(self, id: str, by: str = "") -> ApiKey:
        """End a key for good. A second call changes nothing."""
        no_by(by)
        path = {"key": check_key_id(id)}
        return key_of(await self._ask("revoke_key", KeyData, path=path, query=self._of_run()))

    async def audit(
        self,
        tenant: Tenant | OwnTenant = OWN,
        limit: int = 100,
        after: int | None = None,
        *,
        actions: Sequence[str] = (),
        keys: Sequence[str] = (),
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> Sequence[AuditEntry]:
        """Return who did what with API keys, newest first; filtered by tenant, action, key (its id) and time.

        In pages of at most 500: `after` is the last seq of the page before; only an empty page is the end.
        """
        query = [
            *self._whose(tenant, unsaid=True),
            *[("action", check_text("action", one)) for one in check_list("actions", actions)],
            *[("key", check_text("key", one)) for one in check_list("keys", keys)],
            *times(since=since, until=until),
        ]
        if after is not None:
            query.append(("after", str(check_whole("after", after, 0, BIG_MAX))))
        if not (rows := check_limit(limit)):
            return []
        query.append(("limit", str(min(rows, PAGE_MAX))))
        return (await self._ask("audit", Audit, query=query)).items
