"""Registry and limits, and when something may next be claimed."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from uuid import UUID

import msgspec

from holdfast.machine.durations import bounded
from holdfast.records import RUNTIME, Due, Hold, Instant, Limit, Registration, Tenant, tenant_name

from .calls import Calls, json_text

_REGISTRATION = msgspec.json.Decoder(Registration)
_REGISTRY = msgspec.json.Decoder(list[Registration])
_LIMIT = msgspec.json.Decoder(Limit)
_LIMITS = msgspec.json.Decoder(list[Limit])
_HOLDS = msgspec.json.Decoder(tuple[Hold, ...])
_TRUTH = msgspec.json.Decoder(bool)
_DUE = msgspec.json.Decoder(Due)


class LimitsRoom(Calls):
    """A part of the store."""

    async def registry(self) -> builtins.list[Registration]:
        return await self._ask(_REGISTRY, "registry")

    async def register(
        self,
        name: str,
        *,
        runtime: str | None = None,
        enabled: bool | None = None,
        description: str | None = None,
        intent_type: str | None = None,
    ) -> Registration:
        given = {"runtime": runtime, "is_enabled": enabled}
        given |= {"description": description, "intent_type": intent_type}
        return await self._ask(_REGISTRATION, "register", name, json_text(given))

    async def unregister(self, name: str) -> bool:
        return await self._ask(_TRUTH, "unregister", name)

    async def limits(self) -> builtins.list[Limit]:
        return await self._ask(_LIMITS, "limits")

    async def limit(
        self,
        scope: str,
        name: str,
        *,
        concurrency: int | None = None,
        rate: tuple[int, float] | None = None,
        weight: float | None = None,
    ) -> Limit:
        count, seconds = rate if rate is not None else (None, None)
        given = {"concurrency": concurrency, "rate": count, "weight": weight}
        given |= {"period_seconds": None if seconds is None else bounded(seconds)}
        return await self._ask(_LIMIT, "limit", scope, name, json_text(given))

    async def unlimit(self, scope: str, name: str) -> bool:
        return await self._ask(_TRUTH, "unlimit", scope, name)

    async def pause_key(
        self, key: str, until: Instant | None = None, *, delay_seconds: float | None = None
    ) -> Limit:
        delay = None if delay_seconds is None else bounded(delay_seconds)
        return await self._ask(_LIMIT, "pause_key", key, until, delay)

    async def resume_key(self, key: str) -> bool:
        return await self._ask(_TRUTH, "resume_key", key)

    async def held_back(self, run: UUID, tenant: Tenant, runtime: str = RUNTIME) -> tuple[Hold, ...]:
        return await self._ask(_HOLDS, "held_back", run, tenant_name(tenant), runtime)

    async def due(
        self,
        types: Sequence[str],
        tenants: Sequence[str] | None = None,
        *,
        wait_timeouts: bool = True,
        runtime: str = RUNTIME,
        besides: Sequence[tuple[UUID, int]] = (),
    ) -> Due:
        ask: dict[str, object] = {"types": types, "tenants": tenants, "runtime": runtime}
        ask |= {"wait_timeouts": wait_timeouts, "besides": besides}
        return await self._ask(_DUE, "due", json_text(ask))
