"""The time that scripts take on a Redis server, by the clock of the server, from its slow log."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from typing import NamedTuple

from holdfast.stores.redis.scripts import script
from servers.redis import Redis

NAMES = ("start", "claim", "hold", "renew", "save", "heads", "outline", "recount", "epoch")
MOST = 200_000  # entries that the server keeps
GOAL_MS = 5.0
_BY_SHA = {script(name, flagged=flagged).sha: name for name in NAMES for flagged in (True, False)}


class Times(NamedTuple):
    """How long the calls of one script took, in milliseconds."""

    calls: int
    p50: float
    p99: float
    longest: float
    late: int  # calls above GOAL_MS


class SlowLog:
    """The slow log of a server, which has every call since the last look."""

    def __init__(self, server: Redis) -> None:
        self._server = server

    def begin(self, above_us: int = 0) -> None:
        """Forget all calls, and keep those from now on that take longer than so many microseconds."""
        with self._server.client() as client:
            client.config_set("slowlog-max-len", MOST)
            client.config_set("slowlog-log-slower-than", above_us)
            client.slowlog_reset()

    def take(self) -> dict[str, Times]:
        """Return the times of scripts by name, and forget them."""
        found: dict[str, list[float]] = {}
        with self._server.client() as client:
            for entry in client.slowlog_get(MOST):
                words = entry["command"].decode(errors="replace").split()
                if words[0] == "EVALSHA":
                    name = _BY_SHA.get(words[1], "other")
                    found.setdefault(name, []).append(entry["duration"] / 1000)
            client.slowlog_reset()
        return {name: times(some) for name, some in found.items()}


def times(milliseconds: Iterable[float]) -> Times:
    ordered = sorted(milliseconds)
    late = sum(one > GOAL_MS for one in ordered)
    p99 = ordered[int(0.99 * (len(ordered) - 1))]
    return Times(len(ordered), statistics.median(ordered), p99, ordered[-1], late)


def say_longest(what: str, found: dict[str, Times]) -> None:
    """Print the longest call of each script."""
    said = ", ".join(
        f"{name} {one.longest:.1f}" + (f" ({one.late} above {GOAL_MS:g})" if one.late else "")
        for name, one in sorted(found.items())
    )
    print(f"  longest scripts, {what}, ms: {said or 'none was kept'}  (goal <= {GOAL_MS:g})", flush=True)
