"""The protocol of Postgres, for a proxy that lets a write through and drops its answer.

The proxy reads the protocol: the names of prepared statements, the statement that is executed, and the
message by which the server says that it is ready again. At that moment the write is committed.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict

from verify.outages.lost_answers import Cutter, Link, proxy_at

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

    is_shared = False

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


@asynccontextmanager
async def proxy(dsn: str, folder: Path, cutter: Cutter) -> AsyncIterator[str]:
    """Run the proxy inside the block; return the DSN of the database through its socket in `folder`."""
    to = conninfo_to_dict(dsn)
    host, port = str(to.get("host") or "127.0.0.1"), int(to.get("port") or PORT)

    async def connected() -> Link:
        if host.startswith("/"):
            return await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}")
        return await asyncio.open_connection(host, port)

    async with proxy_at(folder / f".s.PGSQL.{PORT}", connected, SessionState, cutter):
        yield f"postgresql://{to.get('user') or 'postgres'}@/{to['dbname']}?host={folder}&port={PORT}"
