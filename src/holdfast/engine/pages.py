"""Answers of a store are bounded in bytes: this puts pages together where so many records are wanted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import msgspec

from holdfast.records import Run

T = TypeVar("T")


async def gathered(
    fetch: Callable[[int, Any], Awaitable[Sequence[T]]],
    limit: int,
    after: Any,
    cursor: Callable[[T], Any],
    keep: Callable[[T], T] | None = None,
) -> list[T]:
    """At most `limit` records after the cursor `after`, fetched in pages; `keep` drops what is not needed.

    `fetch` is called with a limit and a cursor; `cursor` gives that of a record.
    """
    found: list[T] = []
    while len(found) < limit and (page := await fetch(limit - len(found), after)):
        after = cursor(page[-1])
        found += page if keep is None else map(keep, page)
    return found


def without_values(run: Run) -> Run:
    """A run as a row of a table shows it. Values may be large, and those of many runs need not be kept."""
    return msgspec.structs.replace(run, params_json="null", result_json=None)
