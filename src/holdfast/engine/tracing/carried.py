"""The stored trace of a run: the span that its executions belong to, and what the last execution has left.

A store keeps it as text and never reads it. The text of a start is a W3C traceparent. An execution that lets
its run go adds its own traceparent, for a link, and a mark: the waits up to it have their spans already.
"""

from __future__ import annotations

import re
from typing import NamedTuple

MARK_MAX = 10**18

# Version 00 has these four fields and no more; a later version may have others behind them.
_PARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII)
_STORED = re.compile(r"(\S{1,512})(?: (\S{55}) (\d{1,18}))?", re.ASCII)


class Parsed(NamedTuple):
    """The fields of a traceparent."""

    trace_id: int
    span_id: int
    flags: int


class Carried(NamedTuple):
    """A stored trace. `parent` and `link` are traceparents, or empty."""

    parent: str = ""
    link: str = ""
    seen: int = 0

    def __str__(self) -> str:
        """Return the text to store."""
        return f"{self.parent} {self.link} {self.seen}" if self.link else self.parent


def traceparent(trace_id: int, span_id: int, flags: int) -> str:
    """Return a W3C traceparent. Only the flag `sampled` is passed on."""
    return f"00-{trace_id:032x}-{span_id:016x}-{flags & 1:02x}"


def parsed(text: str) -> Parsed | None:
    """Read a W3C traceparent; None when it is not valid."""
    found = _PARENT.fullmatch(text)
    if found is None:
        return None
    version, trace_id, span_id, flags, more = found.groups()
    if version == "ff" or (version == "00" and more is not None):
        return None
    fields = Parsed(int(trace_id, 16), int(span_id, 16), int(flags, 16))
    return fields if fields.trace_id and fields.span_id else None


def same_trace(one: str, other: str) -> bool:
    """Return True when two traceparents are spans of one trace."""
    first, second = parsed(one), parsed(other)
    return first is not None and second is not None and first.trace_id == second.trace_id


def checked(text: str | None) -> str:
    """Return a traceparent that came from outside as it is stored; empty when it is not valid."""
    fields = None if text is None or len(text) > 512 else parsed(text.strip(" \t"))
    return "" if fields is None else traceparent(*fields)


def carried(text: str) -> Carried:
    """Read a stored trace; an empty one when it is not valid."""
    found = _STORED.fullmatch(text) if text else None
    if found is None:
        return Carried()
    parent, link, seen = checked(found[1]), checked(found[2]), found[3]
    if not parent:
        return Carried()
    return Carried(parent, link, int(seen)) if link else Carried(parent)
