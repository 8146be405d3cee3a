"""Messages for the world outside, as user code writes them and as sinks get them."""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from holdfast.arguments import check_name, plain_text
from holdfast.bounds import MIB
from holdfast.clipped import clipped
from holdfast.codec import plain
from holdfast.errors import TooLarge, UsageError
from holdfast.records import Instant, Outbound

SAID_BYTES = 64 * MIB  # what one step sends: it is one commit and cannot be divided
SAID_MAX = 10_000  # events and messages of one step: each is a row, however small it is
LOGGED_BYTES = (
    32 * MIB
)  # log rows that wait for one commit. With a step, its messages and a result: < 128 MiB
LOGGED_MAX = 10_000  # log rows that wait for one commit


class Message(msgspec.Struct, frozen=True):
    """What to send, and to which sink: `Message("mail", {"to": …})`. Those of one key arrive in order."""

    sink: str
    payload: Any = None
    key: str | None = None


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """What a sink's function is called with. `id` is the same at every try: who has seen it drops it."""

    id: str
    sink: str
    payload: Any
    key: str | None
    run: UUID
    tenant: str
    attempt: int
    sent_at: datetime  # when its run sent it


def message_of(message: Any, payload: Any = None, key: str | None = None) -> Message:
    """A message, or the parts of one: `send("mail", {…}, key="42")`."""
    if isinstance(message, Message):
        if payload is not None:
            raise UsageError("send(Message(…)) takes its payload in the message, and none beside it")
        key = message.key if key is None else key
        return msgspec.structs.replace(message, sink=plain_text(message.sink), key=key)
    if not isinstance(message, str):
        raise UsageError(f"send({clipped(message)}): give a Message, or a sink's name and a payload")
    return Message(plain_text(message), payload, key)


def outbound(message: Message, run: UUID, created_at: Instant, step: str, number: int = 1) -> Outbound:
    """The row of a message: the `number`-th that this step of this run sends."""
    return Outbound(
        id=message_id(run, created_at, step, number),
        sink=check_name("sink", message.sink),
        payload=plain.encode(message.payload, f"payload of a message to {message.sink!r}"),
        key=None if message.key is None else check_name("message key", message.key),
        step=step,
    )


def message_id(run: UUID, created_at: Instant, step: str, number: int) -> str:
    """The same at every execution, and fit for a header, whatever the step is called.

    A run's id may be given again after a purge, and receivers remember: the start tells the two apart.
    """
    named = f"{run}:{created_at}:{number}:{step}"
    return f"msg_{hashlib.sha256(named.encode()).hexdigest()[:32]}"


def check_said(count: int, size: int, where: str) -> None:
    """Refuse more events and messages, or bytes of them and of log rows, than one commit takes."""
    if count > SAID_MAX:
        said = f"{where} sends more than {SAID_MAX:,} events and messages in one commit, the limit"
        raise TooLarge(f"{said}: put several into one, or send them in several steps")
    if size > SAID_BYTES:
        said = f"{where} sends and logs {size:,} bytes in one commit, the limit is {SAID_BYTES:,}"
        raise TooLarge(f"{said}: say less, or in several steps")


def check_logged(count: int, size: int, where: str) -> None:
    """Refuse more log rows, or bytes of them, than may wait for one commit."""
    if count > LOGGED_MAX:
        said = f"{where} logs more than {LOGGED_MAX:,} rows before one commit, the limit"
        raise TooLarge(f"{said}: say less, or in several steps")
    if size > LOGGED_BYTES:
        said = f"{where} logs {size:,} bytes before one commit, the limit is {LOGGED_BYTES:,}"
        raise TooLarge(f"{said}: say less, or in several steps")
