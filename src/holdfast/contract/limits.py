"""Rules for claims: the registry of types, and limits on how many runs at once, how often, and for whom."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from holdfast.records import Hold, Instant, Limit, Registration, Tenant


class Registry(Protocol):
    """The runtime that executes a type, and whether the type is enabled.

    The entry of a type is the one under its own name, `shop.order.v1`, else the one under its name without
    version, `shop.order`, which applies to all versions. A type without an entry is open to every worker with
    a handler. A run whose type is disabled, or belongs to another runtime, is not claimed and not failed: it
    stays as it is. A change counts from the next claim on; leased runs end where they are.
    """

    async def registry(self) -> Sequence[Registration]:
        """Every entry, by name."""

    async def register(
        self,
        name: str,
        *,
        runtime: str | None = None,
        enabled: bool | None = None,
        description: str | None = None,
        intent_type: str | None = None,
    ) -> Registration:
        """Make or change the entry of a type. A None keeps the present value; a new entry begins as `python`,
        enabled, "" and `workflow`. One commit; created_at stays, updated_at is now. Returns the entry.
        """

    async def unregister(self, name: str) -> bool:
        """Remove an entry: the type is open again. Returns whether there was one."""


class Limits(Protocol):
    """Limits on the claims of a type, of a tenant, and of a run's limit_key.

    A limit has a scope (type, tenant, key) and a name. A name that ends in % applies to each name with that
    prefix, to each on its own. Each of concurrency, rate and weight is taken from the limit of exactly that
    name if it sets it, else from the one with the longest prefix that does. All limits that concern a run
    hold. A claim keeps them in its own commit, and leaves out the runs that they hold back:

    concurrency  at most so many leased runs. A run counts while its row is leased, however the lease ends. If
                 the limit is set below the number of leased runs, nothing is claimed until fewer are leased.
    rate         at most so many claims in any span of one period, wherever it begins: a claim at t counts
                 until t + period, whatever happens to the run. When another rate comes to apply to a name,
                 its earlier claims are forgotten; when its rate stays the same, they are not.
    weight       as soon as one tenant has a weight, the claims of each kind of worker (that asks for the same
                 types, tenants and runtime) are shared between the tenants that have due runs which it may
                 take, whatever the backlog of each and whatever other workers claim: by weight, 1 for
                 tenants without one, and among equals by name. Within a tenant the order is as usual. A
                 tenant without due runs collects no credit, a full tenant at most one claim, and a new tenant
                 starts level with the others. Another weight counts from the next claim on.
    pause        runs of a key (or of each key with a prefix) are not claimed before `paused_until`.

    The cost of a claim does not grow with the runs that are held back. It grows with the number of names that
    have pending runs, where very many runs are held back before those that are found; and with the number of
    tenants that have pending runs, where there are weights. Without limits and registry entries, claims pay
    nothing extra.
    """

    async def limits(self) -> Sequence[Limit]:
        """All limits, by scope and name; also keys that are only paused, but not when their pause is over."""

    async def limit(
        self,
        scope: str,
        name: str,
        *,
        concurrency: int | None = None,
        rate: tuple[int, float] | None = None,
        weight: float | None = None,
    ) -> Limit:
        """Set the limit of that name as a whole; a pause of it stays. rate: claims, and the period in
        seconds. Nothing given: as unlimit, except for the pause. One commit.
        """

    async def unlimit(self, scope: str, name: str) -> bool:
        """Remove the limit of that name, with its pause. Returns whether there was one."""

    async def pause_key(
        self, key: str, until: Instant | None = None, *, delay_seconds: float | None = None
    ) -> Limit:
        """Claim no runs of that key before `until`, or now + delay_seconds by the store's clock. A key that
        is paused for longer already is not changed: of several callers that were told to come back later, the
        latest time counts.
        """

    async def resume_key(self, key: str) -> bool:
        """End a pause. Returns whether there was one."""

    async def held_back(self, run: UUID, tenant: Tenant, runtime: str = "python") -> tuple[Hold, ...]:
        """The reasons why a worker of that runtime cannot claim a run, apart from the run's time and a lack
        of workers; none for a run that is not pending, deleted, unknown or another tenant's. The order:
        registry, then type, tenant, key, and for each paused, concurrency, rate.
        """
