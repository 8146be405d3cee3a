"""What people do to a run, behind the store's lock; and the gates that wait for them."""

from __future__ import annotations

import builtins
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

from holdfast.machine.rows import Owes
from holdfast.records import ApprovalRequest, Instant, Run, Tenant, tenant_name
from holdfast.stores.people import Move, People

from . import gates
from .children import carry_out
from .reads import shown
from .view import MemoryView

if TYPE_CHECKING:
    from .rows import State

T = TypeVar("T")


class PeopleRoom(People):
    """A part of the store."""

    _clock: Callable[[], Instant]
    _lock: threading.RLock
    _state: State

    if TYPE_CHECKING:

        def _hint(self) -> None: ...

    async def _moved(self, run: UUID, move: Move[T], *, promises: int = 0) -> tuple[T, Run]:
        with self._lock:
            now = self._clock()
            view = MemoryView(self._state, now)
            answer = move(view)
            view.save()
            row = self._state.present_of(self._state.runs[run])
            seen = shown(row)
            if (row.owes | row.head.owes & Owes.CHAIN) & promises:
                carry_out(self._state, now)
            self._hint()
            return answer, seen

    async def approvals(
        self, tenant: Tenant, limit: int = 100, after: tuple[UUID, str] | None = None
    ) -> builtins.list[ApprovalRequest]:
        with self._lock:
            return gates.approvals(self._state, tenant_name(tenant), limit, after)
