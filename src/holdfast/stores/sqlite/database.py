"""A connection with one cursor that is used again and again, and the few calls that verbs need."""

from __future__ import annotations

from typing import Any

import apsw
import msgspec

MEMORY = ":memory:"

Row = tuple[Any, ...]

_encode = msgspec.json.Encoder().encode


def text(value: Any) -> str:
    """A value as JSON text."""
    return _encode(value).decode()


class Database:
    """One connection. Not to be used from two threads at once."""

    def __init__(self, connection: apsw.Connection) -> None:
        self.connection = connection
        self.run = connection.cursor().execute  # a statement; its rows, if one wants them
        self.changes = connection.changes

    def one(self, sql: str, args: Any = ()) -> Row | None:
        # All rows, not the first: a statement that is not read to its end keeps its snapshot open.
        rows = self.run(sql, args).fetchall()
        return rows[0] if rows else None

    def all(self, sql: str, args: Any = ()) -> list[Row]:
        return self.run(sql, args).fetchall()

    def close(self) -> None:
        self.connection.close()
