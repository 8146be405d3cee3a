"""Schedules with a codec: the params of their runs are sealed. Each run gets its own seal when it starts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import UUID

import msgspec

from holdfast.bounds import page
from holdfast.codec import MARK
from holdfast.errors import CannotOpen
from holdfast.records import Fire, Fired, Firing, Json, NewSchedule, Schedule, Tenant
from holdfast.records.sizes import schedule_bytes

from .chain import Chain
from .envelope import read, unopened
from .hooks import Where
from .records import Records

if TYPE_CHECKING:
    from holdfast.contract import Store

_replace = msgspec.structs.replace


class SealedSchedules:
    """The verbs of schedules over `inner`."""

    inner: Store
    _chain: Chain
    _records: Records

    async def schedules(
        self,
        tenant: Tenant,
        name: str | None = None,
        limit: int = 100,
        after: tuple[str, str] | None = None,
    ) -> list[Schedule]:
        found = await self.inner.schedules(tenant, name, limit, after)
        return page(map(self.opened_schedule, found), schedule_bytes, limit)

    async def schedule(self, new: NewSchedule) -> Schedule:
        sealed = self._chain.seal(new.params, params_place(new.tenant, new.name))
        kept = await self._same_params(new, sealed)
        return self.opened_schedule(await self.inner.schedule(_replace(new, params=kept or sealed)))

    async def _same_params(self, new: NewSchedule, sealed: Json) -> Json | None:
        """Return the stored form if it has the same value and keys: sealed again it would look like a
        change."""
        for there in await self.inner.schedules(new.tenant, new.name):
            same = self.opened_schedule(there).params_json == new.params
            if same and _by(there.params_json) == _by(sealed):
                return there.params_json
        return None

    async def due_schedules(self, limit: int = 100, after: UUID | None = None) -> Sequence[Schedule]:
        found = await self.inner.due_schedules(limit, after)
        return page(map(self.opened_schedule, found), schedule_bytes, limit)

    async def fire_schedule(self, firing: Firing) -> Fired:
        fires = tuple([Fire(one.at, self._records.new_run(one.run)) for one in firing.fires])
        return await self.inner.fire_schedule(_replace(firing, fires=fires))

    def opened_schedule(self, schedule: Schedule) -> Schedule:
        """Open the params. If they do not open they hold the reason, and the schedule is not fired."""
        try:
            params = self._chain.open(schedule.params_json, params_place(schedule.tenant, schedule.name))
        except CannotOpen as why:
            params = unopened(why, schedule.params_json)
        return _replace(schedule, params_json=params)


def _by(params: Json) -> tuple[str, ...]:
    """Return the hooks and keys that a value is sealed by."""
    return tuple(read(params).by) if params.startswith(MARK) else ()


def params_place(tenant: str, name: str) -> Where:
    return Where(tenant=tenant, field="params of schedule", name=name)
