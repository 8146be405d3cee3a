"""Reading what a held run has recorded, in pages."""

from __future__ import annotations

from typing import Protocol

from holdfast.bounds import BATCH_BYTES
from holdfast.records import Lease, Loaded

START = -1  # before the first step: the seq of a plan's first row is 0


class Recorded(Protocol):
    """Large records of one run, for the worker that holds it."""

    async def load(self, lease: Lease, after: int = START, bytes: int = BATCH_BYTES) -> Loaded:
        """One page: the steps with seq > `after`, by seq, in at most `bytes` bytes, but at least one step.

        With after=START also params and labels. It reads under the fence: status leased, fence equal and
        lease_until >= now; if not, `cancelled` or `lost`, and nothing is read. It writes nothing. A wait that
        is settled between two pages moves behind the last seq and is read again there: of two steps with
        the same key the later one counts.
        """
