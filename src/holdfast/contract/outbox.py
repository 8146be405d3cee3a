"""The outbox: messages that are delivered after the commit that sends them, and webhooks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from holdfast.records import (
    Backlog,
    Instant,
    OutboxFilter,
    OutboxMessage,
    Parcel,
    RelayAsk,
    Relayed,
    Tenant,
    Webhook,
)

GIVE_UP_SECONDS = 3 * 86400.0  # how long a message is retried, from its first try on


class Outbox(Protocol):
    """A message is a row from the commit that sends it (`Item.outbox`) until its run is purged.

    Each message is delivered at least once, under an id that stays the same. `seq` is given inside the
    commit. Messages of one (tenant, sink, key) form a queue. Only its first pending message can be taken, so
    that at most one is being sent, in the order of seq. A message without a key waits for no other. Messages
    are found by their state (pending, due) and never by a watermark, so that one that was committed late is
    not skipped.
    """

    async def relay(self, ask: RelayAsk) -> Sequence[Parcel]:
        """Take due messages for the sinks in ask.sinks (of ask.tenants) and for webhooks: at most `limit`,
        and of one sink at most `each`, or its number in `bounds`; in order, as many as ask.bytes bytes of
        payloads allow, at least one. Sinks take turns: the first message of each sink, the second of each,
        and so on. What the relay has `taken` of a sink counts, for its turn and its bound. In a turn, and
        within a sink: by due time, then seq. One commit; any number of relays at once get disjoint sets.
        Finding none writes nothing.

        Due: pending, first of its queue, next_at <= now. Each becomes held by `relay`, fence + 1, attempts +
        1, and is due again, for anyone, lease_seconds from now: a relay that dies loses nothing. tried_at is
        now, the first time. A name that is in ask.sinks and also a webhook's: the function gets the message.
        A parcel has the trace of its run: it is read from the run, which is kept while a message is pending.
        """

    async def relayed(self, answers: Sequence[Relayed]) -> Sequence[bool]:
        """Report the outcomes of parcels, in one commit. Returns whether each counted, in order.

        Only the present fence of a pending message counts, also after its lease, as long as nobody else has
        taken it. Any other answer is late and changes nothing; so does the same answer again.

        sent      status sent, sent_at now, error cleared.
        failed    error; due again delay_seconds from now; dead instead, when it was first tried
                  GIVE_UP_SECONDS ago or longer.
        dead      error, status dead.
        released  error; due again delay_seconds from now; attempts - 1, and tried_at cleared if that is 0.
        A message that is sent or dead leaves its queue, and the next one there is due now.
        """

    async def relay_at(
        self, sinks: Sequence[str], *, tenants: Sequence[str] | None = None, webhooks: bool = True
    ) -> Instant | None:
        """The next instant at which `relay` may find something for these functions (of these tenants), or for
        webhooks; None: nothing is in sight.
        """

    async def outbox(
        self, where: OutboxFilter | None = None, limit: int = 100, after: int = 0
    ) -> Sequence[OutboxMessage]:
        """Messages by seq, oldest first, after the cursor `after` (the last seq of the previous page).
        where=None: all of the default tenant. Messages of deleted runs are included.
        """

    async def resend(self, id: str, tenant: Tenant) -> OutboxMessage:
        """Sent or dead: pending again at the end of its queue, under a new seq, attempts 0, tried_at cleared.
        Pending, first of its queue and not held: due now. Else unchanged. `UnknownMessage`. Conflict: its run
        moves to another store, which sends it. Returns the message as it is now. The id stays, so that a
        receiver can recognise it.
        """

    async def backlog(self) -> Sequence[Backlog]:
        """Pending and dead messages of all tenants, by sink: at most DUE_COUNTED of each, so that the cost
        does not grow with them.
        """

    async def webhooks(self) -> Sequence[Webhook]:
        """All webhooks, by name."""

    async def put_webhook(self, webhook: Webhook) -> bool:
        """Create it (rev 0), or replace the one with that rev (created_at stays, rev + 1). False, and nothing
        is written: somebody else has changed, made or removed it since. Messages for it are checked.
        """

    async def remove_webhook(self, name: str) -> bool:
        """Remove a webhook; return whether there was one. Messages for it stay pending."""
