"""One session with the server: how it is opened and closed."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import suppress
from typing import Any

import asyncpg

from holdfast.stores.postgres.address import Address
from holdfast.stores.postgres.errors import DRIVER, translated

CONNECT_SECONDS = 5.0
COMMAND_SECONDS = 10.0
CLOSE_SECONDS = 1.0
FRESH_PLANS = "discard plans"
# Errors after which another server of the same address may do: this one is away, starting, or a standby.
_TRY_NEXT = (OSError, asyncpg.CannotConnectNowError, asyncpg.TargetServerAttributeNotMatched)
_served: dict[str, int] = {}  # by address: the server that worked last, if it is not the first
_STATEMENTS = 1024  # each verb has one or two, so that none is ever dropped
# The kernel notices a broken connection by itself, so that nobody gets a dead session.
_KEEPALIVE = {
    "TCP_KEEPIDLE": 10,
    "TCP_KEEPALIVE": 10,  # the name on macOS
    "TCP_KEEPINTVL": 5,
    "TCP_KEEPCNT": 3,
    "TCP_USER_TIMEOUT": 25_000,
}
# Settings that a role or database may have changed and that verbs need: each statement sees what is committed
# before it. JIT is off because compiling the small queries of a verb takes longer than running them.
_SETTINGS = {
    "application_name": "holdfast",
    "default_transaction_isolation": "read committed",
    "jit": "off",
    "standard_conforming_strings": "on",
}


class Session(asyncpg.Connection):  # type: ignore[misc] # the driver has no types
    """A session, with the times since it is idle and since its plans were made, and its calls since then."""

    __slots__ = ("calls", "idle_since", "planned_at")

    calls: int
    idle_since: float
    planned_at: float

    def tidy(self) -> str:
        """The statement that is run from time to time before the next use."""
        return FRESH_PLANS

    def abandon(self) -> None:
        """Close at once, without waiting for a call under way: the server may never answer."""
        with suppress(RuntimeError):  # its event loop has ended: nothing can be sent any more
            self.terminate()

    async def leave(self) -> None:
        """Close, with a short time limit."""
        try:
            await self.close(timeout=CLOSE_SECONDS)
        except DRIVER:
            self.abandon()


class PooledSession(Session):
    """A session behind a pooler: each call may reach another server session, so no statement is prepared
    there.

    Without this class the driver would ask for the types of a statement before each call, which is one more
    round trip. Here the types are stored, and the statement is sent whole each time.
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
    address: Address, limit_seconds: float = CONNECT_SECONDS, kind: type[Session] | None = None
) -> Session:
    """Open a new session. Raises the driver's errors, except for an address that the driver cannot read.

    With several servers each has its share of the time: a silent server must not keep us from the others.
    """
    each, first = address.each, _served.get(address.dsn, 0)
    last_error: Exception | None = None
    for number in (*range(first, len(each)), *range(first)):
        try:
            session = await _connected(address, each[number], limit_seconds / len(each), kind)
        except _TRY_NEXT as error:
            last_error = error
        else:
            if number != first:
                _served[address.dsn] = number
            return session
    raise last_error or AssertionError


async def _connected(address: Address, dsn: str, limit_seconds: float, kind: type[Session] | None) -> Session:
    pooled = not address.listen
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(limit_seconds):
            session: Session = await asyncpg.connect(
                dsn,
                connection_class=kind or (PooledSession if pooled else Session),
                statement_cache_size=0 if pooled else _STATEMENTS,
                # The statements of verbs never become outdated.
                max_cached_statement_lifetime=0,
                # For statements without a limit of their own: a server that hangs must not block a caller.
                command_timeout=COMMAND_SECONDS,
                server_settings={"application_name": "holdfast"} if pooled else _SETTINGS,
            )
    except (ValueError, OverflowError) as error:
        raise translated(error, address.shown) from None
    session.idle_since = session.planned_at = loop.time()
    session.calls = 0
    _keep_alive(session)
    return session


def _socket(session: Session) -> Any:
    transport = getattr(session, "_transport", None)
    return None if transport is None else transport.get_extra_info("socket")


def _keep_alive(session: Session) -> None:
    sock = _socket(session)
    if sock is None or sock.family == socket.AF_UNIX:
        return
    with suppress(OSError, AttributeError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE.items():
            if hasattr(socket, name):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def close_without_loop(session: Session) -> None:
    """Close a session whose event loop has ended, so that the server does not wait for it."""
    transport = getattr(session, "_transport", None)
    session.abandon()
    # The loop would have called this next.
    close = getattr(transport, "_call_connection_lost", None)
    if close is not None:
        with suppress(Exception):
            close(None)


def disown(session: Session) -> None:
    """Detach a session in a child, after a fork: it belongs to the parent, and not a byte may be sent on it.

    The event loop must not be told either: parent and child share what they watch sockets with. The socket is
    replaced by one that leads nowhere, so that the server sees it closed when the parent closes it.
    """
    sock = _socket(session)
    if sock is None:
        return
    with suppress(OSError):
        nowhere = os.open(os.devnull, os.O_RDWR)
        try:
            os.dup2(nowhere, sock.fileno())
        finally:
            os.close(nowhere)
