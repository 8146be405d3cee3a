"""Messages of the outbox in words."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from holdfast.engine.outbox.health import why
from holdfast.records import MessageStatus, OutboxMessage

from .data import raw_text
from .text import clean
from .times import ago, stamp

QUEUED = "after an earlier message with the same key"


def next_attempt(message: OutboxMessage, now: datetime) -> str:
    """When the message is sent next."""
    if message.status is not MessageStatus.PENDING:
        return "-"
    if message.next_at is None:
        return QUEUED
    return "being sent" if message.held_by is not None else ago(max(message.next_at, now), now)


def message_facts(message: OutboxMessage, now: datetime) -> Iterator[tuple[str, str]]:
    """Names and values that describe a message."""
    yield "to", clean(message.sink) + ("" if message.key is None else f", key {clean(message.key)}")
    yield "from", f"run {message.run}" + ("" if message.step is None else f", step {clean(message.step)}")
    yield "tenant", clean(message.tenant)
    yield "created", f"{ago(message.created_at, now)} ({stamp(message.created_at)})"
    yield "attempts", str(message.attempts)
    yield "next", next_attempt(message, now)
    yield "sent", stamp(message.sent_at)
    yield "last error", clean(why(message)) or "-"
    yield "payload", clean(raw_text(message.payload_json))
