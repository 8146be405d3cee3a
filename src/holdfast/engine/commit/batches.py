"""The batches of the committer: queued items, cut into commits that are bounded in items, rows and bytes.

Large items wait apart from small ones and go in batches of their own, so that a small item never
waits for more than one batch of large ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from holdfast.bounds import BATCH_BYTES, LARGE_BATCH_BYTES, LARGE_BYTES
from holdfast.records import Item, Verdict
from holdfast.records.moves import starts_of

Answered = Callable[[Verdict], None]
Entry = tuple[Item, Answered, int]  # an item, the callback for its verdict, and its size in bytes

BATCH_MAX = 1000
# Rows of a batch: a run with many children, a segment, or a run that sends much has many.
ROWS_MAX = 2 * BATCH_MAX


class Batches:
    """The queue of one worker. At most `writers` batches are sent at once; one writer is kept for small
    items.
    """

    def __init__(self, writers: int) -> None:
        self._small: deque[Entry] = deque()
        self._large: deque[Entry] = deque()
        self._writers = writers
        self._large_sent = 0  # batches of large items on their way
        self._small_next = False  # with one writer the two kinds take turns

    def put(self, entry: Entry) -> None:
        """Queue an item."""
        (self._large if entry[2] >= LARGE_BYTES else self._small).append(entry)

    @property
    def ready(self) -> bool:
        """Return True when a writer is free and something is queued for it."""
        return bool(self._small) or self._may_send_large

    @property
    def _may_send_large(self) -> bool:
        return bool(self._large) and self._large_sent < max(1, self._writers - 1)

    def next(self, share: Callable[[int], int]) -> tuple[list[Entry], bool]:
        """Return the next batch, and whether its items are large. `share`: how many small items to take."""
        if self._may_send_large and not (self._small and self._writers == 1 and self._small_next):
            self._small_next = True
            self._large_sent += 1
            return _batch(self._large, BATCH_MAX, LARGE_BATCH_BYTES), True
        self._small_next = False
        return _batch(self._small, min(BATCH_MAX, share(len(self._small))), BATCH_BYTES), False

    def answered(self, *, large: bool) -> None:
        """Note that a batch has been answered."""
        self._large_sent -= large


def rows_of(item: Item) -> int:
    """Return the number of rows that an item writes: many small rows take time, too."""
    said = len(item.events) + len(item.outbox) + len(item.trail)
    return len(item.steps) + len(starts_of(item)) + said + 1


def _batch(queue: deque[Entry], most: int, budget: int) -> list[Entry]:
    """Take as many items from the head of a queue as fit into one commit; at least one."""
    batch: list[Entry] = []
    rows = total = 0
    while queue and len(batch) < most:
        item, _, size = queue[0]
        rows += rows_of(item)
        total += size
        if batch and (rows > ROWS_MAX or total > budget):
            break
        batch.append(queue.popleft())
    return batch
