"""Limits in bytes for one value, one commit and one answer, and the functions that measure sizes.

Sizes are those of JSON text as it is sent. A JSON text inside another JSON text is escaped again: each quote
and each backslash takes two bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")

MIB = 1024 * 1024
VALUE_BYTES = 4 * MIB  # one value: params, a result, an event's payload
DEPTH_MAX = 64  # levels of nesting in one value
BATCH_BYTES = 8 * MIB  # one commit, or one answer, that holds many values; one value alone may be larger
ITEM_BYTES = 128 * MIB  # all writes of one run in one commit: Postgres needs four times that in memory
LARGE_BATCH_BYTES = 4 * MIB  # one commit of large items only: small ones may have to wait for it
RUN_BYTES = 256 * MIB  # all values that one run has recorded, unless its workflow says otherwise
ROW_BYTES = 200  # size of a step in an answer beside its key and its values
NEWS_BYTES = 64 * 1024  # one run's settled waits in an answer about many runs
SCHEMA_BYTES = 16_384  # the largest JSON Schema that a definition holds; a larger one is left out
SHOWN_BYTES = 64 * 1024  # a value of a step that is read only to show one line of it
SCAN_ROWS = 10_000  # rows of the trail that one call of `follow_all` looks at
AUDIT_ROWS = 5_000  # rows of the audit log that one statement of `audit` looks at
SEARCH_RUNS = 2_000  # runs whose text one call of `search` looks at
SEARCH_BYTES = 32 * MIB  # bytes of their values; one run alone may have more
LARGE_BYTES = MIB  # a value or item of this size is committed apart, so that small ones do not wait for it


def text_bytes(text: str | None) -> int:
    """Return the size of a text in UTF-8."""
    if text is None:
        return 0
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))


def sent_bytes(text: str | None) -> int:
    """Return the size of a JSON text as a string inside another JSON text."""
    if text is None:
        return 0
    size = len(text) if text.isascii() else text_bytes(text)
    return size + text.count('"') + text.count("\\")


def page(items: Iterable[T], size: Callable[[T], int], limit: int, budget: int | None = None) -> list[T]:
    """Return the first items, at most `limit`, as many as fit into one answer; at least one, if there is
    one.
    """
    budget = BATCH_BYTES if budget is None else budget
    found: list[T] = []
    if limit > 0:
        for item in items:
            budget -= size(item)
            if found and budget < 0:
                break
            found.append(item)
            if len(found) == limit:
                break
    return found


class Quota(Generic[T]):
    """The rows and bytes that are left for one answer that is made of several parts."""

    def __init__(self, size: Callable[[T], int], limit: int, budget: int) -> None:
        self._size, self.rows, self._bytes, self._is_empty = size, max(0, limit), budget, True

    def take(self, items: Iterable[T]) -> tuple[tuple[T, ...], bool]:
        """Return the first items, as far as the quota goes, and whether some are left. After the first item
        that does not fit, nothing does. The first item of all always fits.
        """
        taken: list[T] = []
        for item in items:
            self._bytes -= self._size(item)
            if self.rows <= 0 or (self._bytes < 0 and not self._is_empty):
                self.rows = 0
                return tuple(taken), True
            taken.append(item)
            self.rows, self._is_empty = self.rows - 1, False
        return tuple(taken), False


def slices(
    items: Iterable[T], size: Callable[[T], int], budget: int = BATCH_BYTES, most: int | None = None
) -> Iterator[list[T]]:
    """Yield the items in order, in lists of at most `budget` bytes and `most` items, at least one in each."""
    batch: list[T] = []
    total = 0
    for item in items:
        one = size(item)
        if batch and (total + one > budget or len(batch) == most):
            yield batch
            batch, total = [], 0
        batch.append(item)
        total += one
    if batch:
        yield batch
