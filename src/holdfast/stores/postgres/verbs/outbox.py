"""The outbox: messages that are taken, answered, listed and sent again, and webhooks."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.json import Decoder
from msgspec.structs import replace

from holdfast import bounds
from holdfast.machine.durations import bounded
from holdfast.records import (
    Instant,
    OutboxFilter,
    OutboxMessage,
    Parcel,
    RelayAsk,
    Relayed,
)
from holdfast.stores.run_filter import inside

from .calls import Calls, json_text

_PARCELS = Decoder(list[Parcel])
_COUNTED = Decoder(list[bool])
_MESSAGES = Decoder(list[OutboxMessage])
_ALL = OutboxFilter()


class OutboxVerbs(Calls):
    """The verbs of the outbox."""

    async def relay(self, ask: RelayAsk) -> list[Parcel]:
        finite = replace(ask, lease_seconds=bounded(ask.lease_seconds))
        return await self._ask(_PARCELS, "relay", json_text(finite))

    async def relayed(self, answers: Sequence[Relayed]) -> list[bool]:
        if not answers:
            return []
        finite = [replace(one, delay_seconds=bounded(one.delay_seconds)) for one in answers]
        return await self._ask(_COUNTED, "relayed", json_text(finite))

    async def relay_at(
        self, sinks: Sequence[str], *, tenants: Sequence[str] | None = None, webhooks: bool = True
    ) -> Instant | None:
        at: Instant | None = await self._call("relay_at", json_text(sinks), json_text(tenants), webhooks)
        return at

    async def outbox(
        self, where: OutboxFilter | None = None, limit: int = 100, after: int = 0
    ) -> list[OutboxMessage]:
        return await self._ask(
            _MESSAGES, "outbox", json_text(inside(where or _ALL)), limit, after, bounds.BATCH_BYTES
        )
