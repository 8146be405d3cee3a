"""The outbox with a codec: payloads, addresses with their secrets, and errors of functions are sealed.

Readable: sink, key and id, by which a store keeps messages in order, and the messages of Holdfast itself
about an address that does not answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import UUID

import msgspec

from holdfast.bounds import page
from holdfast.errors import CannotOpen, CannotSeal
from holdfast.records import (
    Error,
    Json,
    Outbound,
    OutboxFilter,
    OutboxMessage,
    Parcel,
    RelayAsk,
    Relayed,
    Webhook,
)
from holdfast.records.sizes import message_bytes

from .chain import Chain
from .envelope import unopened
from .hooks import Where

if TYPE_CHECKING:
    from holdfast.contract import Store

HIDDEN = "(sealed)"
RAISED = "raised"  # the kind of an error that a user's function has raised: it may contain values

_replace = msgspec.structs.replace


def sealed_message(chain: Chain, message: Outbound, tenant: str, run: UUID) -> Outbound:
    """Seal the payload of a message. It is bound to its run and its id: in another message it does not
    open."""
    return _replace(message, payload=chain.seal(message.payload, payload_place(tenant, run, message.id)))


class SealedOutbox:
    """The verbs of the outbox over `inner`."""

    inner: Store
    _chain: Chain

    async def relay(self, ask: RelayAsk) -> list[Parcel]:
        return [self._parcel(one) for one in await self.inner.relay(ask)]

    def _parcel(self, parcel: Parcel) -> Parcel:
        """Open the payload. One that does not open holds the reason, and the relay gives the message back."""
        payload = self._shown(parcel.payload, payload_place(parcel.tenant, parcel.run, parcel.id))
        return _replace(parcel, payload=payload, webhook=parcel.webhook and self._opened(parcel.webhook))

    async def relayed(self, answers: Sequence[Relayed]) -> Sequence[bool]:
        return await self.inner.relayed([self._veiled(one) for one in answers])

    def _veiled(self, answer: Relayed) -> Relayed:
        if answer.error is None or (error := _error(answer.error)).kind != RAISED:
            return answer
        shown = {"kind": error.kind, "type": error.type, "message": HIDDEN}
        try:
            veiled = self._chain.veil(shown, answer.error, failure_place(answer.id)) or answer.error
        except CannotSeal:
            # The error text is dropped, because the other answers are worth more.
            veiled = msgspec.json.encode(shown).decode()
        return _replace(answer, error=veiled)

    async def outbox(
        self, where: OutboxFilter | None = None, limit: int = 100, after: int = 0
    ) -> list[OutboxMessage]:
        return page(
            map(self.opened_message, await self.inner.outbox(where, limit, after)), message_bytes, limit
        )

    def opened_message(self, message: OutboxMessage) -> OutboxMessage:
        """Return the message as people see it."""
        payload = self._shown(message.payload_json, payload_place(message.tenant, message.run, message.id))
        error = message.error_json and self._unveiled(message.error_json, message.id)
        return _replace(message, payload_json=payload, error_json=error)

    async def webhooks(self) -> list[Webhook]:
        return [self._opened(one) for one in await self.inner.webhooks()]

    async def put_webhook(self, webhook: Webhook) -> bool:
        target = self._chain.seal(webhook.target, _target(webhook.name))
        return await self.inner.put_webhook(_replace(webhook, target=target))

    def _opened(self, webhook: Webhook) -> Webhook:
        return _replace(webhook, target=self._shown(webhook.target, _target(webhook.name)))

    def _shown(self, text: Json, where: Where) -> Json:
        try:
            return self._chain.open(text, where)
        except CannotOpen as why:
            return unopened(why, text)

    def _unveiled(self, text: Json, message: str) -> Json:
        try:
            return self._chain.unveil(text, failure_place(message)) or text
        except CannotOpen:
            return text


def _error(error: Json) -> Error:
    return msgspec.json.decode(error, type=Error)


def payload_place(tenant: str, run: UUID, message: str) -> Where:
    return Where(tenant=tenant, run=run, field="payload of message", name=message)


def failure_place(message: str) -> Where:
    return Where(tenant="", field="error of message", name=message)


def _target(name: str) -> Where:
    return Where(tenant="", field="address of webhook", name=name)
