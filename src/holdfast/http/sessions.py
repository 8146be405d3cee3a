"""Sessions of people who have signed in to the pages with an API key, as this server process knows them."""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from ipaddress import IPv6Address, ip_address, ip_network
from math import ceil

from holdfast import api_keys
from holdfast.contract import Store
from holdfast.records import NewPageSession, PageSession
from holdfast.world import World

from .problems import Code, Refusal

REMEMBER_SECONDS = 2.0  # an ended session counts in other processes for so long
REMEMBERED, UNKNOWN = 10_000, 1_000  # sessions, and ids of none
IDLE_SECONDS, KEEP_SECONDS = 3600.0, 12 * 3600.0
FAILURES, FAILURES_SECONDS = 10, 60.0  # sign-ins of one address that may fail in this time
ADDRESSES = 10_000
NETWORK_BITS = 64  # of an IPv6 address: one machine has all addresses of such a network
LOOKUPS = 8  # reads of sessions at once
_Read = tuple[PageSession | None, float]  # a session, and when it was read


class Sessions:
    """Begins, finds and ends sessions. One for each server process."""

    def __init__(self, store: Store, world: World) -> None:
        self._store, self._world = store, world
        self._known: OrderedDict[str, _Read] = OrderedDict()
        self._unknown: OrderedDict[str, _Read] = OrderedDict()  # guesses push no session out of `_known`
        self._lookups = asyncio.Semaphore(LOOKUPS)
        self.failures = Failures(world)

    async def begin(self, key_id: str, secret_hash: str) -> str:
        """Begin a session; return its id, which only the browser keeps."""
        id_ = api_keys.make_session_id()
        new = NewPageSession(
            id_hash=hashed(id_),
            key_id=key_id,
            secret_hash=secret_hash,
            idle_seconds=IDLE_SECONDS,
            keep_seconds=KEEP_SECONDS,
        )
        await self._store.create_session(new)
        return id_

    async def find(self, id_hash: str, seconds: float = REMEMBER_SECONDS) -> PageSession | None:
        """Return a live session, as it was at most so many seconds ago."""
        if (known := self._fresh(id_hash, seconds)) is not None:
            return known[0]
        async with self._lookups:
            if (known := self._fresh(id_hash, seconds)) is not None:  # another request has read it meanwhile
                return known[0]
            now = self._world.monotonic()
            found = await self._store.use_session(id_hash)
        self._remember(id_hash, found, now)
        return found

    def _remember(self, id_hash: str, found: PageSession | None, now: float) -> None:
        self._known.pop(id_hash, None)
        self._unknown.pop(id_hash, None)
        place, most = (self._unknown, UNKNOWN) if found is None else (self._known, REMEMBERED)
        place[id_hash] = found, now
        while len(place) > most:
            place.popitem(last=False)

    def _fresh(self, id_hash: str, seconds: float) -> _Read | None:
        known = self._known.get(id_hash) or self._unknown.get(id_hash)
        return known if known is not None and known[1] + seconds >= self._world.monotonic() else None

    async def end(self, id_hash: str) -> None:
        """End a session."""
        await self._store.end_session(id_hash)
        self._remember(id_hash, None, self._world.monotonic())


class Failures:
    """Counts sign-ins that failed, by address, and refuses more when there were too many.

    There is no bound for all addresses together: whoever reaches it would keep everybody else out.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._failed: OrderedDict[str, tuple[int, float]] = OrderedDict()  # how many, since when

    def begin(self, address: str) -> None:
        """Count a sign-in as failed, until `succeed` is called; refuse it after too many. It is counted at
        once, because many may come together.
        """
        self.check(address)
        name = _network(address)
        count, since = self._counted(name)
        self._failed[name] = (count + 1, since)
        self._failed.move_to_end(name)
        while len(self._failed) > ADDRESSES:
            self._failed.popitem(last=False)

    def check(self, address: str) -> None:
        """Refuse a sign-in after too many failures; count nothing."""
        count, since = self._counted(_network(address))
        if count >= FAILURES:
            wait = max(1, ceil(since + FAILURES_SECONDS - self._world.monotonic()))
            said = f"Too many sign-ins from your address have failed: wait {wait} s."
            detail = f"{said} Until then even a valid key is refused."
            raise Refusal(Code.RATE_LIMIT, detail, retry_after_seconds=wait)

    def succeed(self, address: str) -> None:
        """Count a sign-in that has begun as no failure."""
        name = _network(address)
        count, since = self._counted(name)
        self._failed[name] = (max(0, count - 1), since)

    def _counted(self, name: str) -> tuple[int, float]:
        now = self._world.monotonic()
        count, since = self._failed.get(name, (0, now))
        return (count, since) if now < since + FAILURES_SECONDS else (0, now)


def _network(address: str) -> str:
    """Return the name under which an address is counted."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, IPv6Address) and found.ipv4_mapped is None:
        return str(ip_network((found, NETWORK_BITS), strict=False))
    return str(found)


def hashed(id_: str) -> str:
    """Return the hash of a session's id, as stores keep it."""
    return hashlib.sha256(id_.encode()).hexdigest()
