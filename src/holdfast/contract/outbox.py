"""Messages for the world outside, delivered after the commit that sends them; and webhooks they may go to."""

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

GIVE_UP_SECONDS = 3 * 86400.0  # how long a message that cannot be delivered is tried, from its first try on


class Outbox(Protocol):
    """A message is a row from the commit that sends it (`Item.outbox`) until its run is purged.

    Each is delivered at least once, under an id that stays the same. `seq` is given inside the commit.
    Messages of one (tenant, sink, key) form a line: only its first pending one can be taken, so that at most
    one is on its way, in the order of seq. One without a key waits for no other. Rows are found by what they
    are (pending, due) and never by a mark that has passed, so that one that committed late is not skipped.
    """

    async def relay(self, ask: RelayAsk) -> Sequence[Parcel]:
        """Take due messages for the sinks in ask.sinks (of ask.tenants) and for webhooks; at most `limit`,
        and of one sink `each`, or what `bounds` says of it; in their order, as many as
        ask.bytes bytes of payloads allow, one at least. By turns: the first of each sink, the second of
        each, and so on; what the relay has `taken` of a sink counts, for its turn and its bound. In a turn,
        and of one sink, by due time, then seq. One commit; any number of relays at once get disjoint sets.
        Finding none writes nothing.

        Due: pending, first of its line, next_at <= now. Each becomes held by `relay`, fence + 1, attempts
        + 1, and is due again, for anyone, lease_seconds from now: a relay that dies loses nothing. tried_at
        is now, the first time. A name that is among ask.sinks and a webhook's: the function's.
        """

    async def relayed(self, answers: Sequence[Relayed]) -> Sequence[bool]:
        """What became of parcels; one commit; whether each counted, in order.

        Only the present fence of a pending message counts, past its lease too, as long as nobody else has
        taken it: anything else is late and changes nothing, and so is the same answer again.

        sent      status sent, sent_at now, error cleared.
        failed    error; due again delay_seconds from now; dead instead, when it was first tried
                  GIVE_UP_SECONDS ago or longer.
        dead      error, status dead.
        released  error; due again delay_seconds from now; attempts - 1, and tried_at cleared if that is 0.
        Sent and dead, it leaves its line, and the next one there is due now.
        """

    async def relay_at(
        self, sinks: Sequence[str], *, tenants: Sequence[str] | None = None, webhooks: bool = True
    ) -> Instant | None:
        """When `relay` may next find something for these functions (of these tenants), or for webhooks; None:
        not in sight."""

    async def outbox(
        self, where: OutboxFilter | None = None, limit: int = 100, after: int = 0
    ) -> Sequence[OutboxMessage]:
        """Messages by seq, oldest first, those after the cursor `after` (the last seq of the page before).
        where=None: all of the default tenant. Those of deleted runs are shown."""

    async def resend(self, id: str, tenant: Tenant) -> OutboxMessage:
        """Sent or dead: pending again at the end of its line, under a new seq, attempts 0, tried_at cleared.
        Pending, first of its line and not held: due now. Else unchanged. `UnknownMessage`. Answers
        the message as it is now. The id stays: who has had it before can tell."""

    async def backlog(self) -> Sequence[Backlog]:
        """What is pending or dead, of all tenants, by sink."""

    async def webhooks(self) -> Sequence[Webhook]:
        """All webhooks, by name."""

    async def put_webhook(self, webhook: Webhook) -> bool:
        """Create it (rev 0), or take over what has changed of the one with that rev (created_at stays, rev
        + 1). False, and nothing written: somebody else has changed, made or removed it since. Messages for
        it are looked at."""

    async def remove_webhook(self, name: str) -> bool:
        """Whether there was one. Messages for it stay pending."""
