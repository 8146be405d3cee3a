"""The places of a relay: how many messages may be on their way to each sink, so that none holds up another.

The first message to a sink has a place that no other sink can take. Beyond that they share: a sink begins
with few places, has twice as many after each message that it takes, and one after a try that failed slowly.
"""

from __future__ import annotations

from collections import Counter

import msgspec

SHARED = 64  # messages on their way from one relay, beyond the first to each sink
SINKS_MAX = 256  # sinks that have one: connections and threads are not without end
START, EACH = 2, 16  # places of one sink: at first, and at most
SLOW_SECONDS = 1.0  # a failure that takes longer costs a sink its places


class Room(msgspec.Struct, frozen=True, kw_only=True):
    """What may be taken now; the fields are those of RelayAsk."""

    limit: int
    each: int
    bounds: dict[str, int]
    taken: dict[str, int]


class Places:
    """Who has how many, and may have."""

    def __init__(self) -> None:
        self._taken: Counter[str] = Counter()
        self._bounds: dict[str, int] = {}
        self._closed: dict[str, float] = {}

    def enter(self, sink: str) -> None:
        """A message is on its way there."""
        self._taken[sink] += 1

    def leave(self, sink: str) -> None:
        """And no more."""
        self._taken[sink] -= 1
        if not self._taken[sink]:
            del self._taken[sink]

    def answered(self, sink: str, *, sent: bool, seconds: float) -> None:
        """How long a try took, and how it ended."""
        if sent:
            self._bounds[sink] = min(EACH, 2 * self._bounds.get(sink, START))
        elif seconds >= SLOW_SECONDS:
            self._bounds[sink] = 1

    def close(self, sink: str, until: float) -> None:
        """Take nothing for it until then."""
        self._closed[sink] = until

    def room(self, now: float, *, hurried: bool = False) -> Room:
        """What may be taken. `hurried`: nothing for sinks that were slow, which others would wait for."""
        self._closed = {sink: until for sink, until in self._closed.items() if until > now}
        shut = dict.fromkeys(self._closed, 0)
        if hurried:
            shut |= {sink: 0 for sink, bound in self._bounds.items() if bound == 1}
        shared = SHARED - sum(self._taken.values()) + len(self._taken)
        if shared > 0:
            return Room(limit=shared, each=START, bounds=self._bounds | shut, taken=dict(self._taken))
        return Room(limit=SINKS_MAX - len(self._taken), each=1, bounds=shut, taken=dict(self._taken))
