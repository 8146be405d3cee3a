"""Words for people: text made safe for one line, short ids, names of statuses."""

from __future__ import annotations

from uuid import UUID

from holdfast.escaping import escaped

TEXT_MAX = 1_000  # characters of one text that a user wrote; --json prints all
SHORT = 8  # characters of a short id: the last ones, because the first are the same within a minute


def clean(text: object, limit: int = TEXT_MAX) -> str:
    """Show a user's text on one line, without control characters; long text is cut and marked."""
    return escaped(text, limit)


def short(run_id: UUID | str) -> str:
    """The end of an id, as tables and logs show it."""
    return str(run_id)[-SHORT:]


def counted(number: int, noun: str) -> str:
    """`1 run`, `2 runs`, `1,000 runs`."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def by_whom(name: str | None) -> str:
    """` by NAME`; nothing when the name is unknown."""
    return f" by {clean(name)}" if name else ""
