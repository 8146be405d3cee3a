"""Answers of a store are bounded in bytes: this puts pages together where so many records are wanted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


async def gathered(
    fetch: Callable[[int, Any], Awaitable[Sequence[T]]],
    limit: int,
    after: Any,
    cursor: Callable[[T], Any],
) -> list[T]:
    """At most `limit` records after the cursor `after`, fetched in pages.

    `fetch` is called with a limit and a cursor; `cursor` gives that of a record.
    """
    found: list[T] = []
    while len(found) < limit and (page := await fetch(limit - len(found), after)):
        after = cursor(page[-1])
        found += page
    return found
