"""The connections of the server: uvicorn's own, with bounds in bytes, time and number.

Without them a client could send a head that never ends, byte by byte or with ever more headers; trailers that
never end; a body after its answer; or it could take nothing of an answer, for ever. The time of a body is
bounded in `parsing`, its size by each operation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from holdfast.world import RealWorld

from .connections import Connections
from .parsing import AT_ONCE, LARGE_BYTES, WHOLE
from .problems import PROBLEMS_PAGE, Code, Refusal, encoded, request_id
from .streams import ABORT

HEAD_BYTES = 32 * 1024  # of the address and all headers
HEAD_SECONDS = 20.0  # from the connection, or the first byte, to the last one of the head
STALL_SECONDS = 60.0  # a client that takes nothing of an answer for so long is dropped
CLOSE_SECONDS = 5.0  # a client may take the rest of an answer for so long after the end of the connection

_WORLD = RealWorld()  # for ids of requests


class BoundedProtocol(HttpToolsProtocol):
    """One connection. `open_connections` counts those of its server; None: they are not bounded."""

    open_connections: Connections | None = None

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._head_bytes = 0  # of the head that has not ended yet, and of anything that came with it
        self._in_head, self._has_begun = True, False
        self._bare_bytes = 0  # since the last byte of a body: sizes of chunks, and trailers
        self._head_timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None
        self._close_timer: asyncio.TimerHandle | None = None
        self._handshake = None if self.open_connections is None else self.open_connections.greet()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the head of the first request."""
        super().connection_made(transport)
        if self._handshake is not None:
            self._handshake.end()
        if self.open_connections is not None and not self.open_connections.made(self):
            self._answer(b"503 Service Unavailable", Code.SERVER_FULL)
            return
        self._wait_for_head()

    def drop(self) -> None:
        """End the connection at once."""
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        if self.open_connections is not None:
            self.open_connections.lost(self)
        self._head_came()
        for timer in (self._stall_timer, self._close_timer):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what has come; end a connection whose head is too large, or its trailers."""
        if self._in_head:
            self._head_bytes += len(data)
        else:
            self._bare_bytes += len(data)
        super().data_received(data)
        if not self._in_head and self._bare_bytes > HEAD_BYTES:
            self.transport.abort()
        if not self._in_head or self.transport.is_closing():
            return
        if self._has_begun or self._head_bytes:  # after a whole request there is nothing to wait for
            self._wait_for_head()
        if self._head_bytes > HEAD_BYTES:
            self._answer(b"431 Request Header Fields Too Large", Code.HEAD_TOO_LARGE)

    def _answer(self, status: bytes, code: Code) -> None:
        """Refuse what comes on this connection, and end it."""
        body, headers = _problem(code)
        head = b"".join(b"%s: %s\r\n" % one for one in headers)
        self.transport.write(b"HTTP/1.1 %s\r\n%s\r\n%s" % (status, head, body))
        self._close()

    def on_message_begin(self) -> None:
        """Begin a head."""
        super().on_message_begin()
        self._in_head = self._has_begun = True
        self.scope["extensions"] = {ABORT: {"call": self.transport.abort}}

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header. Trailers, which come after a body, are dropped."""
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """End a head, and answer the request; one with too large a head is refused."""
        if self.open_connections is not None:
            self.open_connections.busy(self)
        self._head_came()
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > HEAD_BYTES:
            self.app = _refused  # for good: the answer closes the connection
        super().on_headers_complete()
        self.scope["extensions"][AT_ONCE] = {"call": _sent_at_once}

    def on_body(self, body: bytes) -> None:
        """Take a part of a body."""
        self._bare_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Be ready for the head of the next request."""
        super().on_message_complete()
        self._in_head, self._head_bytes = True, 0
        self.scope["extensions"][WHOLE] = {}

    def on_response_complete(self) -> None:
        """End an answer. The rest of a body that nobody has read ends the connection."""
        super().on_response_complete()
        if self.open_connections is not None and self.cycle.response_complete and not self.pipeline:
            self.open_connections.idle(self)
        # With requests in the pipeline, this one has come as a whole.
        if self.transport.is_closing() or (not self.pipeline and self._is_unread()):
            self._close()

    def _is_unread(self) -> bool:
        return self.cycle.response_complete and self.cycle.more_body

    def timeout_keep_alive_handler(self) -> None:
        """End an idle connection."""
        self._close()

    def shutdown(self) -> None:
        """End the connection, or let its last answer end it: the server stops."""
        super().shutdown()
        if self.transport.is_closing():
            self._close()

    def pause_writing(self) -> None:
        """Begin to wait for a client that takes too little."""
        super().pause_writing()
        if self._stall_timer is None:
            self._wait_for_client()

    def resume_writing(self) -> None:
        """Go on: the client has taken enough."""
        super().resume_writing()
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None

    def _wait_for_client(self) -> None:
        left = self.transport.get_write_buffer_size()
        self._stall_timer = self.loop.call_later(STALL_SECONDS, self._check_client, left)

    def _check_client(self, left: int) -> None:
        """Drop a client that has taken nothing since the last look."""
        if self.transport.get_write_buffer_size() < left:
            self._wait_for_client()
        else:
            self._stall_timer = None
            self.transport.abort()

    def _close(self) -> None:
        """End the connection soon, whether the client takes the rest of the answer or not."""
        self.transport.close()
        if self._close_timer is None:
            self._close_timer = self.loop.call_later(CLOSE_SECONDS, self.transport.abort)

    def _wait_for_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self._head_late)

    def _head_came(self) -> None:
        self._in_head, self._has_begun, self._head_bytes, self._bare_bytes = False, False, 0, 0
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_late(self) -> None:
        self._head_timer = None
        if not self.transport.is_closing():
            self._close()


def _sent_at_once(send: Send, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> bool:
    """Send a whole answer with one write; uvicorn makes two, and a write costs more than most of the rest.

    Return False for an answer that uvicorn has to send: to HEAD, on a connection that ends with it, to a
    client that takes too little, through a middleware that wants to see it, or with a body that is large:
    it would be copied.
    """
    cycle = getattr(send, "__self__", None)
    if not isinstance(cycle, RequestResponseCycle) or cycle.disconnected or cycle.response_started:
        return False
    if len(body) > LARGE_BYTES or cycle.flow.write_paused or cycle.scope["method"] == "HEAD":
        return False
    if not cycle.keep_alive or _asks_to_close(cycle.scope["headers"]):
        return False
    parts = [STATUS_LINE[status]]
    for name, value in (*cycle.default_headers, *headers):
        if name == b"connection":
            return False
        parts += (name, b": ", value, b"\r\n")
    cycle.response_started = cycle.response_complete = True
    cycle.waiting_for_100_continue = cycle.chunked_encoding = False
    cycle.transport.write(b"".join((*parts, b"\r\n", body)))
    cycle.message_event.set()
    cycle.on_response()
    return True


def _asks_to_close(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Return True if the client wants the connection to end. Old versions of uvicorn do not look at this."""
    said = (value for name, value in headers if name == b"connection")
    return any(token.strip().lower() == b"close" for value in said for token in value.split(b","))


async def _refused(scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG001 - of every ASGI application
    body, headers = _problem()
    await send({"type": "http.response.start", "status": 431, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _problem(code: Code = Code.HEAD_TOO_LARGE) -> tuple[bytes, list[tuple[bytes, bytes]]]:
    """Return the body and the headers of the refusal."""
    id_ = request_id(_WORLD)
    body = encoded(Refusal(code).problem(id_, PROBLEMS_PAGE))
    return body, [
        (b"content-type", b"application/problem+json"),
        (b"content-length", b"%d" % len(body)),
        (b"connection", b"close"),
        (b"x-request-id", id_.encode()),
    ]
