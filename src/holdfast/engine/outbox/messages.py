"""Messages: `Message` as user code writes it, `Delivery` as a sink receives it, and the limits of one
commit.
"""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from holdfast.arguments import check_name, exact_text
from holdfast.bounds import MIB
from holdfast.clipped import clipped
from holdfast.codec import untyped
from holdfast.errors import TooLarge, UsageError
from holdfast.records import Instant, Outbound

SENT_BYTES = 64 * MIB  # events and messages of one step: they are one commit and cannot be divided
SENT_MAX = 10_000  # events and messages of one step: each is a row
# Log rows that wait for one commit. With a step, its messages and a result: < 128 MiB.
LOGGED_BYTES = 32 * MIB
LOGGED_MAX = 10_000  # log rows that wait for one commit


class Message(msgspec.Struct, frozen=True):
    """A message to a sink: `Message("mail", {"to": …})`. Messages of one key arrive in order."""

    sink: str
    payload: Any = None
    key: str | None = None


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """The argument of a sink's function. `id` is the same at every try: a receiver drops an id that it has
    seen.
    """

    id: str
    sink: str
    payload: Any
    key: str | None
    run: UUID
    tenant: str
    attempt: int
    sent_at: datetime  # the time when its run sent it


def message_of(message: Any, payload: Any = None, key: str | None = None) -> Message:
    """Return a message, given as one or in parts: `send("mail", {…}, key="42")`."""
    if isinstance(message, Message):
        if payload is not None:
            raise UsageError("send(Message(…)) has its payload in the message: give no second payload")
        key = message.key if key is None else key
        return msgspec.structs.replace(message, sink=exact_text(message.sink), key=key)
    if not isinstance(message, str):
        raise UsageError(f"send({clipped(message)}): give a Message, or a sink's name and a payload")
    return Message(exact_text(message), payload, key)


def outbound(message: Message, run: UUID, created_at: Instant, step: str, number: int = 1) -> Outbound:
    """Return the row of a message: the `number`-th that this step of this run sends."""
    return Outbound(
        id=message_id(run, created_at, step, number),
        sink=check_name("sink", message.sink),
        payload=untyped.encode(message.payload, f"payload of a message to {message.sink!r}"),
        key=None if message.key is None else check_name("message key", message.key),
        step=step,
        number=number,
    )


def message_id(run: UUID, created_at: Instant, step: str, number: int) -> str:
    """Return the id of a message: the same at every execution, and valid in a header for any step name.

    After a purge a run's id may be used again, and receivers remember ids: the start time tells the two runs
    apart.
    """
    named = f"{run}:{created_at}:{number}:{step}"
    return f"msg_{hashlib.sha256(named.encode()).hexdigest()[:32]}"


def event_id(run: UUID, created_at: Instant, name: str) -> str:
    """Return the id of an event that a run emits: the same at every execution. Events outlive their run, and
    after a purge its id may be used again: the start time tells the two runs apart.
    """
    return f"{run}:{created_at}:{name}"


def check_sent(count: int, size: int, where: str) -> None:
    """Refuse more events and messages, or more bytes of them and of log rows, than one commit may hold."""
    if count > SENT_MAX:
        said = f"{where} sends more than {SENT_MAX:,} events and messages in one commit, the limit"
        raise TooLarge(f"{said}: combine several messages, or send them in several steps")
    if size > SENT_BYTES:
        said = f"{where} sends and logs {size:,} bytes in one commit, the limit is {SENT_BYTES:,}"
        raise TooLarge(f"{said}: send and log less, or in several steps")


def check_logged(count: int, size: int, where: str) -> None:
    """Refuse more log rows, or more bytes of them, than may wait for one commit."""
    if count > LOGGED_MAX:
        said = f"{where} logs more than {LOGGED_MAX:,} rows before one commit, the limit"
        raise TooLarge(f"{said}: log less, or in several steps")
    if size > LOGGED_BYTES:
        said = f"{where} logs {size:,} bytes before one commit, the limit is {LOGGED_BYTES:,}"
        raise TooLarge(f"{said}: log less, or in several steps")
