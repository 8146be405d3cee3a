"""A server over HTTP in virtual time: a play stands still while the server answers.

The verbs of a worker are real requests to a real server, in a thread of its own. All other verbs of a test
reach the server's store directly.
"""

from __future__ import annotations

import asyncio
import threading
from contextvars import Context
from datetime import UTC, datetime

from holdfast.client.operators import Caller
from holdfast.client.work.link import Link
from holdfast.client.work.store import RemoteStore
from holdfast.contract.forwarding import Forwards
from holdfast.engine.app.client import StoreClient
from holdfast.http.server import asgi
from holdfast.http.serving import Server
from holdfast.records import Traits
from holdfast.stores.sqlite import SqliteStore
from holdfast.world import RealWorld

ANSWER_SECONDS = 60.0
# The verbs of a worker about runs: they go over HTTP.
REMOTE = frozenset(
    {
        "claim",
        "load",
        "commit",
        "transact",
        "renew",
        "lease_states",
        "show_running",
        "present",
        "absent",
        "publish",
        "held_record",
    }
)


OPERATOR = Caller(
    key="", name="", tenant="default", scopes=("work", "operator"), now=datetime(2026, 1, 1, tzinfo=UTC)
)


class Sessions:
    """One server for all tests, in a thread. Each test has an API of its own behind it."""

    def __init__(self):
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True, name="remote-sessions")
        self._thread.start()
        self.api = None
        self.server = None
        self.ask(self._begun())
        self.link = VirtualLink(RemoteStore(self.url).client.transport, self)
        self.link.tenant = "*"

    async def _begun(self):
        first = asgi(StoreClient(SqliteStore(":memory:", inline=True), RealWorld()), open=True)
        first.api.stopping = True
        self.server = Server(_Switch(self, first), "127.0.0.1", 0)
        await self.server.begin()

    @property
    def url(self):
        return self.server.url

    def ask(self, work):
        """Wait for an answer: nothing else runs meanwhile, and no virtual time passes."""
        return Context().run(asyncio.run_coroutine_threadsafe, work, self.loop).result(ANSWER_SECONDS)

    def serve(self, store):
        """Serve this store from now on. The store has no other keeper than those of the test."""
        self.api = asgi(StoreClient(store, RealWorld()), open=True, ring=lambda: None)
        self.api.api._upkeep = self  # no upkeep, which would use the store from this thread at any time

    async def rest(self):
        """Wait until the server does nothing more."""
        tasks = self.api.api.work.commits._tasks
        while tasks:
            await asyncio.wait(tasks)

    def close(self):
        self.ask(self.link.end())
        self.ask(self.server.stop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


class _Switch:
    """The ASGI application of the server: that of the present test."""

    def __init__(self, sessions, first):
        self._sessions, self.api = sessions, first.api

    async def __call__(self, scope, receive, send):
        found = self._sessions.api
        if scope["type"] != "http" or found is None:
            if scope["type"] == "lifespan":
                await _lived(receive, send)
            return
        await found(scope, receive, send)


async def _lived(receive, send):
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


class VirtualLink(Link):
    """Requests whose answers take no virtual time."""

    def __init__(self, transport, sessions):
        super().__init__(transport)
        self._sessions = sessions

    async def ask(self, *args, **kwargs):
        await asyncio.sleep(0)  # other tasks get a turn, as with any server
        return self._sessions.ask(self._asked(*args, **kwargs))

    async def _asked(self, *args, **kwargs):
        try:
            return await super().ask(*args, **kwargs)
        finally:
            await self._sessions.rest()

    async def close(self):
        return  # it serves the next test too

    async def end(self):
        await super().close()


class BehindServer(Forwards):
    """A store behind a server: workers reach it over HTTP, everybody else directly."""

    traits = Traits(names_children=True)

    def __init__(self, world, sessions):
        self._clock = world.now
        self.inner = SqliteStore(":memory:", clock=world.now, inline=True)
        sessions.serve(self.inner)
        self._remote = RemoteStore(sessions.url, world=world)
        self._remote.link = sessions.link
        self._remote.who = OPERATOR

    async def _forward(self, verb, args, kwargs):
        self._clock()  # binds the clock to the event loop of the play, not to that of the server
        return await getattr(self._remote if verb in REMOTE else self.inner, verb)(*args, **kwargs)

    def _forward_blocking(self, verb, args, kwargs):
        return getattr(self._remote if verb in REMOTE else self.inner, verb)(*args, **kwargs)

    async def held_record(self, lease):
        return await self._remote.held_record(lease)

    def __getattr__(self, name):
        if name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)
