"""Batches: KEYS and ARGV of the scripts start, claim, hold and renew, which take many runs in one call."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import msgspec

from holdfast.records import Instant

from . import counting
from .names import Names, part

AT_ONCE = 100  # runs of one round trip
IN_SCRIPT = 20  # runs of one script: more would keep the server from others for too long
SCRIPT_BYTES = 512 * 1024  # values of one script; one run alone may have more
ROWS = 250  # steps, trail rows, events and messages of one script; one step alone may have more
# Microseconds that a script may add to the clock: sums stay below 2**53, which Lua keeps exactly.
EXACT = 10**15

packed = msgspec.msgpack.Encoder().encode


class Batch:
    """The call of one script. `given`: its own keys, from KEYS[4] on; `each`: those of its runs, behind."""

    def __init__(
        self, names: Names, clock: Instant | None, now: Instant, *given: str, each: Iterable[str] = ()
    ) -> None:
        """`clock`: of a test; None: the server's. `now`: what the server's clock says, as far as is known."""
        self.names, self.hour = names, counting.hour_of(now)
        self.keys: list[str] = [names.numbers, names.trail, names.channel, *given, *each]
        self.args: list[Any] = ["" if clock is None else clock, self.hour]
        self._places: dict[str, int] = {}  # of keys that several runs have
        self._kinds: dict[tuple[str, str], int] = {}
        self.kinds: list[tuple[Any, ...]] = []

    def place(self, key: str) -> int:
        """Return the place of a key in KEYS."""
        place = self._places.get(key)
        if place is None:
            self.keys.append(key)
            place = self._places[key] = len(self.keys)
        return place

    def kind(self, type_: str, tenant: str, sets: Callable[[Names, str, str], tuple[str, ...]]) -> int:
        """Return the place of type and tenant among the kinds of the batch. `sets`: those that such runs are
        in."""
        known = self._kinds.get((type_, tenant))
        if known is None:
            places = map(self.place, sets(self.names, type_, tenant))
            self.kinds.append((type_, tenant, part(tenant), *places))
            known = self._kinds[type_, tenant] = len(self.kinds)
            # The scripts make these names themselves, but a server may want to know all keys before.
            for key in counting.keys(self.names, self.hour, tenant):
                self.place(key)
        return known

    def say(self, *what: Any) -> None:
        """Add the words of the script."""
        self.args.append(packed(what))


@lru_cache(maxsize=4096)
def starting_sets(names: Names, type_: str, tenant: str) -> tuple[str, ...]:
    """Return the sets that a pending run is in, as start.lua wants them."""
    return (
        names.of("queue", type_), names.of("queue", type_, tenant), names.of("lane", type_, tenant),
        names.of("lanes", type_), names.of("lanes", type_, tenant), names("pending"),
        names("status", "pending"), names.of("status:pending", tenant),
        names("runs"), names.of("tenant", tenant), names.of("type", type_),
    )  # fmt: skip


@lru_cache(maxsize=4096)
def ending_sets(names: Names, type_: str, tenant: str) -> tuple[str, ...]:
    """Return the sets that a leased run leaves and enters when it succeeds, as hold.lua wants them."""
    return (
        names("status", "leased"), names("status", "succeeded"), names.of("status:leased", tenant),
        names.of("status:succeeded", tenant), names.of("leased", "type", type_),
        names.of("leased", "tenant", tenant),
    )  # fmt: skip
