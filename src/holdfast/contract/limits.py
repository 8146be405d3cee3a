"""What may be claimed: the registry of types, and limits on how much at once, how often and for whom."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from holdfast.records import Hold, Instant, Limit, Registration, Tenant


class Registry(Protocol):
    """Which runtime executes a type, and whether it is executed at all.

    The entry of a type is the one under its own name, `shop.order.v1`, else the one under its bare name,
    `shop.order`, which speaks for all versions. A type without one is open to whoever has a handler. A run
    whose type is disabled, or another runtime's, is not claimed and not failed: it stays as it is. A change
    counts from the next claim on; what is leased ends where it is.
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
        """Make or change the entry of a type; what is None stays as it is, or begins as `python`, enabled, ""
        and `workflow`. One commit; created_at stays, updated_at is now. Answers the entry."""

    async def unregister(self, name: str) -> bool:
        """Remove an entry: the type is open again. Whether there was one."""


class Limits(Protocol):
    """How much may be claimed of a type, for a tenant, under a run's limit_key.

    A limit has a scope (type, tenant, key) and a name; a name that ends in % speaks for each name with that
    prefix, for each on its own. Each of concurrency, rate and weight is taken from the limit of exactly that
    name if it sets it, else from the one with the longest prefix that does. All that concern a run hold.
    A claim keeps them in its own commit, and passes over what is held back:

    concurrency  at most so many leased runs, counted by the runs' own rows: a place is free with the fence,
                 however its holder has lost it. Lowered below what is leased: nothing until it is less.
    rate         at most so many claims in any span of one period, wherever it begins: a claim at t counts
                 until t + period, whatever becomes of the run. A name to which another rate comes to apply
                 forgets what was claimed so far; one whose rate stays what it was does not.
    weight       as soon as one tenant has a weight, the claims of each kind of worker (that asks for the same
                 types, tenants and runtime) are shared out between the tenants that have due runs which it
                 may take, whatever the backlog of each and whatever other workers claim: by weight, 1 for
                 those without one, and among equals by name. Within a tenant the order is as ever. A tenant
                 that had no due runs has saved up nothing, one that was full one claim at most, and who comes
                 anew is neither ahead nor behind. Another weight counts from the next claim on.
    pause        runs of a key (or of each key with a prefix) are not claimed before `paused_until`.

    The cost of a claim does not grow with the runs that are held back. It grows with how many names have
    pending runs where very many runs are held back before those that are found, and with how many tenants do
    where there are weights. Where no limit and no registry entry is set, claims cost what they did.
    """

    async def limits(self) -> Sequence[Limit]:
        """All of them, by scope and name; keys that are only paused too, but not when their pause is over."""

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
        seconds. Nothing given: as unlimit, but for the pause. One commit."""

    async def unlimit(self, scope: str, name: str) -> bool:
        """Remove the limit of that name, with its pause. Whether there was one."""

    async def pause_key(
        self, key: str, until: Instant | None = None, *, delay_seconds: float | None = None
    ) -> Limit:
        """Claim no runs of that key before `until`, or now + delay_seconds by the store's clock. Paused for
        longer already: unchanged, so that of several who were told to come back later the last one counts."""

    async def resume_key(self, key: str) -> bool:
        """End a pause. Whether there was one."""

    async def held_back(self, run: UUID, tenant: Tenant, runtime: str = "python") -> tuple[Hold, ...]:
        """What keeps a run from being claimed by a worker of that runtime, beside its time and the lack of a
        worker; of one that is not pending, deleted, unknown or another tenant's: nothing. The order:
        registry, then type, tenant, key, and of each paused, concurrency, rate."""
