"""Outgoing messages: the outbox, parcels that a relay holds, and webhooks."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

import msgspec

from holdfast.bounds import BATCH_BYTES

from .units import OWN, Instant, Json, OwnTenant, Tenant
from .unreadable import read_error, value
from .written import Error


class MessageStatus(StrEnum):
    """The status of a message. A dead one is left to people: `resend` makes it pending again."""

    PENDING = "pending"
    SENT = "sent"
    DEAD = "dead"


class OutboxMessage(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """A message of the outbox, as lists show it. `seq` is its place: messages of a key are sent in that
    order.
    """

    seq: int
    id: str
    tenant: str
    run: UUID
    step: str | None
    sink: str
    key: str | None
    payload_json: Json
    status: MessageStatus
    attempts: int
    held_by: str | None  # the relay that is sending it now
    next_at: (
        datetime | None
    )  # when it is due; held: when it is due if the relay dies; None: another of its key is first
    error_json: Json | None  # error of the last failed try
    created_at: datetime
    tried_at: datetime | None  # first try
    sent_at: datetime | None

    @property
    def payload(self) -> Any:
        """The value that is sent; BadValue if it cannot be read."""
        return value(self.payload_json, f"the payload of message {self.id}")

    @property
    def error(self) -> Error | None:
        """The error of the last failed try; of kind `unreadable` if it cannot be read."""
        return read_error(self.error_json) if self.error_json is not None else None


class OutboxFilter(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """The filter of a list of messages."""

    statuses: tuple[MessageStatus, ...] = ()
    sink: str | None = None
    run: UUID | None = None
    tenant: Tenant | OwnTenant | None = OWN  # as in RunFilter
    id: str | None = None


class Webhook(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """A sink that is a URL: any relay may send to it."""

    name: str
    target: Json  # {"url", "secrets": those that sign, the newest first}
    allow_private: bool = False
    rev: int = 0  # number of changes; 0: it is not in a store
    created_at: Instant = 0
    updated_at: Instant = 0


class Parcel(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """A message that a relay holds: nobody else has it, or another one of its key, until its lease ends."""

    id: str
    fence: int  # identifies this delivery in the answer
    tenant: str
    run: UUID
    sink: str
    key: str | None
    payload: Json
    attempt: int
    created_at: Instant
    webhook: Webhook | None = None  # None: a function of the relay's own process
    trace: str = ""  # of the run that sends it, as it is now


class RelayAsk(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """The request of a relay: what it can send."""

    relay: str
    sinks: tuple[str, ...] = ()  # its own functions
    tenants: tuple[str, ...] | None = None  # tenants whose messages its functions may get; None: all
    webhooks: bool = True
    limit: int = 100
    bytes: int = BATCH_BYTES  # bytes of payloads; the first message is taken however large it is
    each: int = 100  # the most of one sink,
    bounds: dict[str, int] = {}  # or these numbers, by sink
    taken: dict[str, int] = {}  # messages of each sink that the relay has already: they count
    lease_seconds: float = 60.0


class Relayed(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """The outcome of a parcel.

    sent      the sink has it
    failed    it is due again after the delay; dead, when its first try is long ago
    dead      the sink will never take it
    released  nobody has tried: it is due again after the delay, and this was no attempt
    """

    id: str
    fence: int
    answer: str
    error: Json | None = None
    delay_seconds: float = 0.0


class Backlog(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """The messages that one sink has not received yet."""

    sink: str
    pending: int  # at most 10,000, as dead: more are not counted
    dead: int
    oldest_at: Instant | None  # when the oldest pending one was sent by its run
