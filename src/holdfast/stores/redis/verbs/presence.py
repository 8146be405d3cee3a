"""Presence of workers, and wake-ups: a message on a channel is a hint, and polling the guarantee."""

from __future__ import annotations

import msgspec

from holdfast.contract import LIVE_SECONDS
from holdfast.machine.durations import micros
from holdfast.records import Instant, Presence
from holdfast.stores.redis.core import Core
from holdfast.stores.redis.snapshot import Snapshot

_PRESENCE = msgspec.json.Decoder(Presence)


class PresenceVerbs(Core):
    """The verbs present and absent, as a mixin of the store."""

    async def present(self, presence: Presence) -> None:
        def note(snapshot: Snapshot) -> None:
            seen = msgspec.structs.replace(presence, seen_at=snapshot.now)
            snapshot.do(
                "HSET", snapshot.names("workers"), presence.worker, msgspec.json.encode(seen).decode()
            )

        await self._change(note)

    async def absent(self, worker: str) -> None:
        await self._change(lambda snapshot: snapshot.do("HDEL", snapshot.names("workers"), worker))


def present_workers(snapshot: Snapshot, since: Instant | None = None) -> list[Presence]:
    """Return the workers that were seen since then, by name."""
    found = map(_PRESENCE.decode, snapshot.read("HGETALL", snapshot.names("workers")).values())
    since = snapshot.now - micros(LIVE_SECONDS) if since is None else since
    return sorted((one for one in found if one.seen_at >= since), key=lambda one: one.worker)


def forget_workers(snapshot: Snapshot, until: Instant) -> int:
    """Remove workers that were not seen after this instant. Return how many."""
    key = snapshot.names("workers")
    found = snapshot.read("HGETALL", key).items()
    gone = [(worker, text) for worker, text in found if _PRESENCE.decode(text).seen_at <= until]
    for worker, text in gone:
        snapshot.guard(("HGET", key, worker), text)  # it may come back meanwhile
        snapshot.do("HDEL", key, worker)
    return len(gone)
