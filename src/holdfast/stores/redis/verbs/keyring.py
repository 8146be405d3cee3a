"""API keys, signing keys and the audit log.

| key | content |
|---|---|
| `apikeys` | hash: id → JSON |
| `apikeys:ids`, `apikeys:of:<tenant>` | sorted sets of ids, in their order |
| `apikeys:names` | hash: `<tenant>:<name>` → id of the newest key of that name: no other one can be live |
| `apikeys:ended` | sorted set: keys by the time when they were revoked or expire |
| `audit`, `audit:<tenant>` | sorted sets: `<number> <µs> <JSON>`, and `<number> <µs>` for one tenant |
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Sequence

import msgspec
from msgspec.structs import asdict, replace

from holdfast.bounds import BATCH_BYTES, page
from holdfast.contract import AUDIT_SECONDS, KEY_KEEP_SECONDS
from holdfast.contract import AUDIT_SLACK_SECONDS as SLACK
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
    instant,
    moment,
    tenant_name,
)
from holdfast.stores import keys as rules
from holdfast.stores.redis.core import Core
from holdfast.stores.redis.names import parted
from holdfast.stores.redis.snapshot import Snapshot

_KEY = msgspec.json.Decoder(ApiKey)
_AUDIT = msgspec.json.Decoder(AuditWrite)
PAGE = 200  # rows that are read at once
WORDS = 500  # rows that one command removes


def _find(snapshot: Snapshot, id: str, tenant: str | None) -> ApiKey:
    text = snapshot.guarded("HGET", snapshot.names("apikeys"), id)
    key = None if text is None else _KEY.decode(text)
    if key is None or tenant not in {None, key.tenant}:
        raise UnknownApiKey(id)
    return key


def _put(snapshot: Snapshot, key: ApiKey) -> None:
    names = snapshot.names
    snapshot.do("HSET", names("apikeys"), key.id, msgspec.json.encode(key).decode())
    ends = [instant(at) for at in (key.revoked_at, key.expires_at) if at is not None]
    if ends:
        snapshot.do("ZADD", names("apikeys:ended"), min(ends), key.id)


def _note(snapshot: Snapshot, entries: Sequence[AuditWrite]) -> None:
    for entry in rules.cut(entries):
        names, at = snapshot.names, snapshot.now
        text = f"{at} {msgspec.json.encode(entry).decode()}"
        snapshot.log("audit", names("audit"), text, names.of("audit", entry.tenant), str(at))


def _note_about(snapshot: Snapshot, audit: AuditWrite | None, key: ApiKey) -> ApiKey:
    """Write the audit row of a change. Return the changed key as callers see it."""
    if audit is not None:
        _note(snapshot, [rules.about_key(audit, key)])
    return rules.shown(key)


def create(snapshot: Snapshot, new: NewApiKey, audit: AuditWrite | None) -> ApiKey:
    """Store a key. Its name must be free among the live keys of its tenant."""
    names, now = snapshot.names, snapshot.now
    text = snapshot.guarded("HGET", names("apikeys"), new.id)
    if text is not None:
        return rules.known(_KEY.decode(text), new)
    name = parted(new.tenant, new.name)
    other = snapshot.guarded("HGET", names("apikeys:names"), name)
    text = None if other is None else snapshot.guarded("HGET", names("apikeys"), other)
    if other is not None and text is not None and _KEY.decode(text).is_live(moment(now)):
        raise rules.name_taken(new.name, other)
    key = rules.made(new, now)
    _put(snapshot, key)
    snapshot.do("ZADD", names("apikeys:ids"), 0, key.id)
    snapshot.do("ZADD", names.of("apikeys:of", key.tenant), 0, key.id)
    snapshot.do("HSET", names("apikeys:names"), name, key.id)
    return _note_about(snapshot, audit, key)


def signing(snapshot: Snapshot) -> tuple[SigningKey, ...]:
    """Return the signing keys, newest first."""
    text = snapshot.guarded("GET", snapshot.names("signing"))
    found = [] if text is None else msgspec.json.decode(text, type=list[tuple[int, str, int]])
    return tuple(
        SigningKey(id=id, secret=b64decode(secret), created_at=moment(at)) for id, secret, at in found
    )


def add_signing_key(snapshot: Snapshot, fresh: bytes) -> tuple[SigningKey, ...]:
    """Add a signing key, unless it is the newest."""
    known = signing(snapshot)
    keys = rules.with_signing_key(known, fresh, snapshot.now)
    if keys != known:
        rows = [(one.id, b64encode(one.secret).decode(), instant(one.created_at)) for one in keys]
        snapshot.do("SET", snapshot.names("signing"), msgspec.json.encode(rows).decode())
    return keys


def purge(snapshot: Snapshot, limit: int, now: Instant) -> tuple[int, int]:
    """Remove old audit rows and keys that ended long ago. Return how many of each."""
    return (_purge_audit(snapshot, limit, now), _purge_keys(snapshot, limit, now)) if limit > 0 else (0, 0)


def _purge_audit(snapshot: Snapshot, limit: int, now: Instant) -> int:
    names, since = snapshot.names, now - micros(AUDIT_SECONDS)
    members = snapshot.read("ZRANGE", names("audit"), 0, limit - 1)
    old = [member for member in members if int(member.split(" ", 2)[1]) <= since]
    for at in range(0, len(old), WORDS):
        snapshot.do("ZREM", names("audit"), *old[at : at + WORDS])
    of_tenants: dict[str, list[str]] = {}
    for member in old:
        seq, at_, text = member.split(" ", 2)
        of_tenants.setdefault(_AUDIT.decode(text).tenant, []).append(f"{seq} {at_}")
    for tenant, rows in of_tenants.items():
        for at in range(0, len(rows), WORDS):
            snapshot.do("ZREM", names.of("audit", tenant), *rows[at : at + WORDS])
    return len(old)


def _purge_keys(snapshot: Snapshot, limit: int, now: Instant) -> int:
    """Remove keys. The one with the greatest id stays: a store that had keys never looks like one without."""
    names, until = snapshot.names, now - micros(KEY_KEEP_SECONDS)
    ended = snapshot.read("ZRANGEBYSCORE", names("apikeys:ended"), "-inf", until, "LIMIT", 0, limit + 1)
    if not ended:
        return 0
    # Another purge must not remove the greatest one meanwhile.
    count = ("ZCARD", names("apikeys:ids"))
    _, kept = snapshot.all([count, ("ZREVRANGEBYLEX", names("apikeys:ids"), "+", "-", "LIMIT", 0, 1)])
    gone = [id for id in ended if id not in kept][:limit]
    texts = snapshot.all([("HGET", names("apikeys"), id) for id in gone])
    keys = [_KEY.decode(text) for text in texts if text is not None]
    fields = [parted(key.tenant, key.name) for key in keys]
    newest = snapshot.all([("HGET", names("apikeys:names"), field) for field in fields])
    if gone:
        snapshot.guarded(*count)
    for key, field, id in zip(keys, fields, newest, strict=True):
        snapshot.do("HDEL", names("apikeys"), key.id)
        for index in (names("apikeys:ids"), names.of("apikeys:of", key.tenant), names("apikeys:ended")):
            snapshot.do("ZREM", index, key.id)
        if id == key.id:
            snapshot.guard(("HGET", names("apikeys:names"), field), id)
            snapshot.do("HDEL", names("apikeys:names"), field)
    return len(keys)


class KeyVerbs(Core):
    """The verbs of keys and of the audit log, as a mixin of the store."""

    async def create_key(self, new: NewApiKey, audit: AuditWrite | None = None) -> ApiKey:
        return await self._change(lambda snapshot: create(snapshot, new, audit))

    async def keys(self, tenant: Tenant, limit: int = 100, after: str | None = None) -> list[ApiKey]:
        name, found, size = tenant_name(tenant), list[ApiKey](), 0
        index = self._names("apikeys:ids") if name is None else self._names.of("apikeys:of", name)
        low = "-" if after is None else f"({after}"
        while len(found) < limit and size <= BATCH_BYTES:
            (ids,) = await self._connections.ask([("ZRANGEBYLEX", index, low, "+", "LIMIT", 0, PAGE)])
            if not ids:
                break
            (texts,) = await self._connections.ask([("HMGET", self._names("apikeys"), *ids)])
            some = [rules.shown(_KEY.decode(text)) for text in texts if text is not None]
            found += some
            size += sum(map(rules.key_bytes, some))
            low = f"({ids[-1]}"
        return page(found, rules.key_bytes, limit)

    async def find_key(self, id: str) -> ApiKey | None:
        (text,) = await self._connections.ask([("HGET", self._names("apikeys"), id)])
        return None if text is None else _KEY.decode(text)

    async def rotate_key(
        self,
        id: str,
        tenant: Tenant,
        secret_hash: str,
        overlap_seconds: float = 0.0,
        audit: AuditWrite | None = None,
    ) -> ApiKey:
        def rotate(snapshot: Snapshot) -> ApiKey:
            key = _find(snapshot, id, tenant_name(tenant))
            changed = rules.rotated(key, secret_hash, overlap_seconds, snapshot.now)
            if changed is None:
                return rules.shown(key)
            _put(snapshot, changed)
            return _note_about(snapshot, audit, changed)

        return await self._change(rotate)

    async def revoke_key(
        self, id: str, tenant: Tenant, by: str = "", audit: AuditWrite | None = None
    ) -> ApiKey:
        def revoke(snapshot: Snapshot) -> ApiKey:
            key = _find(snapshot, id, tenant_name(tenant))
            if key.revoked_at is not None:
                return rules.shown(key)
            changed = replace(key, revoked_at=moment(snapshot.now), revoked_by=by)
            _put(snapshot, changed)
            return _note_about(snapshot, audit, changed)

        return await self._change(revoke)

    async def use_keys(self, ids: Sequence[str]) -> None:
        def use(snapshot: Snapshot) -> None:
            name, named = snapshot.names("apikeys"), dict.fromkeys(ids)
            snapshot.all([("HGET", name, id) for id in named])
            for id in named:
                text = snapshot.guarded("HGET", name, id)
                used = None if text is None else rules.used(_KEY.decode(text), snapshot.now)
                if used is not None:
                    snapshot.do("HSET", name, id, msgspec.json.encode(used).decode())

        await self._change(use)

    async def signing_keys(self, fresh: bytes) -> tuple[SigningKey, ...]:
        return await self._change(lambda snapshot: signing(snapshot) or add_signing_key(snapshot, fresh))

    async def add_signing_key(self, fresh: bytes) -> tuple[SigningKey, ...]:
        return await self._change(lambda snapshot: add_signing_key(snapshot, fresh))

    async def note_audit(self, entries: Sequence[AuditWrite]) -> None:
        await self._change(lambda snapshot: _note(snapshot, entries))

    async def audit(
        self,
        tenant: Tenant,
        limit: int = 100,
        after: int | None = None,
        actions: Sequence[str] = (),
        keys: Sequence[str] = (),
        between: rules.Span = (None, None),
    ) -> list[AuditEntry]:
        name, (since, until), found, size = tenant_name(tenant), between, list[AuditEntry](), 0
        index = self._names("audit") if name is None else self._names.of("audit", name)
        high = "+inf" if after is None else f"({after}"
        if until is not None:
            high = await self._audit_until(index, until, after)
        while len(found) < limit and size <= BATCH_BYTES:
            (members,) = await self._connections.ask(
                [("ZREVRANGEBYSCORE", index, high, "-inf", "LIMIT", 0, PAGE)]
            )
            places = [(int(seq), int(at)) for seq, at, *_ in (member.split(" ", 2) for member in members)]
            if name is not None:
                members = await self._audit_rows([seq for seq, at in places if rules.is_within(at, between)])
            entries = map(_audit_entry, members)
            some = [entry for entry in entries if rules.is_asked_for(entry, actions, keys, between)]
            found += some
            size += sum(map(rules.entry_bytes, some))
            if len(places) < PAGE or (since is not None and places[-1][1] < since - micros(SLACK)):
                break
            high = f"({places[-1][0]}"
        return page(found, rules.entry_bytes, limit)

    async def _audit_until(self, index: str, until: Instant, after: int | None) -> str:
        """Return the place from which on rows, newest first, may be before an instant."""
        (count,) = await self._connections.ask([("ZCARD", index)])
        low, high, found = 0, count, count
        while low < high:
            middle = (low + high) // 2
            (members,) = await self._connections.ask([("ZRANGE", index, middle, middle)])
            if members and int(members[0].split(" ", 2)[1]) < until + micros(SLACK):
                low = middle + 1
            else:
                high = found = middle
        (members,) = await self._connections.ask([("ZRANGE", index, found, found)])
        numbers = [int(members[0].split(" ", 1)[0])] if members else []
        numbers += [] if after is None else [after]
        return f"({min(numbers)}" if numbers else "+inf"

    async def _audit_rows(self, numbers: Sequence[int]) -> list[str]:
        asked = [("ZRANGEBYSCORE", self._names("audit"), seq, seq) for seq in numbers]
        found = await self._connections.ask(asked) if asked else []
        return [members[0] for members in found if members]


def _audit_entry(member: str) -> AuditEntry:
    seq, at, text = member.split(" ", 2)
    return AuditEntry(seq=int(seq), at=moment(int(at)), **asdict(_AUDIT.decode(text)))
