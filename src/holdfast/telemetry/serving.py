"""A small HTTP server for scrapes, beside a worker: GET /metrics and GET /healthz, and nothing else.

It has a thread and an event loop of its own. A blocked event loop of the worker does not delay a scrape, and
a slow scraper does not delay the worker. Everything is bounded: connections, bytes of a request, and time.
There is no authentication: by default it listens on the machine itself only.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

from holdfast.engine.app.app import App
from holdfast.errors import UsageError
from holdfast.escaping import safe_logger

from . import store_wide
from .prometheus import exposition
from .recorder import PROCESS, measure

log = safe_logger("holdfast.metrics")

HOST = "127.0.0.1"
CONNECTIONS_MAX = 8  # that have sent no request yet; and as many that are being answered
REQUEST_BYTES = 8 * 1024
REQUEST_SECONDS = 5.0  # to send a request
ANSWER_SECONDS = 15.0  # to make and to take the answer
BEGIN_SECONDS = 10.0
END_SECONDS = 2.0

Answer = tuple[str, str, bytes]  # status, content type, body

_PLAIN = "text/plain; charset=utf-8"
_WRONG_METHOD: Answer = "405 Method Not Allowed", _PLAIN, b"only GET\n"
_NOT_FOUND: Answer = "404 Not Found", _PLAIN, b"GET /metrics or /healthz\n"
_BUSY: Answer = "503 Service Unavailable", _PLAIN, b"too many connections\n"


class MetricsServer:
    """Serves the metrics of this process: `with MetricsServer(app, 9464):` around the work.

    ports: a port, or several of which the first free one is taken; 0 is any free port. store: also the
    metrics of the whole store, which one process of a deployment should report. It makes the workers of the
    app count.
    """

    def __init__(
        self, app: App, ports: int | Sequence[int], *, host: str = HOST, store: bool = False
    ) -> None:
        self._app, self._host, self._with_store = app, host, store
        self._ports = (ports,) if isinstance(ports, int) else tuple(ports)
        self._ending = asyncio.Event()
        # connections that have sent no request yet, the oldest first; and scrapes that are being answered
        self._silent: dict[asyncio.StreamWriter, None] = {}
        self._scrapes = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._running: tuple[threading.Thread, asyncio.AbstractEventLoop] | None = None
        self.port = 0  # the port that it listens on
        measure(app)

    @property
    def url(self) -> str:
        """The address of the metrics."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self.port}/metrics"

    def __enter__(self) -> Self:
        """Listen; `UsageError` when no port is free."""
        listening = _bound(self._host, self._ports)
        self.port = listening.getsockname()[1]
        began, loop = threading.Event(), asyncio.new_event_loop()
        thread = threading.Thread(
            target=self._main, args=(loop, listening, began), name="holdfast-metrics", daemon=True
        )
        thread.start()
        self._running = thread, loop
        began.wait(BEGIN_SECONDS)
        log.info("metrics at %s", self.url)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop, and wait a short time for answers on their way."""
        if self._running is not None:
            thread, loop = self._running
            with suppress(RuntimeError):  # it has ended already
                loop.call_soon_threadsafe(self._ending.set)
            thread.join(END_SECONDS)

    def _main(
        self, loop: asyncio.AbstractEventLoop, listening: socket.socket, began: threading.Event
    ) -> None:
        try:
            loop.run_until_complete(self._serve(listening, began))
        except Exception:
            log.exception("the metrics cannot be served any more")
        finally:
            began.set()
            store_wide.forget(loop)
            loop.close()

    async def _serve(self, listening: socket.socket, began: threading.Event) -> None:
        server = await asyncio.start_server(self._accepted, sock=listening, limit=REQUEST_BYTES)
        began.set()
        await self._ending.wait()
        server.close()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=END_SECONDS / 2)

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take a new connection. Among too many that have sent no request, the oldest has to go."""
        if len(self._silent) >= CONNECTIONS_MAX:
            oldest = next(iter(self._silent))
            del self._silent[oldest]
            oldest.transport.abort()
        self._silent[writer] = None
        task = asyncio.get_running_loop().create_task(self._served(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: writer.close())  # also of a task that was cancelled before it began

    async def _served(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # All bytes are sent before the connection is closed: otherwise one that takes nothing stays open.
        writer.transport.set_write_buffer_limits(high=0)
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
            self._silent.pop(writer, None)
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._reply(head, writer)
        except TimeoutError:
            writer.transport.abort()
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # a scraper that goes away, or sends something else than HTTP, is no error of ours
        except asyncio.CancelledError:
            writer.transport.abort()  # the server stops
            raise
        finally:
            self._silent.pop(writer, None)

    async def _reply(self, head: bytes, writer: asyncio.StreamWriter) -> None:
        """Answer one request. Few scrapes are answered at once; that a worker works is always told."""
        scrape = b"/healthz" not in head.split(b"\r\n", 1)[0]
        if scrape and self._scrapes >= CONNECTIONS_MAX:
            writer.write(_response(*_BUSY, body=not head.startswith(b"HEAD ")))
            await writer.drain()
            return
        self._scrapes += scrape
        try:
            writer.write(_response(*await self._answer(head), body=not head.startswith(b"HEAD ")))
            await writer.drain()
        finally:
            self._scrapes -= scrape

    async def _answer(self, head: bytes) -> Answer:
        method, _, rest = head.decode("latin-1").partition(" ")
        path = rest.partition(" ")[0].partition("?")[0]
        if path not in {"/metrics", "/healthz"}:
            return _NOT_FOUND
        if method not in {"GET", "HEAD"}:
            return _WRONG_METHOD
        if path == "/healthz":
            works = PROCESS.workers > 0
            return (
                ("200 OK", _PLAIN, b"ok\n") if works else ("503 Service Unavailable", _PLAIN, b"no worker\n")
            )
        try:
            content, text = await exposition(self._app, store=self._with_store)
        except Exception:
            log.exception("the metrics cannot be shown")
            return "500 Internal Server Error", _PLAIN, b"see the log\n"
        return "200 OK", content, text


def _response(status: str, content: str, text: bytes, *, body: bool) -> bytes:
    head = f"Content-Type: {content}\r\nContent-Length: {len(text)}\r\nConnection: close\r\n\r\n"
    return f"HTTP/1.1 {status}\r\n{head}".encode() + (text if body else b"")


def _bound(host: str, ports: Sequence[int]) -> socket.socket:
    """Return a socket on the first free port."""
    why: OSError | None = None
    for port in ports:
        try:
            return socket.create_server((host, port), family=_family(host))
        except OSError as error:
            why = error
    first = str(ports[0]) if len(ports) == 1 else f"{ports[0]}-{ports[-1]}"
    number = why.errno if why is not None else None
    said = os.strerror(number) if number is not None and number > 0 else str(why)
    raise UsageError(f"metrics cannot be served at {host}, port {first}: {said}; choose another port")


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
