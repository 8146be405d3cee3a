"""Values on the wire: times of a lease, durations, costs, and JSON of users.

A time of a lease is in milliseconds since its claim; three decimals are microseconds, so nothing is lost. A
value of a user is sent as it is written: only white space around its parts is dropped.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from holdfast.arguments import BIG_MAX, COST_MAX, FOREVER_SECONDS, NAME_MAX, TOPIC_MAX, WHOLE_MAX
from holdfast.bounds import VALUE_BYTES
from holdfast.codec import MARK, parse, untyped
from holdfast.errors import BadValue, TooLarge
from holdfast.records import COST_UNIT, Instant, Json
from holdfast.records.unreadable import Unreadable, raw
from holdfast.step_keys import KEY_MAX

NULL = Raw(b"null")
_FOREVER_MS = FOREVER_SECONDS * 1000
TOKEN_MAX = 2_000

Name = Annotated[str, Meta(min_length=1, max_length=NAME_MAX)]
WorkerName = Annotated[str, Meta(min_length=1, max_length=200, pattern="^[^@\u0000]+$")]
StepKey = Annotated[str, Meta(min_length=1, max_length=KEY_MAX)]
Topic = Annotated[str, Meta(min_length=1, max_length=TOPIC_MAX)]
Token = Annotated[str, Meta(max_length=TOKEN_MAX, description="The token of the lease.")]
Fence = Annotated[int, Meta(ge=0, le=BIG_MAX, description="The fence of the lease.")]
Whole = Annotated[int, Meta(ge=0, le=WHOLE_MAX)]
Duration = Annotated[float, Meta(ge=0, le=_FOREVER_MS, description="Milliseconds.")]
LeaseTime = Annotated[
    float, Meta(ge=-_FOREVER_MS, le=_FOREVER_MS, description="Milliseconds since the claim of the lease.")
]
Cost = Annotated[float, Meta(ge=0, le=COST_MAX)]
Zoned = Annotated[datetime, Meta(tz=True)]
Value = Raw | UnsetType  # JSON of a user; left out: none


def seconds(ms: float) -> float:
    """Return a duration of the wire in seconds."""
    return ms / 1000


def optional_seconds(ms: float | None) -> float | None:
    """Return the same for a duration that may be missing."""
    return None if ms is None else ms / 1000


def milliseconds(seconds: float | None) -> float | None:
    """Return a duration as it is sent."""
    return None if seconds is None else round(seconds * 1000, 3)


def instant_of(ms: float | None, claimed_at: Instant) -> Instant | None:
    """Return the instant of a time of the lease."""
    return None if ms is None else claimed_at + round(ms * 1000)


def lease_time(at: Instant | None, claimed_at: Instant) -> float | None:
    """Return an instant as a time of the lease."""
    return None if at is None else (at - claimed_at) / 1000


def units_of(cost: float) -> int:
    """Return a cost in the units of the store."""
    return round(cost * COST_UNIT)


def cost_of(units: int | None) -> float | None:
    """Return units of the store as a cost."""
    return None if units is None else units / COST_UNIT


def text_of(value: Value, what: str, limit: int = VALUE_BYTES) -> Json | None:
    """Return the text of a value of a user, exact but for white space; None: it was left out.

    BadValue or TooLarge, as for values of the library.
    """
    if value is UNSET:
        return None
    given = bytes(value)
    text = msgspec.json.format(given, indent=-1)
    if len(text) > limit:
        raise TooLarge(f"{what} is {len(text):,} bytes as JSON, the limit is {limit:,}")
    untyped.encode(parse(text, what, repeated=False), what)  # refuses what no store can keep
    found = text.decode()
    if found.startswith(MARK):
        raise BadValue(f"{what} begins with a key that marks encrypted values: rename the key")
    return found


def value_of(text: Json | None) -> Value:
    """Return a stored text as it is sent. A text that is no JSON becomes an object with the reason."""
    if text is None:
        return UNSET
    found = raw(text)
    return Raw(msgspec.json.encode(found.data)) if isinstance(found, Unreadable) else found


def object_of(text: Json | None) -> Raw:
    """Return the text of an object as it is sent: an empty one when there is none."""
    found = value_of(text)
    return Raw(b"{}") if found is UNSET else found


def struct_of(value: Value, wanted: Any, what: str) -> Any:
    """Return the record of a value that has a shape, such as an error."""
    try:
        return msgspec.json.decode(NULL if value is UNSET else value, type=wanted)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise BadValue(f"{what}: {error}") from None
