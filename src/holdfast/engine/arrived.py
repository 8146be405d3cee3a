"""Events as a store has recorded them for a wait. Anyone may have written the payload."""

from __future__ import annotations

import msgspec

from holdfast.codec import plain, unwrapped
from holdfast.records import Event, Json, moment


class Came(msgspec.Struct):
    """An event, with its payload as text."""

    id: str
    topic: str
    at: int
    payload: msgspec.Raw


def event_of(output: Json | None, what: str) -> Event:
    """An awaited event, as its step has recorded it; BadValue when it cannot be read."""
    return event(unwrapped(output, Came, what), what)


def event(came: Came, what: str) -> Event:
    """An event as code sees it."""
    payload = plain.decode(bytes(came.payload), f"the payload of {what}")
    return Event(id=came.id, topic=came.topic, at=moment(came.at), payload=payload)
