"""The slots of a relay: the number of messages in flight to each sink, so that no sink delays another.

The first message to a sink has a slot that no other sink can take. All further slots are shared: a sink
begins with few slots, gets twice as many after each message that it accepts, and one after a slow failure.
"""

from __future__ import annotations

from collections import Counter

import msgspec

SHARED = 64  # messages in flight from one relay, beyond the first to each sink
SINKS_MAX = 256  # sinks with a message in flight: connections and threads are limited
START, EACH = 2, 16  # slots of one sink: at first, and at most
SLOW_SECONDS = 1.0  # after a failure that takes longer a sink has one slot


class RelayQuota(msgspec.Struct, frozen=True, kw_only=True):
    """The messages that may be taken now; the fields are those of RelayAsk."""

    limit: int
    each: int
    bounds: dict[str, int]
    taken: dict[str, int]


class SinkSlots:
    """The slots that each sink uses, and may use."""

    def __init__(self) -> None:
        self._taken: Counter[str] = Counter()
        self._bounds: dict[str, int] = {}
        self._closed: dict[str, float] = {}

    def enter(self, sink: str) -> None:
        """Count a message in flight to the sink."""
        self._taken[sink] += 1

    def leave(self, sink: str) -> None:
        """Count one message less."""
        self._taken[sink] -= 1
        if not self._taken[sink]:
            del self._taken[sink]

    def answered(self, sink: str, *, sent: bool, seconds: float) -> None:
        """Adjust the sink's slots to the duration and result of a try."""
        if sent:
            self._bounds[sink] = min(EACH, 2 * self._bounds.get(sink, START))
        elif seconds >= SLOW_SECONDS:
            self._bounds[sink] = 1

    def close(self, sink: str, until: float) -> None:
        """Take no messages for the sink until then."""
        self._closed[sink] = until

    def quota(self, now: float, *, hurried: bool = False) -> RelayQuota:
        """Return the messages that may be taken. `hurried`: none for slow sinks, which others would wait
        for.
        """
        self._closed = {sink: until for sink, until in self._closed.items() if until > now}
        closed = dict.fromkeys(self._closed, 0)
        if hurried:
            closed |= {sink: 0 for sink, bound in self._bounds.items() if bound == 1}
        shared = SHARED - sum(self._taken.values()) + len(self._taken)
        if shared > 0:
            return RelayQuota(limit=shared, each=START, bounds=self._bounds | closed, taken=dict(self._taken))
        return RelayQuota(limit=SINKS_MAX - len(self._taken), each=1, bounds=closed, taken=dict(self._taken))
