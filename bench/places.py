"""Where stores stand while they are measured: always on a disk, always a fresh one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg

from servers.postgres import Postgres, running_postgres

HERE = Path(__file__).parent


class Place(ABC):
    """One kind of store, and the bare limit of it."""

    name: str
    server_pid = 0  # 0: the store has no process of its own

    @abstractmethod
    def fresh(self) -> str:
        """The URL of a store where nothing is. What the last one was is gone."""

    @abstractmethod
    def limit(self) -> tuple[str, ...]:
        """The command of the bare limit, in a place of its own."""


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
    """A Postgres server of our own, with fsync."""

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
        """The command of the bare round trip."""
        return "limit/insert.py", "--dsn", self.server.dsn(self.database())

    def database(self) -> str:
        """Made anew. What the one before left to write is written first, so that nobody pays for another."""
        if self._given:
            self.server.drop_database(f"bench{self._given}")
        self._given += 1
        self.server.create_database(f"bench{self._given}")
        with psycopg.connect(self.server.dsn("postgres"), autocommit=True) as connection:
            connection.execute("checkpoint")
        return f"bench{self._given}"


@contextmanager
def sqlite(folder: str | None) -> Iterator[Sqlite]:
    """In this folder, or beside this file."""
    with TemporaryDirectory(dir=folder or HERE, prefix=".bench-") as made:
        yield Sqlite(Path(made))


@contextmanager
def postgres(version: int | None, settings: Mapping[str, str] | None = None) -> Iterator[Server]:
    """Of this major version, or the first that there is."""
    with running_postgres(version, fsync=True, settings=settings) as server:
        yield Server(server)
