"""A small HTTP client of experiments: keep-alive requests and event streams. It repeats nothing by itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

ANSWER_SECONDS = 15.0
QUIET_SECONDS = 40.0  # a stream has a comment every 15 s
HEAD_BYTES = 64 * 1024


class BrokenConnection(Exception):
    """The connection was refused or broke before the answer was complete."""


class RefusedStream(Exception):
    """A stream was refused: the status."""


class Answer(NamedTuple):
    """A complete answer."""

    status: int
    body: Any


class Event(NamedTuple):
    """A complete event of a stream. id: empty for the event `end`."""

    name: str
    id: str
    data: Any


class HttpClient:
    """One keep-alive connection to a port on loopback."""

    def __init__(self, port: int, key: str) -> None:
        self._port, self._key = port, key
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """Send a request; return the answer. BrokenConnection."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                reader = await self._sent(method, path, body, headers)
                status, said = await _head(reader)
                text = await reader.readexactly(int(said.get("content-length", "0")))
        except (OSError, EOFError, TimeoutError, asyncio.LimitOverrunError) as error:
            self.close()
            raise BrokenConnection(repr(error)) from None
        except BaseException:
            self.close()
            raise
        return Answer(status, msgspec.json.decode(text) if text else None)

    async def events(self, path: str, after: int | None) -> AsyncIterator[Event]:
        """Yield the events of a stream until it ends. BrokenConnection; 204 is an empty stream."""
        headers = {"accept": "text/event-stream"}
        if after is not None:
            headers["last-event-id"] = str(after)
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                reader = await self._sent("GET", path, None, headers)
                status, _ = await _head(reader)
            if status == 204:
                return
            if status != 200:
                raise RefusedStream(f"{path} was answered with {status}")
            buffer = b""
            while chunk := await self._chunk(reader):
                *whole, buffer = (buffer + chunk).split(b"\n\n")
                for text in whole:
                    if (event := _event(text.decode())) is not None:
                        yield event
        except (OSError, EOFError, TimeoutError, ValueError) as error:
            raise BrokenConnection(repr(error)) from None
        finally:
            self.close()

    async def _chunk(self, reader: asyncio.StreamReader) -> bytes:
        async with asyncio.timeout(QUIET_SECONDS):
            size = int(await reader.readuntil(b"\r\n"), 16)
            return (await reader.readexactly(size + 2))[:-2]

    async def _sent(self, method: str, path: str, body: Any, headers: dict[str, str]) -> asyncio.StreamReader:
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port, limit=1024 * 1024)
        reader, writer = self._streams
        lines = [
            f"{method} {path} HTTP/1.1",
            f"host: 127.0.0.1:{self._port}",
            f"authorization: Bearer {self._key}",
        ]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        text = b"" if body is None else msgspec.json.encode(body)
        if body is not None:
            lines += ["content-type: application/json", f"content-length: {len(text)}"]
        writer.write("\r\n".join([*lines, "", ""]).encode() + text)
        await writer.drain()
        return reader

    def close(self) -> None:
        """Close the connection; the next request makes a new one."""
        if self._streams is not None:
            with suppress(Exception):
                self._streams[1].close()
            self._streams = None


async def _head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    pairs = (line.partition(":") for line in lines[1:] if line)
    return int(lines[0].split()[1]), {name.lower(): value.strip() for name, _, value in pairs}


def _event(text: str) -> Event | None:
    """Return an event; None for a comment or a `retry`."""
    fields = dict(line.split(": ", 1) for line in text.split("\n") if line and not line.startswith(":"))
    if "data" not in fields:
        return None
    return Event(fields.get("event", ""), fields.get("id", ""), msgspec.json.decode(fields["data"]))
