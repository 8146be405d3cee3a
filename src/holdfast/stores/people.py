"""Verbs that people use on one run, for the stores that share the machine: each verb is one move over a
view."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from holdfast.errors import Conflict
from holdfast.machine import deciding, people, plans
from holdfast.machine.rows import Owes
from holdfast.machine.view import View
from holdfast.records import Decided, Instant, Run, Step, Tenant, tenant_name

T = TypeVar("T")
ViewMove = Callable[[View[Any]], T]


class People:
    """The verbs, as a mixin of a store. Work that a verb leaves to do is carried out right after its
    commit."""

    if TYPE_CHECKING:

        async def _moved(self, run: UUID, move: ViewMove[T], *, promises: int = 0) -> tuple[T, Run]:
            """Make a move of this run, in one commit. Return the answer of the move, and then the present run
            of the chain.

            promises: the bits of `owes`, of the run or its chain, that are carried out after the commit.
            """

    async def _changed(self, run: UUID, move: ViewMove[Any], *, promises: int = 0) -> Run:
        return (await self._moved(run, move, promises=promises))[1]

    async def cancel(
        self,
        run: UUID,
        tenant: Tenant,
        by: str = "",
        *,
        children: bool = True,
        unchanged_since: Instant | None = None,
    ) -> Run:
        def move(view: View[Any]) -> Any:
            return people.cancel(view, run, tenant_name(tenant), by, children=children, since=unchanged_since)

        return await self._changed(run, move, promises=Owes.ANY)

    async def pause(
        self, run: UUID, tenant: Tenant, by: str = "", *, unchanged_since: Instant | None = None
    ) -> Run:
        name = tenant_name(tenant)
        return await self._changed(run, lambda view: people.pause(view, run, name, by, unchanged_since))

    async def resume(
        self,
        run: UUID,
        tenant: Tenant,
        by: str = "",
        *,
        budget: int | None = None,
        unchanged_since: Instant | None = None,
    ) -> Run:
        def move(view: View[Any]) -> Any:
            return people.resume(view, run, tenant_name(tenant), by, budget, unchanged_since)

        return await self._changed(run, move, promises=Owes.RESUME)

    async def rewind(
        self,
        run: UUID,
        step: str | None,
        tenant: Tenant,
        by: str = "",
        *,
        children: bool = True,
        unchanged_since: Instant | None = None,
    ) -> Run:
        def move(view: View[Any]) -> Any:
            name, since = tenant_name(tenant), unchanged_since
            return people.rewind(view, run, step, name, by, children=children, since=since)

        return await self._changed(run, move, promises=Owes.ANY)

    async def retry_run(
        self, run: UUID, tenant: Tenant, by: str = "", *, unchanged_since: Instant | None = None
    ) -> Run:
        def move(view: View[Any]) -> Any:
            return people.retry_run(view, run, tenant_name(tenant), by, unchanged_since)

        return await self._changed(run, move, promises=Owes.ANY)

    async def set_priority(self, run: UUID, priority: int, tenant: Tenant, by: str = "") -> Run:
        name = tenant_name(tenant)
        return await self._changed(run, lambda view: people.set_priority(view, run, name, by, priority))

    async def delete(
        self, run: UUID, tenant: Tenant, by: str = "", *, unchanged_since: Instant | None = None
    ) -> Run:
        def move(view: View[Any]) -> Any:
            return people.delete(view, run, tenant_name(tenant), by, unchanged_since)

        return await self._changed(run, move, promises=Owes.CHAIN)

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
