"""Events that a wait has received, read from the record. The payload may come from anyone."""

from __future__ import annotations

import msgspec

from holdfast.codec import untyped, unwrapped
from holdfast.records import Event, Json, moment


class RecordedEvent(msgspec.Struct):
    """An event as the store records it, with its payload as JSON text."""

    id: str
    topic: str
    at: int
    payload: msgspec.Raw


def event_of(output: Json | None, what: str) -> Event:
    """Read the event from the recorded output of its step; BadValue when it cannot be read."""
    return event(unwrapped(output, RecordedEvent, what), what)


def event(came: RecordedEvent, what: str) -> Event:
    """Return the event as user code sees it."""
    payload = untyped.decode(bytes(came.payload), f"the payload of {what}")
    return Event(id=came.id, topic=came.topic, at=moment(came.at), payload=payload)
