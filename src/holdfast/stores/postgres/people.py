"""What people do to one run."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import msgspec

from holdfast.contract import SLICE
from holdfast.records import Run, Step, Tenant, tenant_name

from .calls import Calls

_RUN = msgspec.json.Decoder(Run)
_STEP = msgspec.json.Decoder(Step)


class _Owing(msgspec.Struct):
    """Whether a run owes others something: children that are to be cancelled, news for its parent."""

    owes: bool


_OWING = msgspec.json.Decoder(_Owing)


class PeopleRoom(Calls):
    """A part of the store. What a verb has promised to others is carried out right after its own commit."""

    if TYPE_CHECKING:

        async def _carry_out(self, limit: int = SLICE) -> int: ...

    async def _change(self, verb: str, *args: object) -> Run:
        """Call a verb, and carry out what its run owes by now, if anything."""
        answer = await self._call(verb, *args)
        if _OWING.decode(answer).owes:
            await self._carry_out()
        return _RUN.decode(answer)

    async def cancel(self, run: UUID, tenant: Tenant, by: str = "", *, children: bool = True) -> Run:
        return await self._change("cancel", run, tenant_name(tenant), by, children)

    async def pause(self, run: UUID, tenant: Tenant, by: str = "") -> Run:
        return await self._ask(_RUN, "pause", run, tenant_name(tenant), by)

    async def resume(self, run: UUID, tenant: Tenant, by: str = "") -> Run:
        return await self._ask(_RUN, "resume", run, tenant_name(tenant), by)

    async def rewind(
        self, run: UUID, step: str, tenant: Tenant, by: str = "", *, children: bool = True
    ) -> Run:
        return await self._change("rewind", run, step, tenant_name(tenant), by, children)

    async def retry_run(self, run: UUID, tenant: Tenant, by: str = "") -> Run:
        return await self._change("retry_run", run, tenant_name(tenant), by)

    async def append_step(
        self, run: UUID, name: str, tenant: Tenant, max_attempts: int | None = None
    ) -> Step:
        return await self._ask(_STEP, "append_step", run, name, max_attempts, tenant_name(tenant))

    async def delete(self, run: UUID, tenant: Tenant, by: str = "") -> Run:
        return await self._ask(_RUN, "delete", run, tenant_name(tenant), by)

    async def restore(self, run: UUID, tenant: Tenant, by: str = "") -> Run:
        return await self._ask(_RUN, "restore", run, tenant_name(tenant), by)
