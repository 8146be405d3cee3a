"""What people do to a run: the verbs of one run each, behind the store's lock."""

from __future__ import annotations

import builtins
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING
from uuid import UUID

from holdfast.errors import Conflict
from holdfast.machine import people, plans
from holdfast.machine.deciding import Ruling
from holdfast.records import ApprovalRequest, Decided, Instant, Run, Step, Tenant, tenant_name

from . import gates
from .children import carry_out
from .reads import shown
from .view import MemoryView

if TYPE_CHECKING:
    from .rows import RunRow, State


class People:
    """A part of the store. What a verb has promised to others is carried out right after it."""

    _clock: Callable[[], Instant]
    _lock: threading.RLock
    _state: State

    if TYPE_CHECKING:

        def _hint(self) -> None: ...

    def _changed(self, move: Callable[[MemoryView], RunRow], *, promises: bool = False) -> Run:
        with self._lock:
            now = self._clock()
            view = MemoryView(self._state, now)
            row = move(view)
            view.save()
            if promises and row.owes:
                carry_out(self._state, now)
            self._hint()
            return shown(row)

    async def cancel(self, run: UUID, tenant: Tenant, by: str = "", *, children: bool = True) -> Run:
        return self._changed(
            lambda view: people.cancel(view, run, tenant_name(tenant), by, children=children), promises=True
        )

    async def pause(self, run: UUID, tenant: Tenant, by: str = "") -> Run:
        return self._changed(lambda view: people.pause(view, run, tenant_name(tenant), by))

    async def resume(self, run: UUID, tenant: Tenant, by: str = "") -> Run:
        return self._changed(lambda view: people.resume(view, run, tenant_name(tenant), by))

    async def rewind(
        self, run: UUID, step: str, tenant: Tenant, by: str = "", *, children: bool = True
    ) -> Run:
        return self._changed(
            lambda view: people.rewind(view, run, step, tenant_name(tenant), by, children=children),
            promises=True,
        )

    async def retry_run(self, run: UUID, tenant: Tenant, by: str = "") -> Run:
        return self._changed(lambda view: people.retry_run(view, run, tenant_name(tenant), by), promises=True)

    async def delete(self, run: UUID, tenant: Tenant, by: str = "") -> Run:
        return self._changed(lambda view: people.delete(view, run, tenant_name(tenant), by))

    async def restore(self, run: UUID, tenant: Tenant, by: str = "") -> Run:
        return self._changed(lambda view: people.restore(view, run, tenant_name(tenant), by))

    async def append_step(
        self, run: UUID, name: str, tenant: Tenant, max_attempts: int | None = None
    ) -> Step:
        with self._lock:
            view = MemoryView(self._state, self._clock())
            step = plans.append_step(view, people.found(view, run, tenant_name(tenant)), name, max_attempts)
            view.save()
            return step

    async def approvals(
        self, tenant: Tenant, limit: int = 100, after: tuple[UUID, str] | None = None
    ) -> builtins.list[ApprovalRequest]:
        with self._lock:
            return gates.approvals(self._state, tenant_name(tenant), limit, after)

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
        with self._lock:
            now = self._clock()
            answer = gates.decide(
                self._state, run, tenant_name(tenant), Ruling(step, approved, by, comment, digest), now
            )  # fmt: skip
            if self._state.runs[run].owes:
                carry_out(self._state, now)
            self._hint()
            if isinstance(answer, Conflict):
                raise answer
            return answer
