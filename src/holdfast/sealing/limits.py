"""The registry and the limits through a codec: names and numbers that the store has to read, in plain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from holdfast.records import RUNTIME, Hold, Instant, Limit, Registration, Tenant

if TYPE_CHECKING:
    from holdfast.contract import Store


class OpenLimits:
    """The verbs of registry and limits over `inner`."""

    inner: Store

    async def registry(self) -> Sequence[Registration]:
        return await self.inner.registry()

    async def register(
        self,
        name: str,
        *,
        runtime: str | None = None,
        enabled: bool | None = None,
        description: str | None = None,
        intent_type: str | None = None,
    ) -> Registration:
        return await self.inner.register(
            name, runtime=runtime, enabled=enabled, description=description, intent_type=intent_type
        )

    async def unregister(self, name: str) -> bool:
        return await self.inner.unregister(name)

    async def limits(self) -> Sequence[Limit]:
        return await self.inner.limits()

    async def limit(
        self,
        scope: str,
        name: str,
        *,
        concurrency: int | None = None,
        rate: tuple[int, float] | None = None,
        weight: float | None = None,
    ) -> Limit:
        return await self.inner.limit(scope, name, concurrency=concurrency, rate=rate, weight=weight)

    async def unlimit(self, scope: str, name: str) -> bool:
        return await self.inner.unlimit(scope, name)

    async def pause_key(
        self, key: str, until: Instant | None = None, *, delay_seconds: float | None = None
    ) -> Limit:
        return await self.inner.pause_key(key, until, delay_seconds=delay_seconds)

    async def resume_key(self, key: str) -> bool:
        return await self.inner.resume_key(key)

    async def held_back(self, run: UUID, tenant: Tenant, runtime: str = RUNTIME) -> tuple[Hold, ...]:
        return await self.inner.held_back(run, tenant, runtime)
