"""Reading of many records in pages: a store limits each answer in bytes."""

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
    """Return at most `limit` records after the cursor `after`, fetched in pages.

    `fetch` is called with a limit and a cursor; `cursor` returns the cursor of a record.
    """
    found: list[T] = []
    while len(found) < limit and (page := await fetch(limit - len(found), after)):
        after = cursor(page[-1])
        found += page
    return found
