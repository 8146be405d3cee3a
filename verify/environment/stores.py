"""Stores of experiments: a SQLite file in a temporary folder, a new Postgres database, or a Redis namespace.

A server is started for the command and runs until it ends, unless HOLDFAST_TEST_PG_DSN or
HOLDFAST_TEST_REDIS_URL names one.
"""

from __future__ import annotations

import atexit
import itertools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

# Imported for types only: drivers take a quarter of a second to import, and SQLite does not need them.
if TYPE_CHECKING:
    from servers.named import NamedPostgres
    from servers.postgres import Postgres
    from servers.redis import NamedRedis, Redis

SQLITE, POSTGRES, REDIS = "sqlite", "postgres", "redis"


@dataclass
class _Server:
    """The servers of a command: each is started once for all its experiments."""

    version: int | None = None
    server: Postgres | NamedPostgres | None = None
    redis: Redis | NamedRedis | None = None
    stack: ExitStack = field(default_factory=ExitStack)


_shared = _Server()
_numbers = itertools.count(1)


def choose_version(version: int | None) -> None:
    """Choose the major version of all servers that are started from now on."""
    if version != _shared.version:
        _shared.stack.close()
        _shared.server = _shared.redis = None
    _shared.version = version


def chosen_version() -> int | None:
    return _shared.version


def server() -> Postgres | NamedPostgres:
    """Return the shared server, started at the first call; without fsync, because nothing kills it."""
    from servers.postgres import postgres_for_tests

    if _shared.server is None:
        atexit.register(_shared.stack.close)
        _shared.server = _shared.stack.enter_context(postgres_for_tests(_shared.version))
    return _shared.server


@contextmanager
def use_server(running: Postgres | NamedPostgres) -> Iterator[None]:
    """Use a server that the caller has started, inside the block."""
    before, _shared.server = _shared.server, running
    try:
        yield
    finally:
        _shared.server = before


@contextmanager
def database(of: Postgres | NamedPostgres | None = None) -> Iterator[str]:
    """Make a database, and return its name; it is dropped at the end, with its sessions."""
    running, name = of or server(), f"verify{next(_numbers)}"
    running.create_database(name)
    try:
        yield name
    finally:
        running.drop_database(name)


def redis_server() -> Redis | NamedRedis:
    """Return the shared Redis server, started at the first call. It writes every change to its log before it
    answers; the log is in memory, because nothing kills this server."""
    from servers.redis import redis_for_tests

    if _shared.redis is None:
        atexit.register(_shared.stack.close)
        _shared.redis = _shared.stack.enter_context(redis_for_tests())
    return _shared.redis


@contextmanager
def use_redis_server(running: Redis | NamedRedis) -> Iterator[None]:
    """Use a Redis server that the caller has started, inside the block."""
    before, _shared.redis = _shared.redis, running
    try:
        yield
    finally:
        _shared.redis = before


@contextmanager
def namespace() -> Iterator[str]:
    """Return the URL of a new namespace of the shared Redis server; its keys are removed at the end."""
    from servers.redis import forget

    url = redis_server().url(f"verify{next(_numbers)}")
    try:
        yield url
    finally:
        with redis_server().client() as client:
            forget(client, url)


@contextmanager
def store_url(store: str, folder: Path) -> Iterator[str]:
    """Return the URL of a new store. A URL is returned as it is."""
    if store == SQLITE:
        yield f"sqlite:///{folder / 'holdfast.db'}"
    elif store == POSTGRES:
        with database() as name:
            yield server().url(name)
    elif store == REDIS:
        with namespace() as url:
            yield url
    else:
        yield store


def answer_within(store: Any, seconds: float) -> None:
    """Let calls to the server of a store take no longer than this."""
    getattr(store, "_connections", store).call_seconds = seconds


def is_postgres(url: str) -> bool:
    return url.startswith("postgres")


def is_redis(url: str) -> bool:
    return url.startswith(("redis", "unix", "valkey"))
