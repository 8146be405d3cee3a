"""The shared parts of the worker protocol in one server process."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from uuid import UUID

from holdfast.contract import Store
from holdfast.engine.definitions import matches
from holdfast.engine.failures import encoded, failing, line
from holdfast.engine.worker.giving_back import SHUT_SECONDS
from holdfast.escaping import safe_logger
from holdfast.http.access import Actor
from holdfast.http.signing import Signing
from holdfast.records import (
    ANY,
    Answer,
    Ask,
    Claim,
    Error,
    Item,
    Lease,
    Renewal,
    Run,
    Tenant,
    Verdict,
    instant,
)
from holdfast.records.moves import RELEASE, HolderMove, Retry
from holdfast.sealing.envelope import OURS, shut
from holdfast.wire.answers import Leased, Stray
from holdfast.wire.items import Origin
from holdfast.wire.writing import leased, origin_of, unreadable_in
from holdfast.world import World

from .claims import Claims
from .commits import Commits, Outcome
from .keeping import Keeping, Ring
from .moved import Moved
from .numbers import Numbers
from .presences import Presences

log = safe_logger("holdfast.http")

RENEWALS = 8  # heartbeats that are written at once
STRAYS_MAX = 100  # of one answer; the next one has others
END_SECONDS = (0.1, 0.5, 2.0)  # before a move is tried again that the store did not take


class Work:
    """Claims, commits, renewals and tokens for the workers of this server."""

    def __init__(self, store: Store, world: World, signing: Signing, ring: Ring | None) -> None:
        self.store, self.world, self._signing = store, world, signing
        self.commits = Commits(store, world)
        self.claims = Claims(store, world, self._give_back)
        self.keeping = Keeping(store, world, ring)
        self.moved = Moved(store, world)
        self.numbers = Numbers()
        self.presences = Presences(store, world)
        self._renewals = asyncio.Semaphore(RENEWALS)

    # -- leases --------------------------------------------------------------------------------

    async def leases(self, claims: Sequence[Claim], lease_seconds: float) -> tuple[Leased, ...]:
        """Return claimed runs with their tokens. A run whose values cannot be read is given back or failed
        here: its worker could do nothing else.
        """
        if claims:
            self.keeping.leased(lease_seconds)
        found = [self._lease(one, lease_seconds) for one in claims]
        # At once: the leases of the others go on meanwhile, and their worker does not know of them yet.
        ends = [
            self._end([claim], one)
            for claim, one in zip(claims, found, strict=True)
            if not isinstance(one, Leased)
        ]
        await asyncio.gather(*ends)
        return tuple([one for one in found if isinstance(one, Leased)])

    def _lease(self, claim: Claim, lease_seconds: float) -> Leased | HolderMove:
        """Return a claimed run with its token, or the move that ends a lease which no worker can use."""
        if why := shut(claim):
            error = Error(kind=OURS, message=why)
            log.warning("run %s is released for %g s: %s", claim.id, SHUT_SECONDS, why)
            return Retry(
                error=encoded(error), last_error=line(error), delay_seconds=SHUT_SECONDS, refund=True
            )
        origin = origin_of(claim, lease_seconds)
        token = self._signing.tokens.make(claim.id, claim.fence, origin)
        lease = leased(claim, origin, token, lease_seconds * 1000)
        if unread := unreadable_in(lease):
            return failing(Error(kind="encoding", message=unread))
        return lease

    async def _end(self, claims: Sequence[Claim], move: HolderMove) -> None:
        """Make a move for claimed runs that their worker does not get. If the store does not take it, it is
        repeated for a few seconds; after that the runs come back when their leases have expired.
        """
        left = [
            (
                Item(run=one.id, tenant=one.tenant, fence=one.fence, number=1, move=move),
                one.parent is not None,
            )
            for one in claims
        ]
        for delay in (*END_SECONDS, 0.0):
            outcomes = await self.commits.commit(left)
            left = [one for one, outcome in zip(left, outcomes, strict=True) if not _is_taken(outcome)]
            if not left:
                return
            await asyncio.sleep(delay)
        log.warning("%d runs are not given back: they return when their leases have expired", len(left))

    async def _give_back(self, ask: Ask, claims: Sequence[Claim]) -> None:
        log.info("%d runs are given back: worker %s has left", len(claims), ask.worker)
        await self._end(claims, RELEASE)

    # -- heartbeats ----------------------------------------------------------------------------

    async def renew(self, worker: str, leases: Sequence[Lease], lease_seconds: float) -> Renewal:
        """Extend leases. The store's verb blocks, so it is called in a thread."""
        async with self._renewals:
            self.keeping.leased(lease_seconds)
            return await self.world.thread(self.store.renew, worker, leases, lease_seconds, separate=True)

    async def strays(
        self, found: Sequence[tuple[UUID, int]], tenant: Tenant, actor: Actor
    ) -> tuple[Stray, ...]:
        """Return the runs that are leased to a worker which did not name them, with tokens; only those that
        its key may see.
        """
        strays = []
        for run, fence in found[:STRAYS_MAX]:
            record = await self.store.get(run, tenant)
            if record is not None and may_claim(actor, record.type):
                strays.append(Stray(run=run, fence=fence, token=self._token(record, fence)))
        return tuple(strays)

    def _token(self, run: Run, fence: int) -> str:
        at = instant(run.lease_until or run.updated_at)
        origin = Origin(run.tenant, at, instant(run.created_at), run.parent is not None)
        return self._signing.tokens.make(run.id, fence, origin)

    # -- the end -------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Answer long polls at once, and start no new ones."""
        self.moved.close()
        await self.claims.close()

    async def close(self) -> None:
        """End everything; what is queued is written first."""
        await self.stop()
        await self.commits.close()
        await self.keeping.close()


def _is_taken(outcome: Outcome) -> bool:
    """Return True when the store has decided about an item."""
    return isinstance(outcome, Verdict) and outcome.answer is not Answer.BUSY


def may_claim(actor: Actor, type_: str) -> bool:
    """Return True for a type that the patterns of the key allow."""
    return not actor.patterns or matches(type_, actor.patterns)


def tenants_of(scope: Tenant) -> tuple[str, ...] | None:
    """Return the tenants of a request as a claim names them: None for all."""
    return None if scope is ANY else (scope,)
