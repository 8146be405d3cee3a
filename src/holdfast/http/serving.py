"""Serving the HTTP API with uvicorn, on the event loop of the caller."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import Context
from ipaddress import ip_address, ip_network
from typing import Any

import uvicorn

from holdfast.clipped import clipped
from holdfast.errors import UsageError

from .connections import ACCEPTED_MAX, Connections, connections_max, with_handshakes
from .protocol import BoundedProtocol
from .server import HttpApi

GRACE_SECONDS = 5  # requests that are under way may finish
IDLE_SECONDS = 75
BACKLOG = 2048  # connections that the system keeps until they are accepted


class Server:
    """One server on one address. `begin` binds it, so that a port in use is an error at once."""

    def __init__(
        self,
        app: HttpApi,
        host: str,
        port: int,
        *,
        proxies: tuple[str, ...] = (),
        tls: tuple[str, str] | None = None,
        connections: int | None = None,
    ) -> None:
        for name in ("uvicorn", "uvicorn.error"):  # its steps of starting and stopping are no news
            logging.getLogger(name).setLevel(logging.WARNING)
        _check_proxies(proxies)
        if tls is not None:
            _check_certificate(*tls)
        self._app = app
        self._socket = _bound(host, port)
        self.port: int = self._socket.getsockname()[1]
        self.host = host
        self.has_tls = tls is not None
        counted = with_handshakes if tls else Connections
        options: dict[str, Any] = {"ssl_certfile": tls[0], "ssl_keyfile": tls[1]} if tls else {}
        self._server = _Quiet(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                server_header=False,
                # Forwarded headers count only when they come from a proxy that was named.
                proxy_headers=bool(proxies),
                forwarded_allow_ips=list(proxies),
                timeout_graceful_shutdown=GRACE_SECONDS,
                timeout_keep_alive=IDLE_SECONDS,
                http=_protocol(counted(connections or connections_max(), app.api.world)),
                backlog=ACCEPTED_MAX,
                ws="none",
                lifespan="on",
                **options,
            )
        )
        self._task: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """The address of the server."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.has_tls else 'http'}://{host}:{self.port}"

    async def begin(self) -> None:
        """Start to answer requests."""
        # Requests get no context of the program around: a span that is open there is not theirs.
        serving = self._server.serve(sockets=[self._socket])
        self._task = asyncio.create_task(serving, name="http server", context=Context())
        while not self._server.started and not self._task.done():  # noqa: ASYNC110 - uvicorn tells nobody
            await asyncio.sleep(0.01)
        if self._task.done():
            self._task.result()
            raise UsageError("the server did not start; its log says why")
        self._socket.listen(BACKLOG)  # the event loop accepts fewer in one turn, but more may wait for it

    async def stop(self) -> None:
        """Answer the requests that are under way, end streams, and close."""
        await self._app.api.stop()
        self._server.should_exit = True
        if self._task is not None:
            await self._task


def _protocol(counted: Connections) -> type[BoundedProtocol]:
    """Return the class of the connections of one server."""
    return type("CountedProtocol", (BoundedProtocol,), {"open_connections": counted})


class _Quiet(uvicorn.Server):
    """A server that leaves signals to the process."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def is_loopback(host: str) -> bool:
    """Return True for a host that only this machine can reach."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _check_proxies(proxies: tuple[str, ...]) -> None:
    for one in proxies:
        try:
            ip_network(one, strict=False)
        except ValueError:
            raise UsageError(
                f"--proxy {clipped(one)} is neither an address nor a network: write 10.0.0.5 or 10.0.0.0/8"
            ) from None


def _check_certificate(certificate: str, key: str) -> None:
    """Refuse files that cannot be used, and a private key that has a password: nobody is there to type it."""
    for option, file in (("--tls-cert", certificate), ("--tls-key", key)):
        try:
            with open(file, "rb"):  # noqa: PTH123 - a name from the command line; it may be anything
                pass
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise UsageError(f"{option} {clipped(file)} cannot be read: {why}") from None
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password="")
    except ssl.SSLError as error:
        raise UsageError(
            f"--tls-cert {clipped(certificate)} and --tls-key {clipped(key)} are no PEM files of a "
            f"certificate and its key without a password: {error.reason or error}"
        ) from None


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host.strip("[]"), port))
    except OSError as error:
        found.close()
        why = error.strerror or str(error)
        raise UsageError(f"cannot listen on {host}:{port}: {why}; choose another with --port") from None
    found.setblocking(False)  # noqa: FBT003 - the socket's own interface
    return found
