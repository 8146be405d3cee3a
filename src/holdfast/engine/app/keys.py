"""The verbs of API keys and of the audit log: create, list, rotate, revoke; who did what."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast import api_keys
from holdfast.arguments import (
    BIG_MAX,
    Seconds,
    check_by,
    check_datetime,
    check_duration,
    check_limit,
    check_list,
    check_name,
    check_number,
    check_patterns,
    check_text,
    check_whole,
    exact_text,
)
from holdfast.clipped import clipped
from holdfast.contract import PATTERNS_MAX, Store
from holdfast.errors import UsageError
from holdfast.records import (
    ANY,
    KEY_RATE_MAX,
    OPEN_RUNS_MAX,
    OWN,
    ApiKey,
    AuditEntry,
    AuditWrite,
    NewApiKey,
    OwnTenant,
    Scope,
    Tenant,
)

from .tenant_scope import one_tenant, tenant_of

if TYPE_CHECKING:
    from .client import StartedBy

OVERLAP = timedelta(hours=24)
RATE_MIN = 0.001  # requests a second
ID_MAX = 64


class NewKey(msgspec.Struct, frozen=True, kw_only=True):
    """A new API key, or one with a new secret. `secret` is the text that a caller sends, `hf_<id>_<secret>`:
    it is nowhere else, and cannot be read again.
    """

    key: ApiKey
    secret: str

    def __repr__(self) -> str:
        """Leave out the secret: it must not get into a log."""
        return f"NewKey(key={self.key!r}, secret=…)"


class KeyVerbs:
    """The verbs of API keys and of the audit log; a part of `StoreClient`."""

    store: Store
    tenant: Tenant
    started_by: StartedBy | None

    if TYPE_CHECKING:

        async def _opened(self) -> None: ...

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
        """Create an API key of a tenant. Its secret is in this answer only: the store keeps a hash.

        scopes: what the key may do. patterns: types that scope `work` may claim, as in `shop.%`; none: all.
        rate: requests a second. open_runs_max: runs started with the key that may be open at once. Conflict
        if a live key of the tenant has this name.
        """
        secret = api_keys.make_secret()
        new = NewApiKey(
            id=api_keys.make_id(),
            tenant=one_tenant(self.tenant, tenant),
            name=check_name("name", name),
            scopes=self._scopes(scopes),
            patterns=_patterns(patterns),
            secret_hash=api_keys.secret_hash(secret),
            expires_at=None if expires_at is None else check_datetime("expires_at", expires_at),
            rate=None if rate is None else check_number("rate", rate, RATE_MIN, KEY_RATE_MAX),
            open_runs_max=None
            if open_runs_max is None
            else check_whole("open_runs_max", open_runs_max, 1, OPEN_RUNS_MAX),
            by=check_by(by),
        )
        await self._opened()
        if new.expires_at is not None and new.expires_at <= await self.store.now():
            raise UsageError(f"expires_at {clipped(expires_at)} has passed: give a later time")
        key = await self.store.create_key(new, self._act("create_key", by))
        return NewKey(key=key, secret=api_keys.composed(key.id, secret))

    def _scopes(self, scopes: Any) -> tuple[Scope, ...]:
        found = tuple(dict.fromkeys(_scope(one) for one in check_list("scopes", scopes)))
        if not found:
            raise UsageError(f"scopes: give at least one of {', '.join(Scope)}")
        if Scope.OPERATOR in found and self.tenant is not ANY:
            raise UsageError(
                f"this app is bound to tenant {clipped(self.tenant)}: scope operator is for all tenants"
            )
        return found

    async def keys(
        self, tenant: Tenant | OwnTenant = OWN, limit: int = 100, after: str | None = None
    ) -> Sequence[ApiKey]:
        """Return API keys by id, also revoked and expired ones, without their hashes.

        In pages: `after` is the last id of the page before; only an empty page is the end. ANY: of all
        tenants.
        """
        whose, limit = tenant_of(self.tenant, tenant), check_limit(limit)
        after = None if after is None else check_text("after", after, ID_MAX)
        await self._opened()
        return await self.store.keys(whose, limit, after)

    async def rotate_key(self, id: str, *, overlap: Seconds = OVERLAP, by: str = "") -> NewKey:
        """Give a key a new secret, which is in this answer only. The old one stays valid for `overlap`, and
        the one before it ends at once. Conflict if the key is revoked.
        """
        key_id, seconds, by = check_key_id(id), check_duration("overlap", overlap), check_by(by)
        await self._opened()
        if self.tenant is not ANY:
            await self._refuse_operator(key_id)
        secret = api_keys.make_secret()
        key = await self.store.rotate_key(
            key_id,
            self.tenant,
            api_keys.secret_hash(secret),
            seconds,
            self._act("rotate_key", by),
        )
        return NewKey(key=key, secret=api_keys.composed(key.id, secret))

    async def _refuse_operator(self, id: str) -> None:
        """Refuse a new secret for an operator's key: it is worth as much as a new key. Scopes never change,
        so no other call comes between.
        """
        found = await self.store.find_key(id)
        if found is not None and found.tenant == self.tenant and Scope.OPERATOR in found.scopes:
            raise UsageError(f"API key {id} has scope operator: only an app of all tenants rotates it")

    async def revoke_key(self, id: str, by: str = "") -> ApiKey:
        """End a key for good. A second call changes nothing."""
        key_id, by = check_key_id(id), check_by(by)
        await self._opened()
        return await self.store.revoke_key(key_id, self.tenant, by, self._act("revoke_key", by))

    async def rotate_signing_key(self) -> datetime:
        """Give the store a new key that signs cursors of the HTTP API; return when it was made.

        The one before it stays valid until the next rotation; older cursors are refused.
        """
        await self._opened()
        return (await self.store.add_signing_key(api_keys.make_signing_key()))[0].created_at

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

        In pages: `after` is the last seq of the page before; only an empty page is the end. Rows are kept
        for 90 days.
        """
        whose, limit = tenant_of(self.tenant, tenant, ANY), check_limit(limit)
        after = None if after is None else check_whole("after", after, 0, BIG_MAX)
        wanted = [check_text("action", one) for one in check_list("actions", actions)]
        of_keys = [check_text("key", one) for one in check_list("keys", keys)]
        between = (
            None if since is None else check_datetime("since", since),
            None if until is None else check_datetime("until", until),
        )
        await self._opened()
        return await self.store.audit(whose, limit, after, wanted, of_keys, between)

    def _act(self, action: str, by: str) -> AuditWrite:
        """Return the audit row of a change. It is written in the commit of the change."""
        caller = self.started_by
        if caller is None or caller.api_key is None:
            return AuditWrite(tenant="", key_name=by, action=action)
        return AuditWrite(
            tenant="", key_id=caller.api_key, key_name=caller.by, action=action, request=caller.request
        )


def check_key_id(id: Any) -> str:
    """Check the id of an API key. The whole text of a key is refused, and not shown: it has the secret."""
    said = exact_text(id)
    if not isinstance(said, str) or not api_keys.is_id(said):
        shown = "this text" if isinstance(said, str) and len(said) > api_keys.ID_LENGTH else clipped(id)
        raise UsageError(f"{shown} is not the id of an API key: 12 characters of a-z and 0-9, after hf_")
    return said


def _scope(scope: Any) -> Scope:
    try:
        return Scope(scope)
    except ValueError:
        raise UsageError(f"{clipped(scope)} is no scope of an API key: {', '.join(Scope)}") from None


def _patterns(patterns: Any) -> tuple[str, ...]:
    found = check_patterns(patterns)
    if len(found) > PATTERNS_MAX:
        raise UsageError(f"an API key has at most {PATTERNS_MAX} patterns, not {len(found)}")
    return found
