"""Databases of a test server: created quickly, and dropped at the end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg import sql

FILE_COPY_SINCE = 15


@dataclass(frozen=True)
class Database:
    """One database and its addresses."""

    name: str
    dsn: str  # for any driver
    url: str  # for Holdfast's store


def data_directory(dsn: str) -> Path:
    """Return the data directory of the server that answers there: it identifies the server."""
    with psycopg.connect(dsn) as connection:
        row = connection.execute("show data_directory").fetchone()
    assert row
    return Path(row[0])


class Databases:
    """The databases that this object has created. It touches no others."""

    def __init__(self, admin: Callable[[], str], version: int, prefix: str = "") -> None:
        self._admin = admin
        self._version = version
        self._prefix = prefix
        self._names: set[str] = set()

    def real_name(self, name: str) -> str:
        return self._prefix + name

    def create(self, name: str, template: str | None = None) -> None:
        source = self.real_name(template) if template in self._names else template or "template0"
        statement = sql.SQL("create database {} template {}").format(
            sql.Identifier(self.real_name(name)), sql.Identifier(source)
        )
        if self._version >= FILE_COPY_SINCE:
            # Half the time of the default, which writes every page to the log.
            statement += sql.SQL(" strategy file_copy")
        self._execute(statement)
        self._names.add(name)

    def drop(self, name: str) -> None:
        """Drop the database, and close the connections to it that are still open."""
        statement = sql.SQL("drop database if exists {} with (force)")
        self._execute(statement.format(sql.Identifier(self.real_name(name))))
        self._names.discard(name)

    def drop_all(self) -> None:
        for name in tuple(self._names):
            self.drop(name)

    def _execute(self, statement: sql.Composed) -> None:
        with psycopg.connect(self._admin(), autocommit=True) as connection:
            connection.execute(statement)
