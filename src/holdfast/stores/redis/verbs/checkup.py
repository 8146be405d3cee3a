"""Checks of the server: how durable it is, what it does when memory is full, and who copies it."""

from __future__ import annotations

import time

from holdfast.records import SECOND, Finding, Instant
from holdfast.stores.redis.core import Core
from holdfast.stores.redis.settings import SAID, Server, server_of

CROWDED = 0.9  # share of the memory
SKEW_SECONDS = 1.0  # between the server's clock and this host's


class CheckupVerb(Core):
    """The verbs `checkup` and `durability`, as a mixin of the store."""

    async def durability(self) -> str:
        server = await server_of(self._connections.ask)
        return f"{server.durability}: {SAID[server.durability]}"

    async def checkup(self) -> list[Finding]:
        sent = time.time_ns() // 1000
        server = await server_of(self._connections.ask)
        asked = (sent, time.time_ns() // 1000)
        return [
            *_durability(server), *_memory(server), *_copies(server), *_clock(server.now, asked),
            _ok(f"the server is version {server.version}"),
        ]  # fmt: skip


def _ok(what: str) -> Finding:
    return Finding(level="ok", what=what)


def _durability(server: Server) -> list[Finding]:
    what = f"durability {server.durability}: {SAID[server.durability]}"
    if server.durability == "memory":
        mend = "set appendonly yes, and appendfsync always or everysec"
        found = [Finding(level="warning", what=what, mend=mend)]
    else:
        found = [_ok(what)]
    if server.sync is None:
        found.append(
            Finding(
                level="warning",
                what="the server does not say how often it writes to its disk (CONFIG is not allowed): "
                "it is taken for one that does so every second",
                mend="allow `CONFIG GET` to the user of the store, or look at appendfsync yourself",
            )
        )
    mend = "look at the server's log, and at the space on its disk"
    return [*found, *(Finding(level="error", what=what, mend=mend) for what in server.failed)]


def _memory(server: Server) -> list[Finding]:
    if server.policy != "noeviction":
        return [
            Finding(
                level="error",
                what=f"the server drops keys when its memory is full (maxmemory-policy {server.policy})",
                mend="set maxmemory-policy noeviction",
            )
        ]
    found = [_ok("no key is dropped when memory is full (noeviction)")]
    if server.most_bytes and server.used_bytes > CROWDED * server.most_bytes:
        found.append(
            Finding(
                level="warning",
                what=f"{server.used_bytes / server.most_bytes:.0%} of the memory of the server are used: "
                "when it is full, no run can go on",
                mend="raise maxmemory, or purge more often",
            )
        )
    return found


def _copies(server: Server) -> list[Finding]:
    if server.role not in {"master", "primary"}:
        return [
            Finding(
                level="error",
                what=f"the server is a {server.role}: it takes no writes",
                mend="name the primary in the store URL",
            )
        ]
    if server.replicas_needed > server.replicas:
        return [
            Finding(
                level="error",
                what=f"the server takes no writes: {server.replicas} replicas are connected, and "
                f"min-replicas-to-write is {server.replicas_needed}",
                mend="connect more replicas, or lower min-replicas-to-write",
            )
        ]
    if not server.replicas:
        return [_ok("no replica copies the server")]
    number = "1 replica copies" if server.replicas == 1 else f"{server.replicas} replicas copy"
    return [_ok(f"{number} the server, a little later: a failover may lose writes, and fences do not repeat")]


def _clock(now: Instant, asked: tuple[Instant, Instant]) -> list[Finding]:
    """Compare the clock of the server with this host's, which may be that of a worker."""
    early, late = asked[0] - now, now - asked[1]
    apart = max(early, late) / SECOND
    if apart < SKEW_SECONDS:
        return []
    return [
        Finding(
            level="warning",
            what=f"the clock of the server and that of this host are {apart:.1f} s apart",
            mend="let both hosts use NTP: times in the store are the server's",
        )
    ]
