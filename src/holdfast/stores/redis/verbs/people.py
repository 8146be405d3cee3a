"""Verbs that people use: moves of one run, and the list of open approvals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar
from uuid import UUID

from holdfast.bounds import page
from holdfast.errors import UnknownRun
from holdfast.lifecycle import OPEN, StepKind, StepStatus
from holdfast.machine.rows import Owes
from holdfast.records import ApprovalRequest, Run, Tenant, moment, tenant_name
from holdfast.records.sizes import request_bytes
from holdfast.stores.people import People, ViewMove
from holdfast.stores.redis import rows
from holdfast.stores.redis.indexes import BIG
from holdfast.stores.redis.snapshot import Snapshot
from holdfast.stores.redis.view import RedisView

from .keeper import KeeperVerbs
from .shown import Showing

T = TypeVar("T")

PAGE = 200  # gates that are read at once


class PeopleVerbs(People, KeeperVerbs, Showing):
    """The verbs of people, as a mixin of the store."""

    async def _moved(self, run: UUID, move: ViewMove[T], *, promises: int = 0) -> tuple[T, Run]:
        def moved(snapshot: Snapshot) -> tuple[T, UUID, list[UUID]]:
            view = RedisView(snapshot)
            answer = move(view)
            row = view.run(run)
            assert row is not None
            first = view.run(row.chain_id)
            assert first is not None
            present = first if first.present is None else view.run(first.present)
            assert present is not None
            view.save()
            is_promised = (present.owes | first.owes & Owes.CHAIN) & promises
            owing = [one.id for one in view.owing((present.id, first.id))] if is_promised else []
            return answer, present.id, owing

        answer, present, owing = await self._change(moved)
        (row,) = await self._rows([present])
        if row is None:
            raise UnknownRun(run)
        (seen,) = await self._shown([row])
        if owing:
            await self._carry_out_of(owing)
        return answer, seen

    async def approvals(
        self, tenant: Tenant, limit: int = 100, after: tuple[UUID, str] | None = None
    ) -> list[ApprovalRequest]:
        name = tenant_name(tenant)
        key = self._names("approvals") if name is None else self._names.of("approvals", name)
        low = "-" if after is None else await self._after_gate(*after)
        found: list[ApprovalRequest] = []
        while len(found) < limit:
            (members,) = await self._connections.ask([("ZRANGEBYLEX", key, low, "+", "LIMIT", 0, PAGE)])
            if not members:
                break
            found += await self._requests(members)
            low = f"({members[-1]}"
        return page(found, request_bytes, limit)

    async def _after_gate(self, run: UUID, key: str) -> str:
        # A gate that was decided meanwhile has another number: then its run is listed again.
        (text,) = await self._connections.ask([("HGET", self._names.steps(run), key)])
        gate = None if text is None else rows.step_row(text)
        is_open = gate is not None and gate.status is StepStatus.WAITING and gate.kind is StepKind.APPROVAL
        return f"({run}:{gate.seq:0{BIG}d};" if gate is not None and is_open else f"({run}:"

    async def _requests(self, members: Sequence[str]) -> list[ApprovalRequest]:
        gates = [(UUID(member[:36]), member[36 + 2 + BIG :]) for member in members]
        runs = await self._rows([run for run, _ in gates], small=True)
        texts = await self._connections.ask([("HGET", self._names.steps(run), key) for run, key in gates])
        found = []
        for row, text in zip(runs, texts, strict=True):
            if row is None or text is None or row.status not in OPEN or row.deleted_at is not None:
                continue
            gate = rows.step_row(text)
            if gate.status is StepStatus.WAITING:
                found.append(
                    ApprovalRequest(
                        run=row.id, type=row.type, tenant=row.tenant, step=gate.key, ask_json=gate.ask,
                        digest=gate.digest, opened_at=moment(gate.started_at or row.created_at),
                        due_at=None if gate.due_at is None else moment(gate.due_at),
                    )
                )  # fmt: skip
        return found
