"""A proxy between a store and its server that can record, delay and cut connections."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from urllib.parse import urlsplit

from psycopg.conninfo import conninfo_to_dict


class Proxy:
    """Use `with Proxy(dsn) as proxy:` and open the store on `proxy.url(…)`. The proxy has its own thread and
    loop.
    """

    def __init__(self, dsn):
        self._to = conninfo_to_dict(dsn)
        self._database = urlsplit(dsn).path
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._writers = set()
        self._tasks = set()
        self._open = None
        self.silent = False  # takes everything and answers nothing, like a host without power
        self.accepted = 0
        self.sent = []  # bytes from the store, one piece for each time that it waited for the server
        self._last = None

    def __enter__(self):
        self._thread.start()
        self._server = self._ask(self._begin(0))
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_):
        self._ask(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def url(self, options="allow_fsync_off=1"):
        user = self._to.get("user", "postgres")
        return f"postgresql://{user}@127.0.0.1:{self.port}{self._database}?{options}&sslmode=disable"

    def cut(self):
        """Cut every connection."""
        self._ask(self._cut())

    def refuse(self):
        """Refuse new connections, and cut the old ones."""
        self._ask(self._refuse())

    def accept(self):
        """Accept connections again."""
        self._server = self._ask(self._begin(self.port))

    def _ask(self, work):
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _begin(self, port):
        return await asyncio.start_server(self._accepted, "127.0.0.1", port)

    async def _end(self):
        await self._refuse()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _cut(self):
        for writer in self._writers:
            writer.transport.abort()

    async def _refuse(self):
        self._server.close()
        await self._cut()

    async def _accepted(self, reader, writer):
        self.accepted += 1
        task = asyncio.current_task()
        self._tasks.add(task)
        try:
            there = await self._upstream()
            self._writers |= {writer, there[1]}
            await asyncio.wait(
                [
                    asyncio.create_task(self._pass(reader, there[1], "store")),
                    asyncio.create_task(self._pass(there[0], writer, "server")),
                ],
                return_when=asyncio.FIRST_COMPLETED,
            )
            there[1].transport.abort()
            writer.transport.abort()
        finally:
            self._tasks.discard(task)

    async def _upstream(self):
        host, port = str(self._to.get("host") or "127.0.0.1"), int(self._to.get("port") or 5432)
        if host.startswith("/"):
            return await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}")
        return await asyncio.open_connection(host, port)

    async def _pass(self, reader, writer, who):
        with suppress(OSError, asyncio.CancelledError):
            while data := await reader.read(65536):
                if self.silent:
                    continue
                self._note(data, who)
                writer.write(data)

    def _note(self, data, who):
        if who == "store":
            if self._last == "store":
                self.sent[-1] += data
            else:
                self.sent.append(data)
        self._last = who
