"""Gates, and the decisions of people about them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from holdfast.records import ApprovalRequest, Decided, Tenant


class Approvals(Protocol):
    """A gate is a step of kind approval. No worker executes it: it is open until a person decides."""

    async def approvals(
        self, tenant: Tenant, limit: int = 100, after: tuple[UUID, str] | None = None
    ) -> Sequence[ApprovalRequest]:
        """Open gates of open runs that are not deleted, by run id (oldest run first) and seq, after the
        cursor `after` (run and step of the last one of the previous page). ANY: of all tenants.
        """

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
        """Approve or reject an open gate of an open run (leased, waiting, pending or paused), in one commit.

        `UnknownRun` as everywhere. The gates of a run are its approval steps that have been opened, including
        decided and cancelled ones (not a plan's pending ones). step=None: the gate, when there is
        exactly one; else Conflict, which lists them. A name that is none of them: Conflict, which
        lists them (not open). Decided before: the same decision gets the first answer (repeated=True)
        and changes nothing, also after the run has ended; the other decision: Conflict. A digest that
        is not the gate's: Conflict. Its deadline is past (due_at < now), though no keeper has
        noticed: the gate is settled as by `tick`, and the call is answered as if that decision had
        been there. Run ended, or gate cancelled, without a decision: IllegalMove with the true status
        (move "approve" or "reject").

        The gates are those of the chain's present run: after the chain has gone on, the same call again meets
        the next run's gate of that name. Only a digest of what one gate alone shows makes a call repeatable.

        The output of a decided gate is {"approved", "by", "comment", "at" (µs), "timed_out"}. In a code run
        the step succeeds either way, under the next seq. In a plan an approved gate succeeds, and the run
        goes on as after `advance`; a rejected gate fails, kind `rejected`, with this output, and so does the
        run. Waking: as in `deliver`. Trail: approved [step by comment status?] or rejected, then what
        follows.
        """
