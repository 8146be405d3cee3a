"""Limits on streams, long polls and large bodies: for each key, each tenant, and the whole process."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from .access import Actor
from .parsing import LARGE_BYTES, Incoming
from .problems import Code, Refusal

STREAMS_MAX, STREAMS_PER_TENANT, STREAMS_PER_KEY = 5_000, 2_500, 1_000
LARGE_BODIES_BYTES = 256 * 2**20  # of all large bodies in the process; one tenant may have half of them


class Streams:
    """Counts open streams and long polls."""

    def __init__(
        self,
        most: int = STREAMS_MAX,
        per_key: int = STREAMS_PER_KEY,
        per_tenant: int = STREAMS_PER_TENANT,
    ) -> None:
        self.most, self.per_key, self.per_tenant = most, per_key, per_tenant
        self._open: Counter[str] = Counter()  # by key
        self._of_tenants: Counter[str] = Counter()
        self._tasks: defaultdict[Actor, set[asyncio.Task[Any]]] = defaultdict(set)

    @property
    def count(self) -> int:
        """The number of open streams and long polls."""
        return self._open.total()

    def take(self, actor: Actor) -> None:
        """Count one more; refuse it when there are too many."""
        for has, most, who in (
            (self.count, self.most, "this server has"),
            (self._of_tenants[actor.tenant], self.per_tenant, "a tenant may have"),
            (self._open[actor.key_id], self.per_key, "a key may have"),
        ):
            if has >= most:
                raise Refusal(Code.STREAMS_LIMIT, f"{who} {most:,} of them", retry_after_seconds=5)
        self._open[actor.key_id] += 1
        self._of_tenants[actor.tenant] += 1

    def give_back(self, actor: Actor) -> None:
        """Count one less."""
        for counted, name in ((self._open, actor.key_id), (self._of_tenants, actor.tenant)):
            counted[name] -= 1
            if not counted[name]:
                del counted[name]

    @contextmanager
    def one(self, actor: Actor) -> Iterator[None]:
        """Count one while the block runs."""
        self.take(actor)
        try:
            yield
        finally:
            self.give_back(actor)

    def stopped(self, actor: Actor, task: asyncio.Task[Any]) -> Callable[[], None]:
        """Let `task` be cancelled when the caller's key is revoked; return the function that undoes this."""
        self._tasks[actor].add(task)

        def undone() -> None:
            self._tasks[actor].discard(task)
            if not self._tasks[actor]:
                del self._tasks[actor]

        return undone

    def watched(self) -> list[Actor]:
        """Return the callers that have open streams."""
        return list(self._tasks)

    def stop(self, actor: Actor) -> None:
        """End the streams of a caller."""
        for task in self._tasks.get(actor, set()):
            task.cancel()


class Counted:
    """The bytes of one large body, as they are counted for its tenant."""

    def __init__(self, of_tenants: Counter[str], tenant: str, size: int) -> None:
        self._of_tenants, self._tenant, self._size = of_tenants, tenant, 0
        self.become(size)

    def become(self, size: int) -> None:
        """Count another number of bytes: a body that did not tell its size was counted as the longest one."""
        counted, tenant = self._of_tenants, self._tenant
        counted[tenant] += size - self._size
        self._size = size
        if not counted[tenant]:
            del counted[tenant]


class LargeBodies:
    """Counts the bytes of large bodies, from before they are read until their requests are answered.

    Without a bound, some hundred slow connections with a large body each would take all memory.
    """

    def __init__(self, most: int = LARGE_BODIES_BYTES) -> None:
        self.most, self.per_tenant = most, most // 2
        self._of_tenants: Counter[str] = Counter()

    @property
    def bytes(self) -> int:
        """The bytes that are counted now."""
        return self._of_tenants.total()

    def of(self, actor: Actor, request: Incoming, longest: int) -> AbstractContextManager[Counted | None]:
        """Count the body of a request while the block runs, if it is large; refuse it when there are too many
        bytes. longest: what a body may have that does not tell its size. It tells it when it has been read,
        so that a short body of a long poll does not count as a large one.
        """
        said = request.table.first.get(b"content-length", b"")
        size = 0 if request.is_complete else min(int(said[:19]), longest) if said.isdigit() else longest
        return self.one(actor.tenant, size) if size > LARGE_BYTES else nullcontext()

    @contextmanager
    def one(self, tenant: str, size: int) -> Iterator[Counted]:
        """Count so many bytes while the block runs; refuse them when there are too many."""
        counted = self._of_tenants
        for has, most, who in (
            (self.bytes, self.most, "this server has"),
            (counted[tenant], self.per_tenant, "this tenant has"),
        ):
            if has and has + size > most:
                detail = f"{who} {has:,} bytes of large bodies under way, and this one has {size:,}"
                raise Refusal(Code.SERVER_FULL, detail, retry_after_seconds=1)
        body = Counted(counted, tenant, size)
        try:
            yield body
        finally:
            body.become(0)
