"""The numbers of items that were applied lately: another item under the number of one of them is refused.

The store answers a repeated number as the first time, and compares nothing else. This server compares, for
the last items of the leases that it has seen last. After a restart, or behind several servers, it may not
know the first item: then the store's rule is all there is.
"""

from __future__ import annotations

from collections import OrderedDict
from hashlib import blake2b
from uuid import UUID

from msgspec import UNSET

from holdfast.wire.requests import BatchItem
from holdfast.wire.values import Value

LEASES_MAX = 10_000
ITEMS_OF_LEASE = 4
_DIGEST_BYTES = 12

_Lease = tuple[UUID, int]


class Numbers:
    """The last items of each lease, as digests of what they have written."""

    def __init__(self) -> None:
        self._leases: OrderedDict[_Lease, dict[int, bytes]] = OrderedDict()

    def is_taken(self, item: BatchItem) -> bool:
        """Return True when another item of the lease was applied under this number."""
        first = self._leases.get((item.run, item.fence), {}).get(item.seq)
        return first is not None and first != _digest(item)

    def applied(self, item: BatchItem) -> None:
        """Note an item that was applied."""
        key = item.run, item.fence
        items = self._leases.setdefault(key, {})
        items[item.seq] = _digest(item)
        if len(items) > ITEMS_OF_LEASE:
            del items[min(items)]
        self._leases.move_to_end(key)
        if len(self._leases) > LEASES_MAX:
            self._leases.popitem(last=False)


def _digest(item: BatchItem) -> bytes:
    """Return the digest of what an item writes: its operation, steps and result.

    Times and what is only told to the server may differ in a repetition.
    """
    found = blake2b(item.op.encode(), digest_size=_DIGEST_BYTES)
    for step in item.steps:
        found.update(f"\0{step.key}\0{step.status}\0".encode())
        _add(found, step.output)
    _add(found, item.result)
    if item.continue_as is not None:
        _add(found, item.continue_as.params)
    return found.digest()


def _add(found: blake2b, value: Value) -> None:
    found.update(b"\0" if value is UNSET else bytes(value))
