"""What people do to one run, for the stores that share the machine: each verb is one move over a view."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from holdfast.errors import Conflict
from holdfast.machine import deciding, people, plans
from holdfast.machine.rows import Owes
from holdfast.machine.view import View
from holdfast.records import Decided, Run, Step, Tenant, tenant_name

T = TypeVar("T")
Move = Callable[[View[Any]], T]


class People:
    """A part of a store. What a verb has promised to others is carried out right after its own commit."""

    if TYPE_CHECKING:

        async def _moved(self, run: UUID, move: Move[T], *, promises: int = 0) -> tuple[T, Run]:
            """Make a move of this run, in one commit. Answers what the move does, and the present run of its
            chain then.

            promises: of what the run or its chain owes by then, what is carried out.
            """

    async def _changed(self, run: UUID, move: Move[Any], *, promises: int = 0) -> Run:
        return (await self._moved(run, move, promises=promises))[1]

    async def cancel(self, run: UUID, tenant: Tenant, by: str = "", *, children: bool = True) -> Run:
        whose = tenant_name(tenant)
        return await self._changed(
            run, lambda view: people.cancel(view, run, whose, by, children=children), promises=Owes.ANY
        )

    async def pause(self, run: UUID, tenant: Tenant, by: str = "") -> Run:
        return await self._changed(run, lambda view: people.pause(view, run, tenant_name(tenant), by))

    async def resume(self, run: UUID, tenant: Tenant, by: str = "") -> Run:
        return await self._changed(run, lambda view: people.resume(view, run, tenant_name(tenant), by))

    async def rewind(
        self, run: UUID, step: str | None, tenant: Tenant, by: str = "", *, children: bool = True
    ) -> Run:
        whose = tenant_name(tenant)
        return await self._changed(
            run, lambda view: people.rewind(view, run, step, whose, by, children=children), promises=Owes.ANY
        )

    async def retry_run(self, run: UUID, tenant: Tenant, by: str = "") -> Run:
        return await self._changed(
            run, lambda view: people.retry_run(view, run, tenant_name(tenant), by), promises=Owes.ANY
        )

    async def set_priority(self, run: UUID, priority: int, tenant: Tenant, by: str = "") -> Run:
        whose = tenant_name(tenant)
        return await self._changed(run, lambda view: people.set_priority(view, run, whose, by, priority))

    async def delete(self, run: UUID, tenant: Tenant, by: str = "") -> Run:
        return await self._changed(
            run, lambda view: people.delete(view, run, tenant_name(tenant), by), promises=Owes.CHAIN
        )

    async def restore(self, run: UUID, tenant: Tenant, by: str = "") -> Run:
        return await self._changed(
            run, lambda view: people.restore(view, run, tenant_name(tenant), by), promises=Owes.CHAIN
        )

    async def append_step(
        self, run: UUID, name: str, tenant: Tenant, max_attempts: int | None = None
    ) -> Step:
        def move(view: View[Any]) -> Step:
            return plans.append_step(view, people.found(view, run, tenant_name(tenant)), name, max_attempts)

        return (await self._moved(run, move))[0]

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
        ruling = deciding.Ruling(step, approved, by, comment, digest)
        answer, shown = await self._moved(
            run, lambda view: deciding.decide(view, run, tenant_name(tenant), ruling), promises=Owes.ANY
        )
        if isinstance(answer, Conflict):
            raise answer
        return Decided(step=answer.step, decision=answer.decision, repeated=answer.repeated, run=shown)
