"""Settings of a server that matter to durability: a server that may lose runs is refused."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from redis.exceptions import ResponseError

from holdfast.errors import StoreError
from holdfast.records import SECOND, Instant

from .address import DURABILITIES
from .link import Command

OLDEST = (6, 2)
FAILURES = {
    "aof_last_write_status": "the last write to the append-only file has failed",
    "aof_last_bgrewrite_status": "the last rewrite of the append-only file has failed",
    "rdb_last_bgsave_status": "the last snapshot has failed",
}
SAID = {
    "fsync": "every acknowledged write is on the disk (appendfsync always)",
    "second": "a power cut may lose the last one or two seconds of acknowledged work (appendfsync everysec)",
    "memory": "a restart of the server loses all work since its last snapshot, or all (no append-only file)",
}


class Server(NamedTuple):
    """Facts about the server that matter to durability."""

    version: str
    policy: str  # what it does when memory is full
    durability: str  # one of DURABILITIES
    role: str
    replicas: int
    used_bytes: int
    most_bytes: int  # 0: no limit
    sync: str | None = None  # appendfsync; None: the server does not say
    failed: tuple[str, ...] = ()  # writes of its files that have failed
    replicas_needed: int = 0  # without so many replicas it takes no writes
    now: Instant = 0


async def server_of(ask: Callable[[Sequence[Command]], Awaitable[list[Any]]]) -> Server:
    """Read the facts. `ask`: returns the answers to commands. A server that does not allow CONFIG is taken
    for one that syncs every second."""
    parts = ("server", "memory", "persistence", "replication")
    *found, clock = await ask([*(("INFO", part) for part in parts), ("TIME",)])
    server, memory, persistence, replication = map(fields, found)
    settings: dict[str, str] = {}
    try:
        names = ("appendfsync", "min-replicas-to-write")
        for pairs in await ask([("CONFIG", "GET", name) for name in names]):
            settings |= zip(pairs[::2], pairs[1::2], strict=True)
    except (StoreError, ResponseError):
        pass
    sync = settings.get("appendfsync")
    if persistence.get("aof_enabled") != "1" or sync == "no":
        durability = "memory"
    else:
        durability = "fsync" if sync == "always" else "second"
    return Server(
        version=server.get("valkey_version") or server.get("redis_version", "0"),
        policy=memory.get("maxmemory_policy", "noeviction"),
        durability=durability,
        role=replication.get("role", "master"),
        replicas=int(replication.get("connected_slaves", 0)),
        used_bytes=int(memory.get("used_memory", 0)),
        most_bytes=int(memory.get("maxmemory", 0)),
        sync=sync,
        failed=tuple(said for name, said in FAILURES.items() if persistence.get(name, "ok") != "ok"),
        replicas_needed=int(settings.get("min-replicas-to-write", 0)),
        now=int(clock[0]) * SECOND + int(clock[1]),
    )


def refuse(server: Server, where: str, least: str) -> None:
    """Refuse a server that may drop runs, or that keeps less than the URL asks for."""
    version = tuple(int(part) for part in server.version.split(".")[:2] if part.isdecimal())
    if version < OLDEST:
        raise StoreError(f"{where}: the server is version {server.version}: Redis 6.2 or Valkey are needed")
    if server.policy != "noeviction":
        raise StoreError(
            f"{where}: the server drops keys when its memory is full (maxmemory-policy {server.policy}), and "
            "with them runs: set maxmemory-policy noeviction"
        )
    if DURABILITIES.index(server.durability) > DURABILITIES.index(least):
        mend = {
            "second": "set appendonly yes, or write ?durability=memory if runs may be lost",
            "fsync": "set appendonly yes and appendfsync always, or ask for less with ?durability=second",
        }[least]
        raise StoreError(f"{where}: {SAID[server.durability]}: {mend}")


def fields(info: str) -> dict[str, str]:
    """Return the fields of an answer to INFO."""
    lines = (line.partition(":") for line in info.splitlines() if line and not line.startswith("#"))
    return {name: value for name, _, value in lines}
