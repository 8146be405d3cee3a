"""A proxy in front of a Postgres server that lets a write through and drops its answer.

The proxy reads the protocol: the names of prepared statements, the statement that is executed, and the
message by which the server says that it is ready again. At that moment the write is committed.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict

WRITES = frozenset(
    {"start", "start_together", "commit", "commit_again", "emit_at_once", "deliver_event", "decide"}
)
PORT = 5432
PARSE, BIND, QUERY, READY = b"P", b"B", b"Q", b"Z"
_VERB = re.compile(rb'"\.(\w+)\(')


class Messages:
    """A parser of protocol messages: a letter, a length that includes itself, a body."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[tuple[bytes, bytes]]:
        data = self._rest + data
        at = 0
        while len(data) >= at + 5:
            end = at + 1 + int.from_bytes(data[at + 1 : at + 5], "big")
            if len(data) < end:
                break
            yield data[at : at + 1], data[at + 5 : end]
            at = end
        self._rest = data[at:]


class SessionState:
    """The state of one session: its prepared statements, and the verb that it calls."""

    def __init__(self) -> None:
        self._from_client, self._from_server = Messages(), Messages()
        self._greeted = False
        self._verbs: dict[bytes, str] = {}

    def client_says(self, data: bytes) -> str:
        """Return the verb that the client calls now, if any."""
        verb = ""
        if not self._greeted:
            self._greeted = True  # the first message has no letter, and is sent alone
            return verb
        for letter, body in self._from_client.feed(data):
            if letter == PARSE:
                name, text, *_ = body.split(b"\0", 2)
                found = _VERB.search(text)
                self._verbs[name] = found[1].decode() if found else ""
            elif letter == BIND:
                verb = self._verbs.get(body.split(b"\0", 2)[1], "")
            elif letter == QUERY:
                verb = body.rstrip(b";\0").decode()  # COMMIT, of an explicit transaction
        return verb

    def server_says(self, data: bytes) -> bool:
        """Return True when the server is ready for the next query."""
        return any(letter == READY for letter, _ in self._from_server.feed(data))


class Cutter:
    """The choice of the answers that are lost, up to a number, and whether their connections are closed."""

    def __init__(
        self,
        cuts: int,
        share: float,
        dice: random.Random,
        closes: Sequence[bool] = (False, True),
        verbs: frozenset[str] = WRITES,
    ) -> None:
        self._cuts, self._share, self._dice, self._verbs = cuts, share, dice, verbs
        self._closes = itertools.cycle(closes)
        self.cut: Counter[str] = Counter()
        self.closed = self.silent = 0

    @property
    def count(self) -> int:
        return self.cut.total()

    @property
    def done(self) -> bool:
        return self.count >= self._cuts

    def wants(self, verb: str) -> bool:
        return verb in self._verbs and not self.done and self._dice.random() < self._share

    def closes(self, verb: str) -> bool:
        """Note a lost answer. True: close the connection; False: it stays open, and silent."""
        self.cut[verb] += 1
        closes = next(self._closes)
        self.closed += closes
        self.silent += not closes
        return closes


@asynccontextmanager
async def proxy(dsn: str, folder: Path, cutter: Cutter) -> AsyncIterator[str]:
    """Run the proxy inside the block; return the DSN of the database through its socket in `folder`."""
    to, links = conninfo_to_dict(dsn), set[asyncio.Task[None]]()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        links.add(task)
        try:
            with suppress(OSError, asyncio.CancelledError):
                there = await _connected(str(to.get("host") or "127.0.0.1"), int(to.get("port") or PORT))
                await Connection((reader, writer), there, cutter).carry()
        finally:
            writer.transport.abort()
            links.discard(task)

    server = await asyncio.start_unix_server(accept, folder / f".s.PGSQL.{PORT}")
    try:
        yield f"postgresql://{to.get('user') or 'postgres'}@/{to['dbname']}?host={folder}&port={PORT}"
    finally:
        server.close()
        for task in links:
            task.cancel()
        await asyncio.gather(*links, return_exceptions=True)


Link = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def _connected(host: str, port: int) -> Link:
    if host.startswith("/"):
        return await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}")
    return await asyncio.open_connection(host, port)


class Connection:
    """One connection, in both directions."""

    def __init__(self, here: Link, there: Link, cutter: Cutter) -> None:
        self._here, self._there, self._cutter = here, there, cutter
        self._session = SessionState()
        self._kept = ""  # the verb whose answer is lost
        self._silent = False

    async def carry(self) -> None:
        ways = [asyncio.create_task(self._to_server()), asyncio.create_task(self._to_client())]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            self._there[1].transport.abort()

    async def _to_server(self) -> None:
        with suppress(OSError):
            while data := await self._here[0].read(65536):
                if self._silent:
                    continue
                verb = self._session.client_says(data)
                if self._cutter.wants(verb):
                    self._kept = verb
                self._there[1].write(data)

    async def _to_client(self) -> None:
        with suppress(OSError):
            while data := await self._there[0].read(65536):
                ready = self._session.server_says(data)
                if not self._kept:
                    self._here[1].write(data)
                elif ready and not self._silent:
                    if self._cutter.closes(self._kept):
                        return
                    self._silent = True
