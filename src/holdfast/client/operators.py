"""The verbs on the whole store: limits, the registry, definitions, workers, statistics, the check-up.

All but `definitions` and `now` need a key of an operator.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from holdfast.arguments import Seconds, check_datetime, check_duration
from holdfast.engine.app.limits import checked_limit, named_limit, registered
from holdfast.engine.definitions import Defined
from holdfast.engine.explain.doctor import Report
from holdfast.records import Definition, Finding, Limit, Presence, Registration, Scope, Stats
from holdfast.shown.shapes import DefinitionData, PresenceData, StatsData

from .base import Base, flag, set_fields
from .outbox import Removed
from .records import definition_of, presence_of, stats_of


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """The API key of this client: its id, name, tenant and scopes; and the time of the store's clock."""

    key: str
    name: str
    tenant: str
    scopes: tuple[str, ...]
    now: datetime

    @property
    def is_operator(self) -> bool:
        """Whether the key may act in all tenants."""
        return Scope.OPERATOR in self.scopes


class Definitions(msgspec.Struct, frozen=True):
    """All published workflows."""

    items: tuple[DefinitionData, ...]


class Registry(msgspec.Struct, frozen=True):
    """All entries of the registry."""

    items: list[Registration]


class Limits(msgspec.Struct, frozen=True):
    """All limits."""

    items: list[Limit]


class Workers(msgspec.Struct, frozen=True):
    """All live workers."""

    items: tuple[PresenceData, ...]


class WasPaused(msgspec.Struct, frozen=True):
    """Whether a key was paused."""

    was_paused: bool


class ReportData(msgspec.Struct, frozen=True):
    """The findings of a check-up."""

    at: datetime
    findings: tuple[Finding, ...]


class OperatorVerbs(Base):
    """The verbs on the whole store; a part of `Client`."""

    async def whoami(self) -> Caller:
        """Return the name, the tenant and the scopes of the API key."""
        return await self._ask("whoami", Caller)

    async def now(self) -> datetime:
        """Return the time of the store's clock, which counts for all times of runs."""
        return (await self.whoami()).now

    async def limit(
        self,
        *,
        type: Defined | str | None = None,
        tenant: str | None = None,
        key: str | None = None,
        concurrency: int | None = None,
        rate: tuple[int, Seconds] | None = None,
        weight: float | None = None,
    ) -> Limit:
        """Limit a type, a tenant or the runs under a limit_key, as `App.limit` does."""
        scope, name = named_limit(type, tenant, key)
        places, claims, share = checked_limit(scope, name, concurrency, rate, weight)
        count, period = (None, None) if claims is None else claims
        body = set_fields(concurrency=places, rate=count, period=period, weight=share)
        return await self._ask("limit", Limit, path={"scope": scope, "name": name}, body=body)

    async def unlimit(
        self, *, type: Defined | str | None = None, tenant: str | None = None, key: str | None = None
    ) -> bool:
        """Remove the limit of that name, and its pause. Return True when there was one.

        False may also mean that a first try has removed it, whose answer was lost.
        """
        scope, name = named_limit(type, tenant, key)
        return (await self._ask("unlimit", Removed, path={"scope": scope, "name": name})).removed

    async def limits(self) -> Sequence[Limit]:
        """Return all limits and all paused keys."""
        return (await self._ask("limits", Limits)).items

    async def pause_key(self, key: str, until: datetime | Seconds) -> Limit:
        """Claim no runs under this limit_key until an instant or for a duration, as `App.pause_key` does."""
        _, name = named_limit(None, None, key)
        if isinstance(until, datetime):
            check_datetime("until", until)
            body: dict[str, object] = {"until": until}
        else:
            body = {"seconds": check_duration("a pause", until, ", or a datetime")}
        return await self._ask("pause_key", Limit, path={"key": name}, body=body)

    async def resume_key(self, key: str) -> bool:
        """End the pause of this key. Return True when there was one.

        False may also mean that a first try has ended it, whose answer was lost.
        """
        _, name = named_limit(None, None, key)
        return (await self._ask("resume_key", WasPaused, path={"key": name})).was_paused

    async def register(
        self,
        type: Defined | str,
        *,
        runtime: str | None = None,
        enabled: bool | None = None,
        description: str | None = None,
        intent_type: str | None = None,
    ) -> Registration:
        """Set the runtime of a type, and whether it is enabled; what is left out stays as it is."""
        body = set_fields(runtime=runtime, enabled=enabled, description=description, intent_type=intent_type)
        return await self._ask("register", Registration, path={"type": registered(type)}, body=body)

    async def unregister(self, type: Defined | str) -> bool:
        """Remove an entry: any worker with a handler may take the type again. Return True when there was
        one.

        False may also mean that a first try has removed it, whose answer was lost.
        """
        return (await self._ask("unregister", Removed, path={"type": registered(type)})).removed

    async def registry(self) -> Sequence[Registration]:
        """Return all entries, by name."""
        return (await self._ask("registry", Registry)).items

    async def definitions(self, *, schemas: bool = True) -> Sequence[Definition]:
        """Return the published workflows by type, with the JSON Schemas of their params and results unless
        told otherwise.
        """
        found = await self._ask("definitions", Definitions, query=[("schemas", flag(schemas))])
        return [definition_of(one) for one in found.items]

    async def stats(self) -> Stats:
        """Return an overview of the store: runs by status, live workers, runs that no worker can take."""
        return stats_of(await self._ask("stats", StatsData), tuple(await self.workers()))

    async def workers(self) -> Sequence[Presence]:
        """Return the live workers: what they run, and how much."""
        return [presence_of(one) for one in (await self._ask("workers", Workers)).items]

    async def doctor(self) -> Report:
        """Check the store and its runs. The report has a `level`, and findings that say how to mend them."""
        found = await self._ask("doctor", ReportData)
        return Report(found.at, found.findings)
