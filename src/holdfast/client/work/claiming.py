"""Claims over HTTP, and the hints of open claims."""

from __future__ import annotations

import asyncio
import threading  # noqa: TID251 - a lock, no thread
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
from msgspec.structs import replace

from holdfast.errors import HoldfastError, UsageError
from holdfast.records import RUNTIME, Ask, Claim, Due, Lease, Renewal
from holdfast.wire import requests
from holdfast.wire.answers import Claimed

from . import receiving, sending
from .book import Name
from .holding import HoldVerbs, release
from .link import Broken
from .open_claim import Leases, OpenClaim
from .watch import Watch

RELEASED_MAX = 1_000  # runs that were given back, and whose claims may still be answered


class Listener(NamedTuple):
    """Functions that are called when there may be news."""

    loop: asyncio.AbstractEventLoop
    hint: Callable[[], None]
    watch: Watch | None


class Ready(msgspec.Struct):
    """The answer of a server that can serve requests."""


class ClaimVerbs(HoldVerbs):
    """The verbs of a worker that looks for runs; a part of `RemoteStore`."""

    def __init__(self) -> None:
        super().__init__()
        self._listeners: dict[object, Listener] = {}
        self._open_claims: dict[str, OpenClaim] = {}  # by worker
        self._is_reached = True
        self._giving_back: set[asyncio.Task[Any]] = set()
        self._seen: dict[str, set[Name]] = {}  # by worker: strays of its last heartbeat
        self._deciding = threading.Lock()  # whether a run is a stray, or begins: one thread at a time
        self._released: set[Name] = set()  # strays that a heartbeat has given back

    # -- hints ---------------------------------------------------------------------------------

    def listen(
        self,
        hint: Callable[[], None],
        holders: Callable[[], None] | None = None,
        changed: Callable[[], None] | None = None,
    ) -> Callable[[], None]:
        """Call `hint` when an open claim has brought runs, and `holders` when a held run was moved."""
        token, watch = object(), None
        if holders is not None:
            watch = Watch(self.world, self.book, self.states, holders, hint)
            watch.begin()
        self._listeners[token] = Listener(asyncio.get_running_loop(), hint, watch)

        def end() -> None:
            found = self._listeners.pop(token, None)
            if found is not None and found.watch is not None:
                found.watch.end()

        return end

    def hears(self) -> bool:
        """Return True while the server can be reached."""
        return self._is_reached

    def _hint(self) -> None:
        loop = asyncio.get_running_loop()
        for one in tuple(self._listeners.values()):
            if one.loop is loop:
                one.hint()

    def _note_reached(self, *, is_reached: bool) -> None:
        if is_reached is not self._is_reached:
            self._is_reached = is_reached
            self._hint()

    # -- claims --------------------------------------------------------------------------------

    def checked_tenant(self, tenants: Sequence[str] | None) -> str | None:
        """Return the tenant whose runs a worker takes; None for all that its key may see."""
        if tenants is None or self.who is None:
            return None
        if len(tenants) > 1:
            raise UsageError("over HTTP a worker takes runs of one tenant, or of all: give one tenant")
        if not self.who.is_operator and tenants[0] != self.who.tenant:
            raise UsageError(f"the API key is of tenant {self.who.tenant!r}, and not of {tenants[0]!r}")
        return tenants[0]

    async def claim(self, ask: Ask) -> list[Claim]:
        """Claim runs. When fewer are due, a claim stays open, and its runs come with a hint."""
        types = sending.own_types(ask.types)
        ask = replace(ask, types=types, limit=min(ask.limit, requests.CLAIM_MAX))
        open_claim = self._open_claim(ask.worker)
        found = open_claim.take(ask)
        self.book.ahead.difference_update((one.id, one.fence) for one in found)
        if not found:
            if not types or open_claim.covers(ask):
                return []
            found = (await self._claimed(ask, ask.limit, 0.0)).claims
        if len(found) < ask.limit and self._listeners:
            open_claim.open(ask, ask.limit - len(found))
        return found

    async def _claimed(self, ask: Ask, slots: int, wait_seconds: float) -> Leases:
        """Send a claim, and note its leases.

        The end of a lease is counted from before the request, and then for as long as the server has waited:
        so it never ends later here than there.
        """
        body, tenant = sending.claim_request(ask, slots, wait_seconds), self.checked_tenant(ask.tenants)
        try:
            asked_at, answer = await self._answer(body, wait_seconds, tenant)
        except HoldfastError:
            self._note_reached(is_reached=False)
            raise
        answered_at = self.world.monotonic()
        self._note_reached(is_reached=True)
        since = asked_at + answer.waited_ms / 1000
        with self._deciding:
            leases = [one for one in answer.leases if (one.run, one.fence) not in self._released]
            self._released.difference_update((one.run, one.fence) for one in answer.leases)
            for one in leases:
                self.book.add(receiving.entry_of(one, ask.worker, since))
        if leases:
            for listener in self._listeners.values():
                if listener.watch is not None:
                    listener.watch.claimed()
        claims = [receiving.claim_of(one, ask.lease_seconds) for one in leases]
        if wait_seconds:
            self.book.ahead.update((one.id, one.fence) for one in claims)
        return Leases(claims, since, answered_at, answer.drain)

    async def _answer(
        self, body: requests.ClaimRequest, wait: float, tenant: str | None
    ) -> tuple[float, Claimed]:
        """Send a claim, and once more if its connection broke: return the time of that request, and its
        answer. A long poll may break after many seconds, which count for no lease.
        """
        ask = partial(self.link.ask, "claim", body, Claimed, wait=wait, tenant=tenant, again=False)
        asked_at = self.world.monotonic()
        try:
            return asked_at, await ask()
        except Broken:
            asked_at = self.world.monotonic()
            return asked_at, await ask()

    def _open_claim(self, worker: str) -> OpenClaim:
        found = self._open_claims.get(worker)
        if found is None:
            found = OpenClaim(self.world, self._claimed, self._hint, self._give_back)
            self._open_claims[worker] = found
        return found

    def _end_claim(self, worker: str) -> None:
        """End the open claim of a worker."""
        if (found := self._open_claims.pop(worker, None)) is not None:
            found.end()

    async def _end_claims(self) -> None:
        """End all open claims, and wait until everything is given back."""
        for worker in tuple(self._open_claims):
            self._end_claim(worker)
        if self._giving_back:
            await asyncio.wait(self._giving_back)

    def renew(self, worker: str, leases: Sequence[Lease], lease_seconds: float) -> Renewal:
        """Send a heartbeat, from the thread of the worker that renews.

        If two of them in a row name a run that an open claim may have brought, and that the event loop has
        not seen, then the loop is blocked, or the answer is lost: the run is given back from here, and
        another worker need not wait for the end of its lease.
        """
        renewal = super().renew(worker, leases, lease_seconds)
        strays, found = set(renewal.strays), self._open_claims.get(worker)
        late = strays & self._seen.get(worker, set()) if found is not None and found.waits else set()
        self._seen[worker] = strays
        with self._deciding:
            held = [one for name in late if (one := self.book.find(*name)) is not None and one.is_stray]
            if len(self._released) > RELEASED_MAX:
                self._released.clear()
            self._released.update(one.name for one in held)
        if held:
            items = tuple([sending.batch_item(release(*one.name), one) for one in held])
            with suppress(HoldfastError):  # if not, their leases expire
                body = requests.BatchRequest(items=items)
                self.link.ask_blocking("batch", body, receiving.BatchAnswer, lease_seconds / 3)
        return renewal

    def _give_back(self, claims: list[Claim]) -> None:
        """Release runs that nobody takes."""
        task = self.world.spawn(self._given_back(claims), "holdfast-give-back")
        self._giving_back.add(task)
        task.add_done_callback(self._giving_back.discard)

    async def _given_back(self, claims: list[Claim]) -> None:
        with suppress(HoldfastError):  # if not, their leases expire
            await self.commit([release(one.id, one.fence) for one in claims])

    async def due(
        self,
        types: Sequence[str],
        tenants: Sequence[str] | None = None,
        *,
        wait_timeouts: bool = True,
        runtime: str = RUNTIME,
        besides: Sequence[tuple[UUID, int]] = (),
        sinks: Sequence[str] = (),
        webhooks: bool = False,
    ) -> Due:
        """Say whether there may be something to claim: not while an open claim waits for it. The server does
        the chores. Without types, check that the server and its store answer.

        Types that no worker of this process has asked for are those of older plans. Only an operator learns
        who else serves them, and may take them.
        """
        if not types:
            await self.link.ask("readyz", None, Ready)
            return Due(now=0)
        asked = [one for one in self._open_claims.values() if one.types.issuperset(types)]
        if any(one.waits for one in asked) or not (asked or self._acts_everywhere):
            return Due(now=0)
        return Due(now=0, claim_at=0)
