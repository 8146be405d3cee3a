"""API keys and the audit log of a tenant."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, TypeVar

from msgspec import Meta

from holdfast.arguments import BIG_MAX
from holdfast.clipped import clipped
from holdfast.engine.app.keys import OVERLAP
from holdfast.http.call import Call, Page
from holdfast.http.operation import Body, Path, operation
from holdfast.http.problems import Code, Refusal
from holdfast.records import ANY, ApiKey, AuditEntry, Scope
from holdfast.shown.data import key_data
from holdfast.shown.shapes import KeyData, Shape

from .fields import Name, OneTenant, Paged, Seconds

TAG = "Keys"
L = TypeVar("L", int, float, datetime)
Zoned = Annotated[datetime, Meta(tz=True)]


class CreateKey(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A key to be created. A key cannot give scopes that it does not have itself."""

    name: Name
    scopes: Annotated[tuple[Scope, ...], Meta(min_length=1, max_length=len(Scope))]
    patterns: Annotated[tuple[Name, ...], Meta(max_length=100)] = ()
    expires_at: Zoned | None = None
    rate: (
        Annotated[float, Meta(gt=0, le=10_000, description="Requests a second, in each process.")] | None
    ) = None
    open_runs_max: Annotated[int, Meta(ge=1, le=10_000)] | None = None


class RotateKey(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """overlap: how many seconds the old secret stays valid; a day, unless something else is given."""

    overlap: Seconds = OVERLAP.total_seconds()


class KeyPath(Path, frozen=True, kw_only=True):
    """An API key by its id."""

    key: Annotated[str, Meta(pattern="^[a-z0-9]{12}$")]


class KeySecret(Shape, frozen=True, kw_only=True, omit_defaults=True):
    """The key and its secret, which is shown once and never again."""

    key: KeyData
    secret: str


class AuditQuery(Paged, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The filters of the audit log."""

    action: Annotated[tuple[Name, ...], Meta(max_length=20)] = ()
    key: Annotated[tuple[Name, ...], Meta(max_length=20, description="Ids of API keys.")] = ()
    since: Zoned | None = None
    until: Zoned | None = None
    after: (
        Annotated[int, Meta(ge=0, le=BIG_MAX, description="Instead of a cursor: behind this seq.")] | None
    ) = None


class KeyQuery(Paged, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """after: instead of a cursor, the keys behind this id."""

    after: Annotated[str, Meta(min_length=1, max_length=64)] | None = None


class Caller(Shape, frozen=True, kw_only=True, omit_defaults=True):
    """The caller of a request. key: the id of its API key; empty on a server without keys. now: the clock of
    the store.
    """

    key: str
    name: str
    tenant: str
    scopes: tuple[Scope, ...]
    now: datetime


@operation("GET", "/whoami", tag=TAG, scope=tuple(Scope))
async def whoami(call: Call) -> Caller:
    """Say whose key the request has, and what the key may do."""
    actor = call.actor
    return Caller(
        key=actor.key_id,
        name=actor.name,
        tenant=actor.tenant,
        scopes=tuple(one for one in Scope if actor.has(one)),
        now=await call.api.client.now(),
    )


@operation("GET", "/keys", tag=TAG, scope=(Scope.ADMIN, Scope.OPERATOR))
async def keys(call: Call, query: KeyQuery) -> Page[KeyData]:
    """List the API keys of the tenant, without their secrets."""
    client = call.client(query.tenant)
    after = call.after(query.cursor)
    found = await client.store.keys(call.scope, query.limit, query.after if after is None else after[0])
    return call.page([key_data(one) for one in found], (found[-1].id,) if found else None)


@operation("POST", "/keys", tag=TAG, scope=(Scope.ADMIN, Scope.OPERATOR), statuses=(201,), audited=False)
async def create_key(call: Call, query: OneTenant, body: CreateKey) -> KeySecret:
    """Create an API key. Its secret is in this answer only."""
    client = call.client(query.tenant, one=True)
    _check_given(call, body.scopes)
    _check_patterns(call, body.scopes, body.patterns)
    made = await client.create_key(
        body.name,
        scopes=body.scopes,
        patterns=body.patterns,
        expires_at=_least("expires_at", body.expires_at, call.actor.expires_at),
        rate=_least("rate", body.rate, call.actor.rate),
        open_runs_max=_least("open_runs_max", body.open_runs_max, call.actor.open_runs_max),
        by=call.by,
    )
    call.target = made.key.id
    return KeySecret(key=key_data(made.key), secret=made.secret)


@operation("POST", "/keys/{key}/rotate", tag=TAG, scope=(Scope.ADMIN, Scope.OPERATOR), audited=False)
async def rotate_key(call: Call, path: KeyPath, query: OneTenant, body: RotateKey) -> KeySecret:
    """Give a key a new secret. The old one stays valid for `overlap` seconds."""
    client = call.client(query.tenant)
    if (found := await _found(call, path.key)) is not None:
        # Its new secret is worth as much as a new key.
        _check_given(call, found.scopes)
        _check_patterns(call, found.scopes, found.patterns)
        for what in ("expires_at", "rate", "open_runs_max"):
            _check_most(what, getattr(found, what), getattr(call.actor, what))
    made = await client.rotate_key(path.key, overlap=body.overlap, by=call.by)
    return KeySecret(key=key_data(made.key), secret=made.secret)


@operation("POST", "/keys/{key}/revoke", tag=TAG, scope=(Scope.ADMIN, Scope.OPERATOR), audited=False)
async def revoke_key(call: Call, path: KeyPath, query: OneTenant) -> KeyData:
    """Revoke a key for good. Its requests are refused and its streams end within a few seconds."""
    client = call.client(query.tenant)
    if (found := await _found(call, path.key)) is not None and Scope.OPERATOR in found.scopes:
        call.need(Scope.OPERATOR)  # to end a key gives nothing to anyone, but operators are not the tenant's
    return key_data(await client.revoke_key(path.key, by=call.by))


@operation("GET", "/audit", tag=TAG, scope=(Scope.ADMIN, Scope.OPERATOR))
async def audit(call: Call, query: AuditQuery) -> Page[AuditEntry]:
    """List who did what, newest first: acts and refusals of API keys."""
    client = call.client(query.tenant)
    after = call.after(query.cursor, query)
    found = await client.audit(
        limit=query.limit,
        after=query.after if after is None else after[0],
        actions=query.action,
        keys=query.key,
        since=query.since,
        until=query.until,
    )
    return call.page(found, (found[-1].seq,) if found else None, query)


def _check_given(call: Call, scopes: Sequence[Scope]) -> None:
    """Refuse scopes that the caller lacks. An operator key is made with access to the store only: otherwise
    a stolen one could make more of its kind.
    """
    _check_lacking(sorted({*scopes} - (call.actor.scopes - {Scope.OPERATOR})))


def _check_patterns(call: Call, scopes: Sequence[Scope], patterns: Sequence[str]) -> None:
    """Refuse types that the caller may not claim itself."""
    own = call.actor.patterns
    if Scope.WORK in scopes and own and not patterns:
        raise Refusal(Code.SCOPE_MISSING, f"this key works for some types only; give `patterns`: {own}")
    for one in patterns if own else ():
        if not any(one == mine or (mine.endswith("%") and one.startswith(mine[:-1])) for mine in own):
            raise Refusal(Code.SCOPE_MISSING, f"this key cannot give a type that it lacks: {clipped(one)}")


def _least(what: str, given: L | None, own: L | None) -> L | None:
    """Return a limit of a new key: that of the caller when none is given; refuse one that is wider."""
    if given is not None:
        _check_most(what, given, own)
    return own if given is None else given


def _check_most(what: str, given: L | None, own: L | None) -> None:
    """Refuse a limit that is wider than the caller's own; None: no limit."""
    if own is not None and (given is None or given > own):
        raise Refusal(Code.SCOPE_MISSING, f"this key cannot give more than it has itself: {what} {own}")


def _check_lacking(lacking: Sequence[Scope]) -> None:
    if lacking:
        raise Refusal(Code.SCOPE_MISSING, f"a key cannot give a scope that it lacks: {', '.join(lacking)}")


async def _found(call: Call, id_: str) -> ApiKey | None:
    """Return the key, if it is one of the caller's tenant."""
    call.target = id_
    found = await call.api.store.find_key(id_)
    return found if found is not None and call.scope in {ANY, found.tenant} else None
