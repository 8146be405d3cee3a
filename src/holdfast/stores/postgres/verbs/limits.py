"""Registry and limits, and `due`: when something may next be claimed."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import msgspec

from holdfast.machine.durations import bounded
from holdfast.records import RUNTIME, Due, Instant, Limit, Registration

from .calls import Calls, json_text

_REGISTRATION = msgspec.json.Decoder(Registration)
_LIMIT = msgspec.json.Decoder(Limit)
_DUE = msgspec.json.Decoder(Due)


class LimitVerbs(Calls):
    """The verbs of registry and limits that need more than one plain call."""

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

    async def pause_key(
        self, key: str, until: Instant | None = None, *, delay_seconds: float | None = None
    ) -> Limit:
        delay = None if delay_seconds is None else bounded(delay_seconds)
        return await self._ask(_LIMIT, "pause_key", key, until, delay)

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
        ask: dict[str, object] = {"types": types, "tenants": tenants, "runtime": runtime}
        ask |= {"wait_timeouts": wait_timeouts, "besides": besides, "sinks": sinks, "webhooks": webhooks}
        return _DUE.decode(await self._call_listener("due", json_text(ask)))
