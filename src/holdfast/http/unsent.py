"""The bytes of large answers that their clients have not taken yet: bounded for the whole process.

A large answer is sent in parts, and each part waits until the client has taken the one before. Until the last
part is sent, the whole answer is in memory and counts; once, if many clients get the same one. Beyond the
bound the server drops connections: of the tenant with the most bytes, the one that waits longest. Readers of
other tenants lose nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from holdfast.world import World

from .parsing import LARGE_BYTES
from .streams import ABORT, LAST_SECONDS, disconnected

log = logging.getLogger("holdfast.http")

UNSENT_BYTES = 256 * 2**20  # of all large answers in the process
STOP_SECONDS = 4.0  # a client may take the rest of its answer for so long when the server stops
TELL_SECONDS = 60.0  # between two lines about dropped answers


class Waiting:
    """One large answer, while it is sent."""

    def __init__(self, tenant: str, body: bytes, scope: Scope) -> None:
        self.tenant, self.body, self.is_dropped = tenant, body, False
        self._abort = scope.get("extensions", {}).get(ABORT)
        self._task: asyncio.Task[None] | None = None if self._abort else asyncio.current_task()

    def drop(self) -> None:
        """End the answer, and its connection. Another server ends a connection whose answer has no end."""
        self.is_dropped = True
        if self._abort is not None:
            self._abort["call"]()
        elif self._task is not None:
            self._task.cancel()

    def is_cancelled_here(self) -> bool:
        """Return True when `drop` has cancelled the task, and nobody else; the task may go on."""
        return self.is_dropped and self._task is not None and not self._task.uncancel()


class Unsent:
    """Sends answers, and counts the bytes of the large ones."""

    def __init__(self, world: World, most: int = UNSENT_BYTES) -> None:
        self.most, self._world = most, world
        self.waiting: dict[Waiting, None] = {}  # the oldest first
        self._holders: Counter[tuple[str, int]] = Counter()  # of each body in memory, by tenant and identity
        self._of_tenants: Counter[str] = Counter()
        self._dropped, self._told_at = 0, float("-inf")

    @property
    def size(self) -> int:
        """The bytes that are counted now."""
        return self._of_tenants.total()

    async def answer(
        self, response: Response, tenant: str, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Send an answer to a client of this tenant. An empty one stands for clients without a key."""
        body = getattr(response, "body", b"")  # a stream has none: it sends each of its parts by `part`
        if len(body) <= LARGE_BYTES:
            await response(scope, receive, send)
            return
        with self._counted(tenant, body, scope) as one:
            try:
                await response(scope, receive, self._in_parts(one, send))
                if one.is_dropped:
                    await asyncio.sleep(0)  # `drop` may have cancelled this very task
                    with suppress(TimeoutError):
                        async with asyncio.timeout(LAST_SECONDS):
                            await disconnected(receive)
            except asyncio.CancelledError:
                if not one.is_cancelled_here():
                    raise

    async def part(self, message: Message, tenant: str, scope: Scope, send: Send) -> None:
        """Send one part of a stream."""
        body = message["body"]
        if len(body) <= LARGE_BYTES:
            await send(message)
            return
        with self._counted(tenant, body, scope) as one:
            await self._in_parts(one, send)(message)

    @contextmanager
    def _counted(self, tenant: str, body: bytes, scope: Scope) -> Iterator[Waiting]:
        one, held = Waiting(tenant, body, scope), (tenant, id(body))
        self.waiting[one] = None
        if not self._holders[held]:
            self._of_tenants[tenant] += len(body)
        self._holders[held] += 1
        self._make_room()
        try:
            yield one
        finally:
            self._forget(one)

    def _in_parts(self, one: Waiting, send: Send) -> Send:
        async def in_parts(message: Message) -> None:
            body, more = message.get("body", b""), message.get("more_body", False)
            if len(body) <= LARGE_BYTES:
                if not one.is_dropped:
                    await send(message)
                return
            for at in range(0, len(body), LARGE_BYTES):
                if one.is_dropped:
                    return
                part, end = body[at : at + LARGE_BYTES], at + LARGE_BYTES
                await send({**message, "body": part, "more_body": more or end < len(body)})
                await asyncio.sleep(0)  # the event loop may have to tell that the client has gone

        return in_parts

    def _forget(self, one: Waiting) -> None:
        if one not in self.waiting:
            return
        del self.waiting[one]
        held = one.tenant, id(one.body)
        self._holders[held] -= 1
        if self._holders[held]:
            return
        del self._holders[held]
        self._of_tenants[one.tenant] -= len(one.body)
        if not self._of_tenants[one.tenant]:
            del self._of_tenants[one.tenant]

    def _make_room(self) -> None:
        """Drop answers until the rest is below the bound."""
        while self.size > self.most:
            ((tenant, _),) = self._of_tenants.most_common(1)
            oldest = next(one for one in self.waiting if one.tenant == tenant)
            self._forget(oldest)
            oldest.drop()
            self._dropped += 1
        now = self._world.monotonic()
        if self._dropped and now >= self._told_at + TELL_SECONDS:
            log.warning(
                "%d connections were dropped: clients left %d bytes of answers untaken",
                self._dropped,
                self.most,
            )
            self._dropped, self._told_at = 0, now

    def stop(self) -> None:
        """Drop what is left of the answers in a few seconds: the server stops."""
        if self.waiting:
            self._world.linger(STOP_SECONDS, self._drop_all)

    def _drop_all(self) -> None:
        for one in list(self.waiting):
            one.drop()
