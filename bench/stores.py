"""Stores of benchmarks: always on a disk, always new."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg

from servers.postgres import Postgres, running_postgres
from servers.redis import Redis, running_redis

HERE = Path(__file__).parent


class Place(ABC):
    """One kind of store, and its bare limit."""

    name: str
    server_pid = 0  # 0: the store has no server process

    @abstractmethod
    def fresh(self) -> str:
        """Return the URL of an empty store. The store before it is removed."""

    @abstractmethod
    def limit(self) -> tuple[str, ...]:
        """Return the command of the bare limit, with its own empty store."""


class Sqlite(Place):
    """A file in a folder."""

    name = "sqlite"

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def fresh(self) -> str:
        return f"sqlite:///{self._file()}"

    def limit(self) -> tuple[str, ...]:
        return "limit/sqlite.py", "--file", self._file()

    def _file(self) -> str:
        for old in self._folder.iterdir():
            old.unlink()
        return str(self._folder / "bench.db")


class Server(Place):
    """A private Postgres server, with fsync."""

    name = "postgres"

    def __init__(self, server: Postgres) -> None:
        self.server = server
        self.server_pid = server.pid
        self._given = 0

    def fresh(self) -> str:
        return self.server.url(self.database())

    def limit(self) -> tuple[str, ...]:
        return "limit/postgres.py", "--dsn", self.server.dsn(self.database())

    def insert(self) -> tuple[str, ...]:
        """Return the command of the bare round trip."""
        return "limit/insert.py", "--dsn", self.server.dsn(self.database())

    def database(self) -> str:
        """Make the database anew. Pending writes of the one before are flushed first, so that no measurement
        pays for another.
        """
        if self._given:
            self.server.drop_database(f"bench{self._given}")
        self._given += 1
        self.server.create_database(f"bench{self._given}")
        with psycopg.connect(self.server.dsn("postgres"), autocommit=True) as connection:
            connection.execute("checkpoint")
        return f"bench{self._given}"


class RedisServer(Place):
    """A private Redis or Valkey server, with an append-only file on a disk."""

    name = "redis"

    def __init__(self, server: Redis) -> None:
        self.server = server
        self.server_pid = server.pid
        self._given = 0

    def fresh(self) -> str:
        with self.server.client() as client:
            client.flushall()
        self._given += 1
        return self.server.url(f"bench{self._given}")

    def limit(self) -> tuple[str, ...]:
        self.fresh()
        return "limit/limit_redis.py", "--url", f"unix://{self.server.socket}"


@contextmanager
def sqlite(folder: str | None) -> Iterator[Sqlite]:
    """Return stores in this folder, or beside this file."""
    with TemporaryDirectory(dir=folder or HERE, prefix=".bench-") as made:
        yield Sqlite(Path(made))


@contextmanager
def postgres(version: int | None, settings: Mapping[str, str] | None = None) -> Iterator[Server]:
    """Start a server of this major version, or of the first installed one."""
    with running_postgres(version, fsync=True, settings=settings) as server:
        yield Server(server)


@contextmanager
def redis(sync: str = "everysec") -> Iterator[RedisServer]:
    """Start a server whose append-only file is synced every second, or always."""
    with running_redis({"appendfsync": sync}, durable=True) as server:
        yield RedisServer(server)
