"""The number of connections: bounded below the number of files that the process may open.

Without a bound, a thousand silent connections take all file descriptors. Then nobody can connect, and the
store can open nothing. When the server is full, the connection that has waited longest for a request is
closed; when all have a request under way, the new one is refused.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Protocol

from holdfast.world import World

from .limits import Streams

log = logging.getLogger("holdfast.http")

FILES_MAX = 65_536  # a process needs no more
FILES = 1024  # where the limit cannot be read
ACCEPTED_MAX = 100  # connections that the event loop accepts in one turn, before any of them is counted
# Files of the store, of the worker, and of connections that are not counted yet.
RESERVE = 2 * ACCEPTED_MAX + 56
TELL_SECONDS = 60.0  # between two lines about a full server
HANDSHAKE_SECONDS = 20.0  # from the connection to the end of the handshake of TLS


class Connection(Protocol):
    """A connection that can be ended."""

    def drop(self) -> None:
        """End it at once."""


class Handshake:
    """A connection whose handshake of TLS has not ended.

    asyncio makes the protocol of a connection inside the task that waits for its handshake, before the first
    byte. So the task stands for the connection: its end is the end of the handshake, a cancel closes it.
    """

    def __init__(self, counted: Connections, task: asyncio.Task[Any]) -> None:
        self._counted, self._task = counted, task
        self._timer = task.get_loop().call_later(HANDSHAKE_SECONDS, self.drop)
        task.add_done_callback(self.end)

    def end(self, _: object = None) -> None:
        """Stop counting it: it has failed, or is a connection from now on."""
        self._timer.cancel()
        self._counted.greeted(self)

    def drop(self) -> None:
        """End it at once."""
        self._task.cancel()


class Connections:
    """The open connections of a server. handshakes: those of TLS that may be under way beside them."""

    def __init__(self, most: int, world: World, *, handshakes: int = 0) -> None:
        self.most, self._handshakes, self._world = most, handshakes, world
        self._open: set[Connection] = set()
        self._idle: dict[Connection, None] = {}  # without a request under way, the longest idle first
        self._greeting: dict[Handshake, None] = {}  # the oldest first
        self._told_at = float("-inf")
        self._turned_away = 0

    def greet(self) -> Handshake | None:
        """Count the handshake of the connection that this task accepts; the oldest one makes room.

        None: there is no TLS, or the event loop has no such task.
        """
        task = asyncio.current_task() if self._handshakes else None
        if task is None:
            return None
        if len(self._greeting) >= self._handshakes:
            self._tell()
            oldest = next(iter(self._greeting))
            self.greeted(oldest)
            oldest.drop()
        one = Handshake(self, task)
        self._greeting[one] = None
        return one

    def greeted(self, one: Handshake) -> None:
        """Forget a handshake that has ended."""
        self._greeting.pop(one, None)

    def made(self, one: Connection) -> bool:
        """Count a new connection. Return False when it must be refused."""
        if len(self._open) >= self.most:
            self._tell()
            idle = next(iter(self._idle), None)
            if idle is None:
                return False
            self.lost(idle)
            idle.drop()
        self._open.add(one)
        self._idle[one] = None
        return True

    def busy(self, one: Connection) -> None:
        """Note that a request has come."""
        self._idle.pop(one, None)

    def idle(self, one: Connection) -> None:
        """Note that a request has been answered."""
        if one in self._open:
            self._idle[one] = None

    def lost(self, one: Connection) -> None:
        """Forget a connection that has ended."""
        self._open.discard(one)
        self._idle.pop(one, None)

    def _tell(self) -> None:
        self._turned_away += 1
        now = self._world.monotonic()
        if now < self._told_at + TELL_SECONDS:
            return
        log.warning(
            "the server is full: %d connections are open, %d more begin TLS; %d were closed while idle or in "
            "the handshake, or refused, to make room. A higher limit of open files (ulimit -n) allows more",
            len(self._open),
            len(self._greeting),
            self._turned_away,
        )
        self._told_at, self._turned_away = now, 0


def raise_file_limit() -> None:
    """Let this process open as many files as the system allows it, up to FILES_MAX."""
    limits: Any = _resource()
    if limits is None:
        return
    soft, hard = limits.getrlimit(limits.RLIMIT_NOFILE)
    wanted = FILES_MAX if hard == limits.RLIM_INFINITY else min(hard, FILES_MAX)
    if soft != limits.RLIM_INFINITY and soft < wanted:
        try:
            limits.setrlimit(limits.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError) as error:  # the system has another limit, which it does not tell
            log.info("the limit of open files stays %d: %s", soft, error)


def connections_max() -> int:
    """Return how many connections a server may have: fewer than files may be open."""
    limits: Any = _resource()
    soft = FILES if limits is None else limits.getrlimit(limits.RLIMIT_NOFILE)[0]
    if limits is not None and soft == limits.RLIM_INFINITY:
        soft = FILES_MAX
    files = min(soft, FILES_MAX)
    return int(max(files - RESERVE, files // 2, 1))


def with_handshakes(most: int, world: World) -> Connections:
    """Return the bounds of a server with TLS: of so many connections, an eighth may be in the handshake."""
    handshakes = max(1, most // 8)
    return Connections(max(1, most - handshakes), world, handshakes=handshakes)


def streams_within(connections: int) -> Streams:
    """Return limits on streams that leave a quarter of the connections to other requests."""
    usual = Streams()
    most = max(1, min(usual.most, connections * 3 // 4))
    return Streams(most, max(1, min(usual.per_key, most // 4)), max(1, min(usual.per_tenant, most // 2)))


def _resource() -> Any:
    try:
        import resource  # noqa: PLC0415 - not on every system
    except ImportError:  # not on Windows
        return None
    return resource
