"""Schedules, and the verb that turns their times into runs."""

from __future__ import annotations

from uuid import UUID

from msgspec.json import Decoder
from msgspec.structs import replace

from holdfast import bounds
from holdfast.machine.durations import bounded
from holdfast.records import NewSchedule, Schedule, Tenant, tenant_name

from .calls import Calls, json_text

_SCHEDULE = Decoder(Schedule)
_SCHEDULES = Decoder(list[Schedule])


class ScheduleVerbs(Calls):
    """The verbs of schedules."""

    async def schedules(
        self,
        tenant: Tenant,
        name: str | None = None,
        limit: int = 100,
        after: tuple[str, str] | None = None,
    ) -> list[Schedule]:
        return await self._ask(
            _SCHEDULES,
            "schedules",
            tenant_name(tenant),
            name,
            limit,
            *(after or (None, None)),
            bounds.BATCH_BYTES,
        )

    async def schedule(self, new: NewSchedule) -> Schedule:
        finite = replace(
            new, timeout_seconds=_bounded(new.timeout_seconds), ttl_seconds=_bounded(new.ttl_seconds)
        )
        return await self._ask(_SCHEDULE, "schedule", json_text(finite))

    async def due_schedules(self, limit: int = 100, after: UUID | None = None) -> list[Schedule]:
        return await self._ask(_SCHEDULES, "due_schedules", limit, after, bounds.BATCH_BYTES)


def _bounded(seconds: float | None) -> float | None:
    return None if seconds is None else bounded(seconds)
