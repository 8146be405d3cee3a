"""Times as a person reads them: lengths, relative times, dates and times of day."""

from __future__ import annotations

from datetime import UTC, datetime

_UNITS = ((86400 * 2, 86400, "d"), (3600 * 2, 3600, "h"), (120, 60, "min"), (0, 1, "s"))


def span(seconds: float) -> str:
    """A length of time in one unit: 310 ms, 12 s, 5 min, 3 h, 4 d."""
    if 0 < seconds < 0.001:
        return "<1 ms"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)  # just below two days are not 47 hours
    _, unit, word = next(one for one in _UNITS if whole >= one[0])
    return f"{whole / unit:.0f} {word}"


def ago(at: datetime | None, now: datetime) -> str:
    """An instant relative to now: `5 min ago`, `in 3 h`, `now`."""
    if at is None:
        return "-"
    seconds = (now - at).total_seconds()
    if abs(seconds) < 1:
        return "now"
    return f"{span(seconds)} ago" if seconds > 0 else f"in {span(-seconds)}"


def stamp(at: datetime | None) -> str:
    """Date and time to the second. The Z says that it is UTC, as everywhere in the store."""
    return "-" if at is None else at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def short_stamp(at: datetime, now: datetime) -> str:
    """The time in UTC; with its date unless that is today."""
    at, now = at.astimezone(UTC), now.astimezone(UTC)
    return at.strftime("%H:%M:%SZ") if at.date() == now.date() else stamp(at)


def clock(at: datetime) -> str:
    """The time of day on this machine. `day` gives the date to show above such times."""
    return _local(at).strftime("%H:%M:%S")


def day(at: datetime) -> str:
    """The date on this machine."""
    return _local(at).strftime("%Y-%m-%d")


def day_heading(at: datetime) -> str:
    """The date and the time zone of this machine: a heading above times of that day."""
    offset = _local(at).strftime("%z")
    return f"{day(at)}, local time (UTC{offset[:3]}:{offset[3:5]})"


def _local(at: datetime) -> datetime:
    try:
        return at.astimezone()
    except OverflowError:  # the last instant that there is, in a time zone east of UTC
        return at.astimezone(UTC)
