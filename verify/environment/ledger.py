"""The ledger: a record of what really happened, outside the store under test.

A separate process appends one line per entry to a file and answers when the line is synced. Lines that arrive
during a sync share the next one. A process that dies after the answer has left its line.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import msgspec

from .processes import CONTEXT, die_with_parent

OPEN_SECONDS = 30.0


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line.

    effect    a step's function did its work, before it returned
    seen      the workflow's body was given a step's value
    refused   a worker was told that its write changed nothing; `nonce` is the steps in it
    recorded  a commit with this step was applied (only in crashpoints)
    decided   a person is about to decide a gate; `nonce` is the person
    called    a plan's task was called, and told of `amount` waits that are over
    delivered a sink got a message; `nonce` is its id, `step` its key
    emitted   an event for this run was acknowledged
    claimed   a worker was given this run under this fence (only where fences are watched)
    """

    kind: str
    run: str
    step: str = ""
    fence: int = 0
    attempt: int = 0
    pid: int = 0
    nonce: str = ""
    amount: int = 0
    at: int = 0  # microseconds, by the ledger's clock


class AnyLedger(Protocol):
    """A ledger in another process, or in memory."""

    async def write(self, entry: Entry) -> None:
        """Write an entry, and return when it cannot be lost any more."""


class Ledger:
    """A client of the ledger's process. Each entry has its own connection: forks share nothing."""

    def __init__(self, path: str) -> None:
        self.path = path

    async def write(self, entry: Entry) -> None:
        reader, writer = await asyncio.open_unix_connection(self.path)
        try:
            writer.write(msgspec.json.encode(entry) + b"\n")
            if await reader.readline() != b"ok\n":
                raise ConnectionError("the ledger did not answer")
        finally:
            writer.close()

    def write_blocking(self, entry: Entry) -> None:
        """Write an entry without await: for a process that is about to die, and for threads."""
        with socket.socket(socket.AF_UNIX) as link:
            link.connect(self.path)
            link.sendall(msgspec.json.encode(entry) + b"\n")
            if link.recv(8) != b"ok\n":
                raise ConnectionError("the ledger did not answer")


class _Server:
    def __init__(self, file: Path) -> None:
        self._fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._lines: list[bytes] = []
        self._synced: asyncio.Future[None] | None = None
        self._news = asyncio.Event()

    async def greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while line := await reader.readline():
                if not line.endswith(b"\n"):
                    return  # the writer was killed in the middle of the line
                await self._kept(line)
                writer.write(b"ok\n")
        writer.close()

    async def _kept(self, line: bytes) -> None:
        entry = msgspec.json.decode(line, type=Entry)
        stamped = msgspec.structs.replace(entry, at=time.time_ns() // 1000)
        self._lines.append(msgspec.json.encode(stamped) + b"\n")
        if self._synced is None:
            self._synced = asyncio.get_running_loop().create_future()
        self._news.set()
        await self._synced

    async def sync(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            lines, synced = self._lines, self._synced
            self._lines, self._synced = [], None
            await asyncio.to_thread(self._write, b"".join(lines))
            if synced is not None:
                synced.set_result(None)

    def _write(self, block: bytes) -> None:
        os.write(self._fd, block)
        os.fsync(self._fd)


def _serve(path: str, file: str) -> None:
    async def main() -> None:
        server = _Server(Path(file))
        async with await asyncio.start_unix_server(server.greet, path, backlog=1000):
            await server.sync()

    die_with_parent()
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main())


@contextlib.contextmanager
def ledger(folder: Path) -> Iterator[tuple[str, Path]]:
    """Run the ledger's process inside the block; return its socket and its file."""
    path, file = str(folder / "ledger.sock"), folder / "ledger.jsonl"
    process = CONTEXT.Process(target=_serve, args=(path, str(file)), daemon=True)
    process.start()
    try:
        _wait_for(path)
        yield path, file
    finally:
        process.kill()
        process.join()


def _wait_for(path: str) -> None:
    deadline = time.monotonic() + OPEN_SECONDS
    while True:
        with socket.socket(socket.AF_UNIX) as link:
            try:
                link.connect(path)
                return
            except OSError:
                if time.monotonic() > deadline:
                    raise
        time.sleep(0.01)


def read(file: Path) -> list[Entry]:
    """Return all acknowledged entries; an incomplete last line was not acknowledged."""
    if not file.exists():
        return []
    lines = file.read_bytes().split(b"\n")[:-1]
    return [msgspec.json.decode(line, type=Entry) for line in lines]
