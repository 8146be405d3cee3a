"""`RemoteStore`: the store of a worker that reaches a server over HTTP, and not the database.

The server does everything that needs the store itself: chores, delivery of events, relaying of messages,
sealing of values. Its clock counts: times of a lease are milliseconds since its claim, on both sides, so the
clocks of the two machines are never compared.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from holdfast.client.operators import Caller
from holdfast.errors import HoldfastError, NotAllowed, Unavailable
from holdfast.escaping import safe_logger
from holdfast.records import Definition, Presence, Traits
from holdfast.records.traits import HINTED_POLL_SECONDS
from holdfast.wire.answers import Registered
from holdfast.wire.requests import LeaveRequest
from holdfast.world import RealWorld, World

from . import sending
from .claiming import ClaimVerbs
from .holding import release
from .link import Link
from .verbs import WorkClient

log = safe_logger("holdfast.client")

KEY = "HOLDFAST_KEY"  # the variable with the API key
OPEN_SECONDS, AGAIN_SECONDS = 3.0, 0.1  # a server that is away at the start: how long, and between tries
WRITERS = 2  # requests with commits that are under way at once: one is kept for small items


class Address(NamedTuple):
    """The address of the server, for people and logs."""

    shown: str


class RemoteStore(ClaimVerbs):
    """A store over HTTP: `url` of the server, and an API key with the scope `work`, else from HOLDFAST_KEY.

    A worker can do everything with it, except `ctx.transaction` and functions as sinks of messages. Starts,
    events, reads and moves of people go through the HTTP API, if the key has the scopes for them.
    """

    traits = Traits(writers=WRITERS, poll_seconds=HINTED_POLL_SECONDS, served=True, names_children=True)

    def __init__(self, url: str, key: str | None = None, world: World | None = None) -> None:
        super().__init__()
        requests = logging.getLogger("httpx2")
        if requests.level == logging.NOTSET:  # a worker sends many requests: a line for each is no news
            requests.setLevel(logging.WARNING)
        self.world = world or RealWorld()
        self.client = WorkClient(url, key=key or os.environ.get(KEY) or None)
        self.address, self.who = Address(self.client.url), None
        self.link = Link(self.client.transport)
        self._definitions: dict[str, Definition] = {}  # the workflows of this process
        self._is_unpublished = False  # True: they are unknown to others, and the log is to say so

    def __repr__(self) -> str:
        """Return a short text for logs, without the key."""
        return f"<store at {self.address.shown}>"

    async def open(self) -> None:
        """Check that the server answers and accepts the key. A second call does nothing.

        A server that cannot be reached is asked again for a few seconds: it may be starting, too.
        """
        if self.who is None:
            who = await self._caller()
            self.link.tenant = "*" if who.is_operator else None
            self.who = who

    async def _caller(self) -> Caller:
        until = self.world.monotonic() + OPEN_SECONDS
        while True:
            try:
                return await self.client.open()
            except Unavailable:
                if self.world.monotonic() >= until:
                    raise
                await asyncio.sleep(AGAIN_SECONDS)

    async def close(self) -> None:
        """End open requests and close the connections."""
        await self._end_claims()
        self.who = None
        await self.link.close()

    async def present(self, presence: Presence) -> None:
        """Register a worker."""
        await self._register(presence, ())
        if self._is_unpublished:
            self._is_unpublished = False
            log.info("the workflows of this worker are not published: its API key is not an operator's")

    async def _register(self, presence: Presence, definitions: Sequence[Definition]) -> Registered:
        body = sending.registration(presence, definitions)
        tenant = self.checked_tenant(presence.tenants)
        return await self.link.ask("register_worker", body, Registered, tenant=tenant)

    async def absent(self, worker: str) -> None:
        """Say that a worker has gone. Runs that a claim has brought too late are given back."""
        self._end_claim(worker)
        with suppress(HoldfastError):
            strays = await self.strays(worker)
            if strays:
                await self.commit([release(*one) for one in strays])
        with suppress(NotAllowed):
            await self.link.ask("leave_worker", LeaveRequest(worker=worker), type(None))

    async def publish(self, definitions: Sequence[Definition]) -> None:
        """Publish workflows. Only the key of an operator may; with another one they stay unknown to others.

        Workflows are published by workers that register: so this process registers as one, and leaves.
        """
        new = [one for one in definitions if self._definitions.get(one.type) != one]
        if not new:
            return
        if self.who is not None and not self.who.is_operator:
            self._is_unpublished = True
        else:
            name = f"publish:{self.world.place()}"
            await self._register(Presence(worker=name, types=()), new)
            await self.link.ask("leave_worker", LeaveRequest(worker=name), type(None))
        self._definitions.update((one.type, one) for one in new)

    async def definitions(self, *, schemas: bool = False) -> Sequence[Definition]:
        """Return the published workflows; with a key that may not read them, those of this process."""
        try:
            return await self.client.definitions(schemas=schemas)
        except NotAllowed:
            return [self._definitions[type_] for type_ in sorted(self._definitions)]
