"""Gates, and the people who decide them."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING
from uuid import UUID

import msgspec

from holdfast import bounds
from holdfast.contract import SLICE
from holdfast.errors import Conflict
from holdfast.records import ApprovalRequest, Decided, Tenant, tenant_name

from .calls import Calls


class _Ruling(msgspec.Struct):
    """The answer to a decision. conflict: why it is refused, though a gate whose time was over is settled."""

    decided: Decided
    owes: bool  # the run, something to others
    conflict: str | None = None


_REQUESTS = msgspec.json.Decoder(list[ApprovalRequest])
_RULING = msgspec.json.Decoder(_Ruling)


class GatesRoom(Calls):
    """A part of the store."""

    if TYPE_CHECKING:

        async def _carry_out(self, limit: int = SLICE) -> int: ...

    async def approvals(
        self, tenant: Tenant, limit: int = 100, after: tuple[UUID, str] | None = None
    ) -> builtins.list[ApprovalRequest]:
        run, step = (None, None) if after is None else after
        return await self._ask(
            _REQUESTS, "approvals", tenant_name(tenant), limit, run, step, bounds.BATCH_BYTES
        )

    async def decide(
        self,
        run: UUID,
        step: str | None = None,
        *,
        approved: bool,
        by: str = "",
        comment: str = "",
        digest: str | None = None,
        tenant: Tenant,
    ) -> Decided:
        ruling = await self._ask(
            _RULING, "decide", run, step, approved, by, comment, digest, tenant_name(tenant)
        )
        if ruling.owes:
            await self._carry_out()
        if ruling.conflict is not None:
            raise Conflict(ruling.conflict)
        return ruling.decided
