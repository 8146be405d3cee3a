"""The verbs of approvals: list open gates, approve, reject."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from holdfast.arguments import check_by, check_id, check_limit, check_text
from holdfast.records import OWN, ApprovalRequest, Decided, OwnTenant, Tenant
from holdfast.step_keys import check_key

from .tenant_scope import tenant_of

if TYPE_CHECKING:
    from holdfast.contract import Store


class ApprovalVerbs:
    """The verbs for people who decide; a part of `StoreClient`."""

    store: Store
    tenant: Tenant

    if TYPE_CHECKING:

        async def _opened(self) -> None: ...

    async def approve(
        self,
        run: UUID | str,
        step: str | None = None,
        *,
        by: str = "",
        comment: str = "",
        digest: str | None = None,
    ) -> Decided:
        """Approve an open gate of a run. A second call answers as the first, with repeated=True.

        `step` names the gate; it may be left out while the run has had only one gate. `digest` is the digest
        of what the person saw. Conflict: the gate shows something else, was rejected, or is not open.
        """
        return await self._decide(run, step, by, comment, digest, approved=True)

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
        return await self._decide(run, step, by, comment, digest, approved=False)

    async def _decide(
        self, run: UUID | str, step: str | None, by: str, comment: str, digest: str | None, *, approved: bool
    ) -> Decided:
        id_, by, comment = check_id(run), check_by(by), check_text("comment", comment)
        step = None if step is None else check_key(step)
        digest = None if digest is None else check_text("digest", digest)
        await self._opened()
        return await self.store.decide(
            id_, step, approved=approved, by=by, comment=comment, digest=digest, tenant=self.tenant
        )

    async def approvals(
        self,
        tenant: Tenant | OwnTenant = OWN,
        limit: int = 100,
        after: ApprovalRequest | tuple[UUID, str] | None = None,
    ) -> Sequence[ApprovalRequest]:
        """Return open gates, oldest run first; `after` is the last gate of the page before. ANY: all tenants.

        A page may hold fewer than `limit` gates when their data is large: only an empty page is the end.
        """
        whose, limit = tenant_of(self.tenant, tenant), check_limit(limit)
        last = (after.run, after.step) if isinstance(after, ApprovalRequest) else after
        if last is not None:
            last = check_id(last[0]), check_key(last[1])
        await self._opened()
        return await self.store.approvals(whose, limit, last)
