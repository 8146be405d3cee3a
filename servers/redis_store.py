"""Redis stores for tests: one server and one cluster a process, a namespace for each test, with the test's
clock."""

from __future__ import annotations

import atexit
import itertools
from collections.abc import Callable
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import redis

from holdfast.stores.redis import RedisStore
from servers.plugin import started
from servers.redis import NamedRedis, Redis, forget, redis_for_tests
from servers.redis_cluster import Cluster, running_cluster

_servers = ExitStack()
atexit.register(_servers.close)
_numbers = itertools.count(1)


@cache
def server() -> Redis | NamedRedis:
    """Return the server of this process."""
    return _servers.enter_context(started(redis_for_tests()))


@cache
def cluster() -> Cluster:
    """Return the cluster of this process."""
    return _servers.enter_context(started(running_cluster()))


class EmptiedStore(RedisStore):
    """A store whose namespace is removed when it is closed."""

    def client(self) -> redis.Redis:
        """Return a connection to the server of the namespace."""
        return server().client()

    async def close(self) -> None:
        was_open = self._connections.is_open
        await super().close()
        if was_open:
            with self.client() as client:
                forget(client, f"prefix={self.address.prefix}&")


class ClusterStore(EmptiedStore):
    """A store in a cluster. Each namespace is on one of the nodes."""

    def client(self) -> redis.Redis:
        return cluster().client(self.address.prefix)


def make(
    clock: Callable[[], int] | None, _folder: Path | None = None, kind: type[EmptiedStore] = EmptiedStore
) -> RedisStore:
    """Return a store with a namespace of its own."""
    return kind(server().url(f"t{next(_numbers)}"), clock)


def make_in_cluster(clock: Callable[[], int] | None, _folder: Path | None = None) -> RedisStore:
    """Return a store with a namespace of its own in the cluster."""
    return ClusterStore(cluster().url(f"t{next(_numbers)}"), clock)
