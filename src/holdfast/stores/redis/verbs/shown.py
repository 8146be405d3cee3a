"""Runs as callers see them, read in two round trips for any number."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from holdfast.lifecycle import Status
from holdfast.machine.claiming import unrecorded
from holdfast.machine.rows import StepRow
from holdfast.machine.rows import shown as shown_step
from holdfast.records import Instant, Run, RunningStep, RunOutline, moment
from holdfast.stores.redis import rows
from holdfast.stores.redis.core import Core
from holdfast.stores.redis.held import first_due
from holdfast.stores.redis.rows import RunRow
from holdfast.stores.redis.snapshot import Command

_RUNNING = msgspec.json.Decoder(tuple[int, tuple[RunningStep, ...]])


class Showing(Core):
    """Reads of whole runs."""

    async def _rows(self, ids: Sequence[UUID], *, small: bool = False) -> list[RunRow | None]:
        """Return the stored runs of these ids."""
        fields = rows.SMALL_FIELDS if small else rows.FIELDS
        found = (
            await self._connections.ask([("HMGET", self._names.run(id), *fields) for id in ids])
            if ids
            else []
        )
        return [rows.decoded(id, values, small=small) for id, values in zip(ids, found, strict=True)]

    async def _shown(self, found: Sequence[RunRow], *, running: bool = False) -> list[Run]:
        """Return runs as callers see them. running: with the steps that their holders execute now."""
        names, wanted = self._names, list[Command]()
        keys = [rows.open_keys(row) for row in found]
        executed = [_executed(row) if running else () for row in found]
        for row, open_, steps in zip(found, keys, executed, strict=True):
            named = dict.fromkeys([*open_, *(one.step for one in steps)])
            wanted.append(("HMGET", names.steps(row.id), "", *named))
            wanted.append(("HGET", names.run(row.chain_id), "present"))
            wanted.append(("HMGET", names("account", str(row.account)), "budget", "spent"))
        answers = iter(await self._connections.ask(wanted) if wanted else ())
        shown = []
        for row, open_, steps in zip(found, keys, executed, strict=True):
            named = dict.fromkeys([*open_, *(one.step for one in steps)])
            texts, present, account = next(answers), next(answers), next(answers)
            known = {key: rows.step_row(text) for key, text in zip(named, texts[1:], strict=True) if text}
            waits = first_due(known[key] for key in open_ if key in known)
            run = _run(row, waits, None if present is None else UUID(present), account)
            if steps:
                recorded = {key: (step.status, step.attempts) for key, step in known.items()}
                run = msgspec.structs.replace(run, running=unrecorded(steps, recorded))
            shown.append(run)
        return shown

    async def _outlined(self, found: Sequence[RunRow]) -> list[RunOutline]:
        """Return a few fields of runs."""
        asked = [("HGET", self._names.run(row.chain_id), "present") for row in found]
        presents = await self._connections.ask(asked) if asked else []
        return [
            RunOutline(
                id=row.id, type=row.type, status=row.status,
                present=row.chain_id if present is None else UUID(present),
                pause_asked=row.pause_asked_by is not None, created_at=moment(row.created_at),
                started_at=_moment(row.started_at), finished_at=_moment(row.finished_at),
            )
            for row, present in zip(found, presents, strict=True)
        ]  # fmt: skip


def _executed(row: RunRow) -> tuple[RunningStep, ...]:
    if row.running is None or row.status is not Status.LEASED:
        return ()
    fence, steps = _RUNNING.decode(row.running)
    return steps if fence == row.fence else ()


def _run(row: RunRow, waits: Sequence[StepRow], present: UUID | None, account: Sequence[str | None]) -> Run:
    budget, spent = account
    return Run(
        id=row.id, tenant=row.tenant, type=row.type, kind=row.kind, status=row.status, params_json=row.params,
        result_json=row.result, error_json=row.error, last_error=row.last_error, priority=row.priority,
        run_at=moment(row.run_at), key=row.key, attempt=row.attempt,
        max_attempts=row.tried_of or row.max_attempts, crashes=row.crashes, fence=row.fence,
        leased_by=row.leased_by, lease_until=_moment(row.lease_until),
        waiting_on=tuple(map(shown_step, waits)), pause_asked_by=row.pause_asked_by,
        cursor=row.cursor, current_step_seq=row.current_seq if row.current is not None else None,
        current_step_name=row.current, chain=row.chain_id, present=present or row.chain_id,
        parent=row.parent, parent_step=row.parent_step, limit_key=row.limit_key,
        labels_json=row.labels, cost_units=row.cost, budget_units=row.budget, progress_json=row.progress,
        timeout_at=_moment(row.timeout_at), timeout_seconds=row.timeout_seconds,
        ttl_seconds=row.ttl_seconds, expires_at=_moment(row.expires_at),
        created_at=moment(row.created_at), updated_at=moment(row.updated_at),
        started_at=_moment(row.started_at), finished_at=_moment(row.finished_at),
        deleted_at=_moment(row.deleted_at), origin=row.origin, account=row.account,
        account_cost_units=None if spent is None else int(spent),
        account_budget_units=None if budget is None else int(budget),
    )  # fmt: skip


def _moment(at: Instant | None) -> datetime | None:
    return None if at is None else moment(at)
