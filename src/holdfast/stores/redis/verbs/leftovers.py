"""Leftovers of removed runs and events: names that nothing needs any more, counts of zero, void receipts.

A purge looks at the names of the runs and messages that it has just removed. Totals of happenings stay.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from holdfast.lifecycle import Status
from holdfast.stores.redis import counting
from holdfast.stores.redis.names import part
from holdfast.stores.redis.rows import EventRow
from holdfast.stores.redis.snapshot import Snapshot

RECEIPTS = 250  # receipts that one change removes


@dataclass(frozen=True, slots=True)
class Leftovers:
    """Names of the runs and messages that one slice of a purge has removed. `kinds`: tenants and types."""

    runs: int = 0
    kinds: Collection[tuple[str, str]] = field(default_factory=set)
    sinks: Collection[str] = field(default_factory=set)

    def joined(self, other: Leftovers) -> Leftovers:
        return Leftovers(self.runs + other.runs, {*self.kinds, *other.kinds}, {*self.sinks, *other.sinks})


def forget_names(snapshot: Snapshot, left: Leftovers) -> None:
    """Remove counts of zero, types and tenants without a run, and sinks without a message to send."""
    names = snapshot.names
    types = sorted({kind for _, kind in left.kinds})
    tenants = sorted({tenant for tenant, _ in left.kinds})
    counts = [(counting.counts_key(names, None), kind) for kind in types]
    counts += [(counting.counts_key(names, tenant), kind) for tenant, kind in sorted(left.kinds)]
    fields = [(key, f"{part(kind)}:{status}") for key, kind in counts for status in Status]
    owners = [("types", kind, names.of("type", kind)) for kind in types]
    owners += [("tenants", tenant, names.of("tenant", tenant)) for tenant in tenants]
    queues = [
        (sink, names.of(f"outbox:{which}", sink))
        for sink in sorted(left.sinks)
        for which in ("pending", "dead")
    ]
    snapshot.prefetch([
        *(("HGET", *one) for one in fields), *(("ZCARD", key) for *_, key in owners),
        *(("ZCARD", key) for _, key in queues),
    ])  # fmt: skip
    for one in fields:
        if snapshot.read("HGET", *one) == "0":
            snapshot.guarded("HGET", *one)
            snapshot.do("HDEL", *one)
    for which, name, key in owners:
        if not snapshot.read("ZCARD", key) and not (which == "tenants" and _is_counted(snapshot, name)):
            snapshot.guarded("ZCARD", key)
            snapshot.do("ZREM", names(which), name)
    for sink in sorted(left.sinks):
        keys = [key for name, key in queues if name == sink]
        if not any(snapshot.read("ZCARD", key) for key in keys):
            for key in keys:
                snapshot.guarded("ZCARD", key)
            snapshot.do("ZREM", names("sinks"), sink)


def _is_counted(snapshot: Snapshot, tenant: str) -> bool:
    """Return True when runs of a tenant are counted that are not there: a recount has to find that."""
    runs, _ = counting.kept(snapshot.read("HGETALL", counting.counts_key(snapshot.names, tenant)))
    return any(number for *_, number in runs)


def void_receipts(snapshot: Snapshot, events: Iterable[EventRow]) -> None:
    """Note the events that later runs of chains have taken, because these events are removed.

    Only then their receipts may go: an event that is still there must not be taken twice.
    """
    taken, shared = snapshot.names("taken"), [event for event in events if event.run is None]
    snapshot.prefetch(("ZCOUNT", taken, event.seq, event.seq) for event in shared)
    for event in shared:
        if snapshot.guarded("ZCOUNT", taken, event.seq, event.seq):
            snapshot.do("ZADD", snapshot.names("taken:void"), event.seq, event.seq)


def purge_receipts(snapshot: Snapshot) -> int:
    """Remove some receipts for events that are gone. Return how many; 0: there are none."""
    names = snapshot.names
    void = snapshot.read("ZRANGE", names("taken:void"), 0, 0)
    if not void:
        return 0
    (seq,) = void
    found = snapshot.read("ZRANGEBYSCORE", names("taken"), seq, seq, "LIMIT", 0, RECEIPTS)
    for member in found:
        snapshot.do("HDEL", names("receipts", member.partition(":")[0]), seq)
        snapshot.leave(names("taken"), member)
    if len(found) < RECEIPTS:
        snapshot.do("ZREM", names("taken:void"), seq)
    return max(1, len(found))
