"""A switch in front of servers: connections to its address go to the server that it points to at that time.

Each process can be moved to another server by itself, as clients learn of a failover one after the other.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

BLOCK = 65536


class Switch:
    """The address of a server that may change."""

    def __init__(self, target: Path | int | None) -> None:
        self.target = target  # a unix socket, or a port of the loopback; None: nobody answers
        self._stays: dict[int, Path | int] = {}  # processes that still go to an earlier server
        self._links: dict[asyncio.Task[None], int] = {}  # and the process at the other end

    @property
    def processes(self) -> set[int]:
        """Return the processes that are connected."""
        return set(self._links.values())

    def point(self, target: Path | int | None, *, at_once: bool = True) -> None:
        """Go to another server from now on: at once, or each connected process when it is moved."""
        if at_once:
            self._stays.clear()
        elif self.target is not None:
            self._stays |= dict.fromkeys(self.processes, self.target)
        self.target = target
        if at_once:
            self.cut()

    def move(self, process: int) -> None:
        """Close the connections of a process: its next ones go to the new server."""
        self._stays.pop(process, None)
        for task, pid in self._links.items():
            if pid == process:
                task.cancel()

    def cut(self) -> None:
        """Close all connections."""
        for task in self._links:
            task.cancel()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection in both directions, until one of its ends closes it."""
        task, pid = asyncio.current_task(), _process(writer)
        assert task is not None
        self._links[task] = pid
        try:
            with suppress(OSError, asyncio.CancelledError):
                target = self._stays.get(pid, self.target)
                if target is not None:
                    await _carry((reader, writer), await _connected(target))
        finally:
            writer.transport.abort()
            del self._links[task]


Link = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def _process(writer: asyncio.StreamWriter) -> int:
    """Return the process at the other end of a unix socket; 0 for others."""
    end = writer.get_extra_info("socket")
    if end.family != socket.AF_UNIX:
        return 0
    pid: int = struct.unpack("3i", end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
    return pid


async def _connected(target: Path | int) -> Link:
    if isinstance(target, int):
        return await asyncio.open_connection("127.0.0.1", target)
    return await asyncio.open_unix_connection(target)


async def _carry(here: Link, there: Link) -> None:
    ways = [asyncio.create_task(_copy(here[0], there[1])), asyncio.create_task(_copy(there[0], here[1]))]
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for way in ways:
            way.cancel()
        there[1].transport.abort()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(BLOCK):
            writer.write(data)
            await writer.drain()


@asynccontextmanager
async def switch_at(path: Path, target: Path) -> AsyncIterator[Switch]:
    """Run a switch at a unix socket inside the block."""
    switch = Switch(target)
    server = await asyncio.start_unix_server(switch.accept, path)
    try:
        yield switch
    finally:
        server.close()
        switch.cut()


@asynccontextmanager
async def switch_at_port(target: int) -> AsyncIterator[tuple[Switch, int]]:
    """Run a switch at a port of the loopback inside the block, and return the port."""
    switch = Switch(target)
    server = await asyncio.start_server(switch.accept, "127.0.0.1", 0)
    try:
        yield switch, server.sockets[0].getsockname()[1]
    finally:
        server.close()
        switch.cut()
