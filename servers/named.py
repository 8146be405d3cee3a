"""A Postgres server that HOLDFAST_TEST_PG_DSN names. Somebody else runs it."""

from __future__ import annotations

import secrets
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import psycopg

from servers.databases import Databases
from servers.private import ServerError


class NamedPostgres:
    """The named server. Only databases with unique names that were created here are used."""

    def __init__(self, dsn: str) -> None:
        if urlsplit(dsn).scheme not in {"postgres", "postgresql"}:
            raise ServerError(
                "HOLDFAST_TEST_PG_DSN is not a URL: write it as postgresql://user@host/database"
            )
        self._dsn = dsn
        try:
            with psycopg.connect(dsn, autocommit=True) as connection:
                self.version = connection.info.server_version // 10000
                row = connection.execute("show fsync").fetchone()
        except psycopg.OperationalError as error:
            raise ServerError(f"HOLDFAST_TEST_PG_DSN names a server that does not answer: {error}") from error
        self._without_fsync = row == ("off",)
        self._databases = Databases(lambda: dsn, self.version, f"holdfast_test_{secrets.token_hex(6)}_")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._databases.drop_all()

    def dsn(self, database: str) -> str:
        # No urlunsplit: it drops the slashes before an empty host, which means a unix socket.
        scheme, host, _, query, _ = urlsplit(self._dsn)
        return f"{scheme}://{host}/{self._databases.real_name(database)}" + (f"?{query}" if query else "")

    def url(self, database: str) -> str:
        """Return the URL for Holdfast's store. Without fsync the store needs `allow_fsync_off` in it."""
        dsn = self.dsn(database)
        if not self._without_fsync:
            return dsn
        return f"{dsn}{'&' if urlsplit(dsn).query else '?'}allow_fsync_off=1"

    def create_database(self, name: str, template: str | None = None) -> str:
        """Create a database and return its real name."""
        self._databases.create(name, template)
        return self._databases.real_name(name)

    def drop_database(self, name: str) -> None:
        self._databases.drop(name)
