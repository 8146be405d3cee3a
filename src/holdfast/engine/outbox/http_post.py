"""HTTP POST to a webhook. Anyone may have chosen the URL: the post must not reach our own network.

The name is resolved once, every address of it is checked, and the connection goes to a checked address, so
that a second answer of the name server cannot lead elsewhere. Redirects are not followed, and proxies of the
environment are not used. Only the status and Retry-After are read from the answer, within limits of lines and
bytes.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property
from typing import Any, NamedTuple
from urllib.parse import SplitResult, urlsplit

from holdfast.errors import HoldfastError, UsageError
from holdfast.world import World

from .addresses import is_public

POST_SECONDS = 20.0  # limit for everything: name, connection, request, answer
CONNECT_SECONDS = 3.0  # limit for one address, if there is another
DRAIN_SECONDS = 0.5
GOODBYE_SECONDS = 2.0  # limit for the end of a TLS connection
LINE_MAX = 8192  # bytes of the status line, of one header, and of the body that is read
HEAD_MAX = 16384  # bytes of all lines
LINES_MAX = 100  # lines of all answers to one post
INTERIM_MAX = 5  # interim answers such as 103 before the final one
PATH_SHOWN = 5  # characters of a path
PORTS = {"http": 80, "https": 443}

_NOT_PUBLIC = "is not public: say allow_private if it is in your own network"

Resolve = Callable[[str, int], list[str]]


class Unpostable(HoldfastError):
    """The post failed. `kind` is the reason in one word; the text contains nothing of the answer."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class HttpAnswer(NamedTuple):
    """The answer of the receiver."""

    status: int
    retry_seconds: float | None = None  # delay from Retry-After, if there is one


def check_url(url: str, *, allow_private: bool) -> str:
    """Check a URL and return it. An error never contains the URL: its path or query may be a password."""
    try:
        parts = urlsplit(url)
    except ValueError:
        wrong = "cannot be read: write https://example.com/path"
    except (AttributeError, TypeError):
        wrong = "is no text"
    else:
        wrong = _wrong(url, parts, allow_private=allow_private) or _wrong_host(parts)
        if not wrong and not allow_private and not _may_be_public(parts.hostname or ""):
            wrong = f"names an address that {_NOT_PUBLIC}"
    if wrong:
        raise UsageError(f"the webhook's URL {wrong}")
    return url


def _wrong_host(parts: SplitResult) -> str:
    try:
        port = parts.port
    except ValueError:
        port = 0
    if port == 0:
        return "names a port that there is not: a number from 1 to 65535, or leave it out"
    return "" if parts.hostname else "names no host: write https://example.com/path"


def _may_be_public(host: str) -> bool:
    """Return False for a private address and for localhost. Other names are checked when they are
    resolved.
    """
    if host.rstrip(".").lower().rpartition(".")[2] == "localhost":
        return False
    try:
        return is_public(ipaddress.ip_address(host))
    except ValueError:
        return True


def _wrong(url: str, parts: SplitResult, *, allow_private: bool) -> str:
    if parts.scheme not in PORTS:
        return "is neither https:// nor http://"
    if parts.username is not None or parts.password is not None:
        return "holds a user name or a password: leave them out, the signature tells who is calling"
    if not url.isascii() or not url.isprintable() or " " in url:
        return "holds characters that no URL has: encode them (%20), and a host as xn--…"
    if parts.fragment:
        return "has a fragment (#…), which is never sent: leave it out"
    if parts.scheme == "http" and not allow_private:
        return (
            "is http://, which anyone on the way can read: use https://; in your own network, allow_private"
        )
    return ""


def shown_url(url: str) -> str:
    """Return a URL for logs and lists: without the query and most of the path, which may be a password."""
    parts = urlsplit(url)
    hides = len(parts.path) > PATH_SHOWN or parts.query
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path[:PATH_SHOWN]}{'…' * bool(hides)}"


def resolve(host: str, port: int) -> list[str]:
    """Return all addresses of a name."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class Poster:
    """A client that posts, each time on a new connection."""

    def __init__(self, world: World, resolver: Resolve = resolve, tls: ssl.SSLContext | None = None) -> None:
        self._world, self._resolve, self._given = world, resolver, tls

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        return self._given or ssl.create_default_context()

    async def post(
        self, url: str, headers: Mapping[str, str], body: bytes, *, allow_private: bool
    ) -> HttpAnswer:
        """Post and return the answer; Unpostable when there is none."""
        parts = urlsplit(check_url(url, allow_private=allow_private))
        try:
            async with asyncio.timeout(POST_SECONDS):
                return await self._posted(parts, headers, body, allow_private=allow_private)
        except TimeoutError:
            raise Unpostable("timeout", f"no answer within {POST_SECONDS:g} s") from None
        except ssl.SSLCertVerificationError as error:
            raise Unpostable("tls", f"its certificate is not valid: {error.verify_message}") from None
        except (OSError, EOFError, ValueError) as error:
            raise Unpostable("connection", f"{type(error).__name__}: {_said(error)}") from None

    async def _posted(
        self, parts: SplitResult, headers: Mapping[str, str], body: bytes, *, allow_private: bool
    ) -> HttpAnswer:
        addresses = await self._addresses(parts, allow_private=allow_private)
        reader, writer = await self._connected(parts, addresses)
        answer = None
        try:
            writer.write(_request(parts, headers, body))
            await writer.drain()
            answer = await _answer(reader)
            return answer
        finally:
            # A receiver that never reads would keep the connection and the unsent bytes for ever.
            if answer is None or writer.transport.get_write_buffer_size():
                writer.transport.abort()
            else:
                writer.close()

    async def _addresses(self, parts: SplitResult, *, allow_private: bool) -> list[str]:
        host, port = parts.hostname or "", parts.port or PORTS[parts.scheme]
        found = await self._world.thread(self._resolve, host, port, separate=True)
        refused = [one for one in found if not allow_private and not is_public(ipaddress.ip_address(one))]
        if refused:
            raise Unpostable("refused", f"{host} has the address {refused[0]}, which {_NOT_PUBLIC}")
        if not found:
            raise Unpostable("refused", f"{host} has no address")
        return found

    async def _connected(
        self, parts: SplitResult, addresses: list[str]
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        port, secure = parts.port or PORTS[parts.scheme], self._secure(parts)
        for number, address in enumerate(addresses):
            limit = connect_seconds(len(addresses), number)
            try:
                async with asyncio.timeout(limit):
                    # The checked address, not the name: the name server is not asked again.
                    return await asyncio.open_connection(address, port, limit=LINE_MAX, **secure)
            except ssl.SSLError:
                raise
            except OSError:  # TimeoutError is an OSError too
                if limit is None:
                    raise
        raise AssertionError(addresses)

    def _secure(self, parts: SplitResult) -> dict[str, Any]:
        if parts.scheme != "https":
            return {}
        return {
            "ssl": self._tls,
            "server_hostname": parts.hostname,
            "ssl_shutdown_timeout": GOODBYE_SECONDS,
        }


def connect_seconds(count: int, number: int) -> float | None:
    """Return the limit of one of `count` addresses; None for the last one, which has the remaining time."""
    if number == count - 1:
        return None
    return min(CONNECT_SECONDS, (POST_SECONDS - CONNECT_SECONDS) / (count - 1))


def _request(parts: SplitResult, headers: Mapping[str, str], body: bytes) -> bytes:
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    lines = [f"POST {target} HTTP/1.1", f"Host: {parts.netloc}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    lines += [f"Content-Length: {len(body)}", "Connection: close", "", ""]
    return "\r\n".join(lines).encode("ascii") + body


class _Head:
    """Reader of the lines before a body. A sender may never stop: lines and bytes are limited."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader, self._lines, self._bytes = reader, LINES_MAX, HEAD_MAX

    async def line(self) -> bytes:
        line = await self._reader.readline()
        self._lines, self._bytes = self._lines - 1, self._bytes - len(line)
        if self._lines < 0 or self._bytes < 0:
            raise ValueError("there is no end of headers")
        if not line.endswith(b"\n"):
            raise EOFError("it closed the connection without an answer")
        return line.rstrip(b"\r\n")

    async def status(self) -> int:
        """Read the first final status."""
        for _ in range(INTERIM_MAX):
            version, _, rest = (await self.line()).partition(b" ")
            if not version.startswith(b"HTTP/1.") or not rest[:3].isdigit():
                raise ValueError("it does not speak HTTP/1.1")
            status = int(rest[:3])
            if status >= 200:
                return status
            while await self.line():
                pass
        raise ValueError("it announces an answer again and again, and gives none")

    async def retry_seconds(self) -> float | None:
        found = None
        while line := await self.line():
            name, _, value = line.partition(b":")
            if name.lower() == b"retry-after" and value.strip().isdigit():
                found = float(value)
        return found


async def _answer(reader: asyncio.StreamReader) -> HttpAnswer:
    head = _Head(reader)
    answer = HttpAnswer(await head.status())
    # Errors from here on change nothing: the status is known.
    with suppress(OSError, EOFError, ValueError, TimeoutError):
        async with asyncio.timeout(DRAIN_SECONDS):
            answer = answer._replace(retry_seconds=await head.retry_seconds())
            await reader.read(LINE_MAX)  # so that a receiver that is still writing is not cut off
    return answer


def _said(error: BaseException) -> str:
    """Return the system's text about an error, with nothing that the receiver has sent."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or "no reason given"
