"""Verbs that people use: moves of one run, and the list of open approvals."""

from __future__ import annotations

import builtins
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

from holdfast.bounds import page
from holdfast.lifecycle import OPEN, StepKind
from holdfast.machine.rows import Owes
from holdfast.records import ApprovalRequest, Instant, Run, Tenant, moment, tenant_name
from holdfast.records.sizes import request_bytes
from holdfast.stores.people import People, ViewMove

from .children import carry_out
from .reads import shown
from .view import MemoryView, open_waits

if TYPE_CHECKING:
    from .rows import State

T = TypeVar("T")


def approvals(
    state: State, tenant: str | None, limit: int, after: tuple[UUID, str] | None
) -> list[ApprovalRequest]:
    gates = sorted(
        (row.id, gate.seq, row, gate)
        for row in state.runs.values()
        if row.status in OPEN and row.deleted_at is None and tenant in {None, row.tenant}
        for gate in open_waits(row)
        if gate.kind is StepKind.APPROVAL
    )
    if after is not None:
        # A gate that was decided meanwhile has another number: then its run is listed again.
        last = next((seq for run, seq, _, gate in gates if (run, gate.key) == after), -1)
        gates = [one for one in gates if one[:2] > (after[0], last)]
    requests = (
        ApprovalRequest(
            run=run, type=row.type, tenant=row.tenant, step=gate.key, ask_json=gate.ask, digest=gate.digest,
            opened_at=moment(gate.started_at or row.created_at),
            due_at=None if gate.due_at is None else moment(gate.due_at),
        )
        for run, _, row, gate in gates
    )  # fmt: skip
    return page(requests, request_bytes, limit)


class PeopleVerbs(People):
    """The verbs of people, as a mixin of the store."""

    _clock: Callable[[], Instant]
    _lock: threading.RLock
    _state: State

    if TYPE_CHECKING:

        def _hint(self) -> None: ...

    async def _moved(self, run: UUID, move: ViewMove[T], *, promises: int = 0) -> tuple[T, Run]:
        with self._lock:
            now = self._clock()
            view = MemoryView(self._state, now)
            answer = move(view)
            view.save()
            row = self._state.present_of(self._state.runs[run])
            seen = shown(row, self._state)
            if (row.owes | row.head.owes & Owes.CHAIN) & promises:
                carry_out(self._state, now)
            self._hint()
            return answer, seen

    async def approvals(
        self, tenant: Tenant, limit: int = 100, after: tuple[UUID, str] | None = None
    ) -> builtins.list[ApprovalRequest]:
        with self._lock:
            return approvals(self._state, tenant_name(tenant), limit, after)
