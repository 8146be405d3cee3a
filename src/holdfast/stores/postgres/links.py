"""One session with the server: how it is made, and how it is let go of."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import suppress
from typing import Any

import asyncpg

from .address import Address
from .errors import DRIVER, translated

CONNECT_SECONDS = 5.0
COMMAND_SECONDS = 10.0
CLOSE_SECONDS = 1.0
FRESH_PLANS = "discard plans"
# What another server of the same address may make good: this one is away, not up yet, or a standby.
_TRY_NEXT = (OSError, asyncpg.CannotConnectNowError, asyncpg.TargetServerAttributeNotMatched)
_served: dict[str, int] = {}  # by address: which of its servers was the right one, where it is not the first
_STATEMENTS = 1024  # each verb has one or two, so that none is ever thrown out
# Of a silent link the kernel finds out by itself, so that nobody is handed a dead one.
_KEEPALIVE = {
    "TCP_KEEPIDLE": 10,
    "TCP_KEEPALIVE": 10,  # what macOS calls it
    "TCP_KEEPINTVL": 5,
    "TCP_KEEPCNT": 3,
    "TCP_USER_TIMEOUT": 25_000,
}
# What a role or database may have been set to, and verbs cannot do with: each statement sees what is
# committed before it. Compiling the small queries of a verb takes longer than running them.
_SETTINGS = {
    "application_name": "holdfast",
    "default_transaction_isolation": "read committed",
    "jit": "off",
    "standard_conforming_strings": "on",
}


class Link(asyncpg.Connection):  # type: ignore[misc] # the driver has no types
    """A session, and since when it stands as it does."""

    __slots__ = ("idle_since", "planned_at")

    idle_since: float
    planned_at: float

    def tidy(self) -> str:
        """What is done from time to time before it is given to somebody else."""
        return FRESH_PLANS

    def abandon(self) -> None:
        """Let go without a word: whatever is under way, the other side may never answer."""
        with suppress(RuntimeError):  # its event loop has ended: nothing of it can be sent any more
            self.terminate()

    async def leave(self) -> None:
        """Take leave, but do not insist."""
        try:
            await self.close(timeout=CLOSE_SECONDS)
        except DRIVER:
            self.abandon()


class ShortLink(Link):
    """Each call may reach another session: nothing is prepared there, and what we know of it is kept here.

    The driver would ask what a statement takes and answers before each call, one more round trip. The
    statement that it then has is sent whole each time, so that it can be used again.
    """

    __slots__ = ("_known",)

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._known: dict[str, Any] = {}

    async def _get_statement(self, query: str, timeout: float | None, **options: Any) -> Any:
        known = self._known.get(query)
        if known is None:
            known = self._known[query] = await super()._get_statement(query, timeout, **options)
        return known


async def connected(
    address: Address, limit_seconds: float = CONNECT_SECONDS, kind: type[Link] | None = None
) -> Link:
    """A new session. Raises what the driver raises, but for an address that it does not understand.

    Of several servers each has its share of the time: one that is silent must not keep us from the others.
    """
    each, first = address.each, _served.get(address.dsn, 0)
    trouble: Exception | None = None
    for number in (*range(first, len(each)), *range(first)):
        try:
            link = await _connected(address, each[number], limit_seconds / len(each), kind)
        except _TRY_NEXT as error:
            trouble = error
        else:
            if number != first:
                _served[address.dsn] = number
            return link
    raise trouble or AssertionError


async def _connected(address: Address, dsn: str, limit_seconds: float, kind: type[Link] | None) -> Link:
    pooled = not address.listen
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(limit_seconds):
            link: Link = await asyncpg.connect(
                dsn,
                connection_class=kind or (ShortLink if pooled else Link),
                statement_cache_size=0 if pooled else _STATEMENTS,
                # By its nature a verb's statement never grows old.
                max_cached_statement_lifetime=0,
                # Of what is asked without a limit of its own: a server that stands still holds nobody.
                command_timeout=COMMAND_SECONDS,
                server_settings={"application_name": "holdfast"} if pooled else _SETTINGS,
            )
    except (ValueError, OverflowError) as error:
        raise translated(error, address.shown) from None
    link.idle_since = link.planned_at = loop.time()
    _keep_alive(link)
    return link


def _socket(link: Link) -> Any:
    transport = getattr(link, "_transport", None)
    return None if transport is None else transport.get_extra_info("socket")


def _keep_alive(link: Link) -> None:
    sock = _socket(link)
    if sock is None or sock.family == socket.AF_UNIX:
        return
    with suppress(OSError, AttributeError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE.items():
            if hasattr(socket, name):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def bury(link: Link) -> None:
    """Close a session whose event loop has ended: the server must not wait for it."""
    transport = getattr(link, "_transport", None)
    link.abandon()
    # What the loop would have called next, had it still been there.
    close = getattr(transport, "_call_connection_lost", None)
    if close is not None:
        with suppress(Exception):
            close(None)


def disown(link: Link) -> None:
    """In a child, after a fork: the session is the parent's, and not a byte may be sent on it.

    Nor may the event loop be told: what both watch their sockets with is shared. The socket is replaced
    by one that leads nowhere, so that the server sees it closed when the parent closes it.
    """
    sock = _socket(link)
    if sock is None:
        return
    with suppress(OSError):
        nowhere = os.open(os.devnull, os.O_RDWR)
        try:
            os.dup2(nowhere, sock.fileno())
        finally:
            os.close(nowhere)
