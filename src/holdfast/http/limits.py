"""Limits on streams and long polls: for each key, each tenant, and the whole process."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from .access import Actor
from .problems import Code, Refusal

STREAMS_MAX, STREAMS_PER_TENANT, STREAMS_PER_KEY = 5_000, 2_500, 1_000


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
