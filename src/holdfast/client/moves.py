"""The verbs of people on one run: cancel, pause, resume, rewind, retry, priority, delete, decide."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec

from holdfast.arguments import check_attempts, check_budget, check_id, check_limit, check_priority, check_text
from holdfast.records import BEGINNING, OWN, ApprovalRequest, Beginning, Decided, OwnTenant, Run, Step, Tenant
from holdfast.shown.records import step_of
from holdfast.shown.shapes import ApprovalData, DecidedData, RunValuesData, StepData
from holdfast.step_keys import check_key, check_step_name

from .base import PAGE_MAX, Base, no_by, set_fields
from .records import approval_of, decided_of, run_of
from .starts import cost


class DecidedRunData(DecidedData, frozen=True, kw_only=True, omit_defaults=True):
    """A decision, and the run after it."""

    decided_run: RunValuesData


class Approvals(msgspec.Struct, frozen=True):
    """One page of open gates."""

    items: tuple[ApprovalData, ...]


class MoveVerbs(Base):
    """The verbs of people on runs; a part of `Client`."""

    async def cancel(self, run: UUID | str, by: str = "", *, children: bool = True) -> Run:
        """Cancel an open run and its open children, unless `children` says otherwise. A second call changes
        nothing.
        """
        return await self._move("cancel", run, by, {"children": bool(children)})

    async def pause(self, run: UUID | str, by: str = "") -> Run:
        """Pause an open run; a running one pauses at its next step boundary."""
        return await self._move("pause", run, by)

    async def resume(self, run: UUID | str, by: str = "", *, budget: float | None = None) -> Run:
        """Resume a paused run, or withdraw a pause that has not taken effect yet; with `budget` as
        `App.resume`.
        """
        units = None if budget is None else cost(check_budget("budget", budget))
        return await self._move("resume", run, by, set_fields(budget=units))

    async def rewind(
        self, run: UUID | str, step: str | Beginning, by: str = "", *, children: bool = True
    ) -> Run:
        """Forget a step and all later ones; the run continues from there. BEGINNING: from its start."""
        to = None if step is BEGINNING else check_key(step)
        return await self._move("rewind", run, by, {"step": to, "children": bool(children)})

    async def retry(self, run: UUID | str, by: str = "") -> Run:
        """Continue a failed run at the step that failed, with all attempts again."""
        return await self._move("retry", run, by)

    async def set_priority(self, run: UUID | str, priority: int, by: str = "") -> Run:
        """Change the priority of an open run, 0 to 999, lower first. It counts from the next claim."""
        return await self._move("set_priority", run, by, {"priority": check_priority(priority)})

    async def append_step(self, run: UUID | str, name: str, max_attempts: int | None = None) -> Step:
        """Add a task after the last step of an open plan run: `@plan.task(name)` is its handler."""
        name = check_step_name(name)
        what = f"append_step {name!r}: max_attempts"
        attempts = None if max_attempts is None else check_attempts(what, max_attempts)
        body = set_fields(name=name, max_attempts=attempts)
        path = {"run": check_id(run)}
        return step_of(await self._ask("append_step", StepData, path=path, query=self._of_run(), body=body))

    async def delete(self, run: UUID | str, by: str = "") -> Run:
        """Hide a run, with its chain, and stop executing it. `restore` undoes this until the run is
        purged.
        """
        return await self._move("delete", run, by)

    async def restore(self, run: UUID | str, by: str = "") -> Run:
        """Undo `delete`; an open run continues."""
        return await self._move("restore", run, by)

    async def _move(
        self, operation: str, run: UUID | str, by: str, body: dict[str, Any] | None = None
    ) -> Run:
        no_by(by)
        path = {"run": check_id(run)}
        return run_of(await self._ask(operation, RunValuesData, path=path, query=self._of_run(), body=body))

    async def approve(
        self,
        run: UUID | str,
        step: str | None = None,
        *,
        by: str = "",
        comment: str = "",
        digest: str | None = None,
    ) -> Decided:
        """Approve an open gate of a run, as `App.approve` does. The decision is by the API key."""
        return await self._decide("approve", run, step, by, comment, digest)

    async def reject(
        self,
        run: UUID | str,
        step: str | None = None,
        *,
        by: str = "",
        comment: str = "",
        digest: str | None = None,
    ) -> Decided:
        """Reject an open gate of a run: a plan fails, code reads the decision. Arguments as in `approve`."""
        return await self._decide("reject", run, step, by, comment, digest)

    async def _decide(
        self, operation: str, run: UUID | str, step: str | None, by: str, comment: str, digest: str | None
    ) -> Decided:
        no_by(by)
        body = set_fields(
            step=None if step is None else check_key(step),
            comment=check_text("comment", comment),
            digest=None if digest is None else check_text("digest", digest),
        )
        path = {"run": check_id(run)}
        found = await self._ask(operation, DecidedRunData, path=path, query=self._of_run(), body=body)
        return decided_of(found, found.decided_run)

    async def approvals(
        self,
        tenant: Tenant | OwnTenant = OWN,
        limit: int = 100,
        after: ApprovalRequest | tuple[UUID, str] | None = None,
    ) -> Sequence[ApprovalRequest]:
        """Return open gates, oldest run first; `after` is the last gate of the page before. ANY: all tenants.

        A page may hold fewer than `limit` gates, at most 500: only an empty page is the end.
        """
        query = self._whose(tenant)
        if not (rows := check_limit(limit)):
            return []
        query.append(("limit", str(min(rows, PAGE_MAX))))
        last = (after.run, after.step) if isinstance(after, ApprovalRequest) else after
        if last is not None:
            query += [("after_run", str(check_id(last[0]))), ("after_step", check_key(last[1]))]
        return [approval_of(one) for one in (await self._ask("approvals", Approvals, query=query)).items]
