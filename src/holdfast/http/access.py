"""Access: who makes a request, which scopes they have, and how often they may ask.

The tenant of a request comes only from its API key. A key is looked up by its id and remembered for
REMEMBER_SECONDS, so that a revocation counts within that time. A server without keys (`open`) lets everyone
in as an operator, under the rules of `check_local`.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from datetime import datetime
from urllib.parse import urlsplit

import msgspec
from starlette.requests import Request

from holdfast import api_keys
from holdfast.contract import Store
from holdfast.records import DEFAULT_TENANT, ApiKey, Scope, moment
from holdfast.world import World

from .problems import Code, Refusal
from .sessions import Sessions

REMEMBER_SECONDS = 2.0
AGAIN_SECONDS = 0.1  # a key whose secret does not match is read again, at most so often
REMEMBERED, UNKNOWN = 10_000, 1_000  # keys, and ids of no key
LOOKUPS = 8  # reads of keys at once
STREAM_SECONDS = 4.0  # the session of an open page is read so often: there may be hundreds of them
LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip", "via")
_CHALLENGE = {"www-authenticate": 'Bearer realm="holdfast"'}


class Actor(msgspec.Struct, frozen=True, kw_only=True):
    """The caller of one request. Without a key (`key_id` is empty) it is an operator on this machine."""

    key_id: str
    name: str
    tenant: str
    scopes: frozenset[Scope]
    patterns: tuple[str, ...] = ()
    rate: float | None = None
    open_runs_max: int | None = None
    expires_at: datetime | None = None
    secret_hash: str = ""  # of the secret that was used: a stream ends with it
    session: str = ""  # the hash of a session of the pages: a stream ends with it

    def has(self, scope: Scope) -> bool:
        """Return True if the caller has the scope."""
        return scope in self.scopes

    @property
    def sees_values(self) -> bool:
        """Whether params, results, outputs and messages of errors may be shown to it."""
        return self.has(Scope.PAYLOADS_READ)


OPEN = Actor(key_id="", name="http", tenant=DEFAULT_TENANT, scopes=frozenset(Scope))


class _Remembered(msgspec.Struct):
    key: ApiKey | None
    read_at: float
    actors: dict[str, Actor] = {}  # by the hash of the secret: the present one, and perhaps the old one


class Access:
    """Finds the caller of a request, and counts how often each key asks. One for each server process."""

    def __init__(self, store: Store, world: World, *, is_open: bool) -> None:
        self._store, self._world, self.is_open = store, world, is_open
        self.sessions = Sessions(store, world)
        self._known: OrderedDict[str, _Remembered] = OrderedDict()
        self._unknown: OrderedDict[str, _Remembered] = OrderedDict()  # guesses push no key out of `_known`
        # Valid Authorization headers by their SHA-256: the id of the key, what was read of it, the caller.
        self._headers: dict[bytes, tuple[str, _Remembered, Actor]] = {}
        self._lookups = asyncio.Semaphore(LOOKUPS)
        self._buckets: OrderedDict[tuple[str, bool], _Bucket] = OrderedDict()  # by key, and urgent
        self._used: set[str] = set()
        self.refused = 0  # requests without a valid key: they are counted, and not stored

    async def actor(self, request: Request) -> Actor:
        """Return the caller; refuse a request without a valid key."""
        said = request.headers.getlist("authorization")
        if self.is_open and not said:
            return OPEN
        header = hashlib.sha256(said[0].encode("latin-1")).digest() if len(said) == 1 else b""
        if (known := self._of_header(header)) is not None:
            return known
        given = api_keys.parse(_bearer(said))
        if given is None:
            self.refused += 1
        found = None if given is None else await self.of_key(given[0], api_keys.secret_hash(given[1]))
        if found is None:
            raise unauthenticated()
        self._keep_header(header, found)
        return found

    def _of_header(self, header: bytes) -> Actor | None:
        """Return the caller of a header that was valid when its key was read, if that still counts."""
        id_, remembered, actor = self._headers.get(header, ("", None, None))
        if remembered is None or self._known.get(id_) is not remembered:
            return None
        if remembered.read_at + REMEMBER_SECONDS < self._world.monotonic():
            return None
        self._used.add(id_)
        return actor

    def _keep_header(self, header: bytes, actor: Actor) -> None:
        """Keep a valid header as long as its key is remembered, unless time alone may end the key or the
        secret. The key may have been read again meanwhile: then only the record that matched counts.
        """
        found = self._known.get(actor.key_id)
        if found is None or found.key is None or found.actors.get(actor.secret_hash) is not actor:
            return
        if found.key.expires_at is None and found.key.secret_hash == actor.secret_hash:
            if len(self._headers) >= REMEMBERED:
                self._headers.clear()
            self._headers[header] = actor.key_id, found, actor

    @property
    def open_actor(self) -> Actor:
        """The caller of a server without keys."""
        return OPEN

    async def of_key(self, id_: str, secret_hash: str) -> Actor | None:
        """Return the caller with the live key that has this id and secret; None: there is none."""
        found = await self._matching(id_, secret_hash)
        if found is None:
            self.refused += 1
        else:
            self._used.add(found.key_id)
        return found

    async def _matching(self, id_: str, secret_hash: str) -> Actor | None:
        """Return the caller with the live key that has this id and secret. A remembered key that does not
        match is read again: it may have a new secret by now.
        """
        for seconds in (REMEMBER_SECONDS, AGAIN_SECONDS):
            found = await self._remembered(id_, seconds)
            if api_keys.matches_hash(found.key, secret_hash, self._now()) and found.key is not None:
                if secret_hash not in found.actors:
                    found.actors[secret_hash] = _actor(found.key, secret_hash)
                return found.actors[secret_hash]
        return None

    async def is_live(self, actor: Actor) -> bool:
        """Return True while the key of an open stream is neither revoked nor expired, and the secret that
        has opened it is still valid.
        """
        if not actor.key_id:
            return self.is_open
        if actor.session and await self.sessions.find(actor.session, STREAM_SECONDS) is None:
            return False
        found = await self._remembered(actor.key_id)
        return api_keys.matches_hash(found.key, actor.secret_hash, self._now())

    def _now(self) -> datetime:
        return moment(self._world.now())

    async def _remembered(self, id_: str, seconds: float = REMEMBER_SECONDS) -> _Remembered:
        """Return a key as it was at most so many seconds ago, or that there is none."""
        found = self._fresh(id_, seconds)
        if found is None:
            async with self._lookups:
                found = self._fresh(id_, seconds)  # another request may have read it meanwhile
                if found is None:
                    read_at = self._world.monotonic()
                    found = _Remembered(await self._store.find_key(id_), read_at)
                    self._remember(id_, found)
        return found

    def _fresh(self, id_: str, seconds: float) -> _Remembered | None:
        found = self._known.get(id_) or self._unknown.get(id_)
        return found if found is not None and found.read_at + seconds >= self._world.monotonic() else None

    def _remember(self, id_: str, found: _Remembered) -> None:
        self._known.pop(id_, None)
        self._unknown.pop(id_, None)
        place, most = (self._unknown, UNKNOWN) if found.key is None else (self._known, REMEMBERED)
        place[id_] = found
        while len(place) > most:
            place.popitem(last=False)

    def check_rate(self, actor: Actor, *, urgent: bool = False) -> None:
        """Refuse a request of a key that has made more of them than its rate allows, in this process.

        Urgent requests are counted apart, with the same rate: no lease ends because its worker writes much.
        """
        if actor.rate is None:
            return
        counted = actor.key_id, urgent
        bucket = self._buckets.get(counted)
        if bucket is None or bucket.rate != actor.rate:
            bucket = self._buckets[counted] = _Bucket(actor.rate, self._world.monotonic())
            while len(self._buckets) > REMEMBERED:
                self._buckets.popitem(last=False)
        if wait := bucket.wait(self._world.monotonic()):
            detail = f"the key may make {actor.rate:g} requests a second"
            raise Refusal(Code.RATE_LIMIT, detail, retry_after_seconds=wait)

    def used(self) -> list[str]:
        """Return the ids of keys that were used since the last call."""
        used, self._used = sorted(self._used), set()
        return used


class _Bucket:
    """A token bucket: it holds the requests of one second, and at least one."""

    def __init__(self, rate: float, now: float) -> None:
        self.rate, self._size = rate, max(1.0, rate)
        self._left, self._at = self._size, now

    def wait(self, now: float) -> float:
        """Take one request; return 0, or the seconds until there is one."""
        self._left = min(self._size, self._left + (now - self._at) * self.rate)
        self._at = now
        if self._left >= 1:
            self._left -= 1
            return 0.0
        return (1 - self._left) / self.rate


def unauthenticated() -> Refusal:
    """Return the refusal of a request without a valid key: the same for every reason."""
    return Refusal(Code.UNAUTHENTICATED, headers=_CHALLENGE)


def check_scopes(actor: Actor, scopes: Sequence[Scope]) -> None:
    """Refuse a caller that has none of these scopes."""
    if scopes and actor.scopes.isdisjoint(scopes):
        raise Refusal(Code.SCOPE_MISSING, f"this needs the scope {' or '.join(scopes)}")


def tenant_for(actor: Actor, named: str | None) -> str:
    """Return the tenant of a request: the key's own. Only an operator may name another, or `*` for all.

    Another tenant's name gets the same answer whether that tenant exists or not.
    """
    if named is None or named == actor.tenant:
        return actor.tenant
    check_scopes(actor, [Scope.OPERATOR])
    return named


def check_local(request: Request, *, check_host: bool) -> None:
    """Check a request to a server without keys: a page of another site must not reach it.

    A browser sends such a page's requests with a foreign Origin. With DNS rebinding the Origin looks right,
    but the Host is the name of that site. A proxy on this machine may send the requests of everyone.
    """
    host = request.headers.get("host", "")
    if check_host and host_name(host) not in LOOPBACK:
        raise Refusal(Code.HOST_REFUSED)
    if check_host and (passed_on := next((one for one in FORWARDED if one in request.headers), None)):
        detail = (
            f"{passed_on} says that the request came through a proxy; with an API key in the store it may"
        )
        raise Refusal(Code.HOST_REFUSED, detail)
    origin = request.headers.get("origin")
    if origin is not None and netloc(origin) != host.lower():
        raise Refusal(Code.ORIGIN_REFUSED)
    if request.headers.get("sec-fetch-site", "none") not in {"none", "same-origin"}:
        raise Refusal(Code.ORIGIN_REFUSED)


def netloc(origin: str) -> str:
    """Return the host and port of an Origin; empty when it has none."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def host_name(host: str) -> str:
    """Return a Host header without its port."""
    name, _, port = host.lower().rpartition(":")
    return (
        name if name and port.isdigit() and (not name.startswith("[") or name.endswith("]")) else host.lower()
    )


def _bearer(said: list[str]) -> str:
    """Return the key of an Authorization header; empty when there is not exactly one."""
    scheme, _, rest = said[0].partition(" ") if len(said) == 1 else ("", "", "")
    return rest.strip() if scheme.lower() == "bearer" else ""


def _actor(key: ApiKey, secret_hash: str) -> Actor:
    return Actor(
        key_id=key.id,
        name=key.name,
        tenant=key.tenant,
        scopes=frozenset(key.scopes),
        patterns=key.patterns,
        rate=key.rate,
        open_runs_max=key.open_runs_max,
        expires_at=key.expires_at,
        secret_hash=secret_hash,
    )
