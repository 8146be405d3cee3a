"""One connection to a server. Its answers come in the order of the calls, so several calls may be under way.

The driver connects: address, TLS, password, database. Then this protocol takes the transport over. Calls by
the driver itself cost nearly twice the time, and before Python 3.12 they may swallow a cancel.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import hiredis
from redis.asyncio.connection import AbstractConnection, ConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    ConnectionError,  # noqa: A004 - the driver's
    RedisError,
    ResponseError,
)
from redis.exceptions import TimeoutError as TooLate

from holdfast.errors import UsageError

_UNKNOWN_OPTION = re.compile(r"unexpected keyword argument '(\w+)'")
CONNECT_SECONDS = 5.0
_REFUSALS = (AuthenticationError, ResponseError)
_MORE = object()  # the reader has no whole answer yet

Node = tuple[str, int]  # host and port of a node of a cluster
Command = tuple[Any, ...]


def packed(commands: Iterable[Command]) -> bytes:
    """Return commands as they are sent."""
    return b"".join(map(hiredis.pack_command, commands))


class Call(NamedTuple):
    """A call that waits for its answers."""

    future: asyncio.Future[list[Any]]
    answers: int
    deadline: float
    seconds: float


class Link(asyncio.Protocol):
    """One connection. It is over when the server has closed it, or has not answered a call in time."""

    def __init__(
        self, writer: asyncio.StreamWriter, loop: asyncio.AbstractEventLoop, node: Node | None = None
    ) -> None:
        # The writer is kept: it closes its transport when it is collected.
        self._writer, self._loop, self.node = writer, loop, node
        self._transport: asyncio.WriteTransport = writer.transport
        self._reader = hiredis.Reader(replyError=ResponseError, encoding="utf-8", notEnoughData=_MORE)
        self._calls: deque[Call] = deque()
        self._answers: list[Any] = []  # of the first call
        self._timer: asyncio.TimerHandle | None = None
        self._is_retired = False
        self.is_over = False
        self._used_at = loop.time()
        # Takes the messages of a subscriber; None: it is over.
        self.heard: Callable[[Any], None] | None = None
        self._transport.set_protocol(self)

    @property
    def is_usable(self) -> bool:
        """True when it may take another call."""
        return not self.is_over and not self._is_retired

    @property
    def idle_seconds(self) -> float:
        return self._loop.time() - self._used_at

    @property
    def load(self) -> int:
        """Count of calls without an answer."""
        return len(self._calls)

    def send(self, words: bytes, count: int, seconds: float) -> asyncio.Future[list[Any]]:
        """Send commands. Return a future of so many answers; errors of single commands are among them."""
        if self.is_over:
            raise ConnectionError("the connection is closed")
        future = self._loop.create_future()
        self._used_at = now = self._loop.time()
        deadline = now + seconds
        self._calls.append(Call(future, count, deadline, seconds))
        # One timer serves all calls. It is not stopped by an answer: it looks once in the time of a call.
        if self._timer is None:
            self._timer = self._loop.call_at(deadline, self._look)
        elif deadline < self._timer.when():
            self._timer.cancel()
            self._timer = self._loop.call_at(deadline, self._look)
        self._transport.write(words)
        return future

    def tell(self, words: bytes) -> None:
        """Send words of a subscriber, which have no answers but messages."""
        if self.is_over:
            raise ConnectionError("the connection is closed")
        self._transport.write(words)

    def retire(self) -> None:
        """Close the connection when the calls that are under way have their answers."""
        self._is_retired = True
        self._close_retired()

    def close(self, error: Exception | None = None) -> None:
        """Close the connection at once. Calls that are under way fail."""
        self._end(error or ConnectionError("the connection was closed"))
        self._transport.abort()  # also when the server has closed it: bytes may still wait to be written

    # Calls of the event loop.

    def data_received(self, data: bytes) -> None:
        try:
            self._reader.feed(data)
            while (answer := self._reader.gets()) is not _MORE:
                if self._calls:
                    self._take(answer)
                elif self.heard is not None:
                    self.heard(answer)
                else:  # the last word of a server that closes the connection
                    return self.close(ConnectionError(str(answer)[:200]))
        except (hiredis.HiredisError, UnicodeDecodeError) as error:
            self.close(ConnectionError(f"the answer cannot be read: {error}"))

    def eof_received(self) -> None:
        self._end(ConnectionError("the server has closed the connection"))

    def connection_lost(self, error: Exception | None) -> None:
        self._end(ConnectionError(f"the connection was lost: {error or 'it was closed'}"))

    def _take(self, answer: Any) -> None:
        """Give an answer to the first call. One that was cancelled does not need it."""
        call, answers = self._calls[0], self._answers
        answers.append(answer)
        if len(answers) == call.answers:
            self._calls.popleft()
            self._answers = []
            if not call.future.done():
                call.future.set_result(answers)
            if self._is_retired:
                self._close_retired()

    def _close_retired(self) -> None:
        if not self.is_over and all(call.future.done() for call in self._calls):
            self.close()

    def _look(self) -> None:
        """Close the connection when a call has had no answer for too long."""
        self._timer = None
        if not self._calls:
            return
        first = min(self._calls, key=_deadline)
        if first.deadline <= self._loop.time():
            if not first.future.done():
                first.future.set_exception(TimeoutError(f"no answer within {first.seconds:.3g} s"))
            self.close(ConnectionError("the server does not answer"))
        else:
            self._timer = self._loop.call_at(first.deadline, self._look)

    def _end(self, error: Exception) -> None:
        if self.is_over:
            return
        self.is_over = True
        if self._timer is not None:
            self._timer.cancel()
        calls, self._calls = self._calls, deque()
        for call in calls:
            if not call.future.done():
                call.future.set_exception(error)
        if self.heard is not None:
            self.heard(None)


def _deadline(call: Call) -> float:
    return call.deadline


def _wrong_option(error: Exception) -> str:
    """Return what is wrong with an option for the driver. Its value is not shown: it may be a password."""
    unknown = _UNKNOWN_OPTION.search(str(error))
    if unknown is None:
        return f"an option of the store URL cannot be used: {error}"
    return (
        f"the store URL has the option {unknown[1]}, which is not known: ours are prefix, durability, "
        "replicas, aof and wait_ms; the others are those of the driver redis-py, ssl_… only with rediss://"
    )


class Driver:
    """The part of the driver that connects to the server of a URL, or to another node of its cluster."""

    def __init__(self, url: str) -> None:
        try:
            self._made = ConnectionPool.from_url(
                url,
                decode_responses=True,
                protocol=2,
                socket_connect_timeout=CONNECT_SECONDS,
                socket_timeout=None,
                retry=Retry(NoBackoff(), 0),
            )
            self._made.make_connection()  # type: ignore[no-untyped-call] # it does not connect yet
        except (TypeError, ValueError, RedisError) as error:
            raise UsageError(_wrong_option(error)) from None
        options = self._made.connection_kwargs
        self._seconds = options.get("socket_connect_timeout") or CONNECT_SECONDS
        self.home: Node | None = (
            None if "path" in options else (options.get("host", "localhost"), options.get("port", 6379))
        )

    async def connected(self, node: Node | None = None) -> Link:
        """Return a new connection. Its owner closes it.

        The greeting of the driver, such as the password, has to end in time, too: something before the server
        may take a connection that nobody answers.
        """
        connection: AbstractConnection = self._made.make_connection()  # type: ignore[no-untyped-call]
        if node is not None and self.home is not None:
            connection.host, connection.port = node  # type: ignore[attr-defined]
        try:
            async with asyncio.timeout(self._seconds):
                await connection.connect()  # type: ignore[no-untyped-call]
        except BaseException as error:
            await connection.disconnect(nowait=True)
            if isinstance(error, TimeoutError):
                raise TooLate("Timeout connecting to server") from None
            if type(error) is ConnectionError and isinstance(error.__cause__, _REFUSALS):
                raise error.__cause__ from None  # at a socket the driver takes it for a lost connection
            raise
        writer = connection._writer  # noqa: SLF001 - from here on the connection is ours
        assert writer is not None
        connection._reader = connection._writer = None  # noqa: SLF001
        return Link(writer, asyncio.get_running_loop(), node or self.home)
