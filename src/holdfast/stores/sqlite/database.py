"""A connection with one cursor that is used again and again, and the few calls that verbs need."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any

import apsw
import msgspec

from holdfast.stores.rules import Rules

MEMORY = ":memory:"

Row = tuple[Any, ...]

_encode = msgspec.json.Encoder().encode


def text(value: Any) -> str:
    """A value as JSON text."""
    return _encode(value).decode()


class Database:
    """One connection. Not to be used from two threads at once."""

    opened = 0  # how often
    resting = False
    rules: tuple[int, Rules] | None = None  # what limits were set when their mark was this
    surveyed: dict[object, Any]  # answers that cost a look at every lane

    def __init__(self, connect: Callable[[], apsw.Connection]) -> None:
        self._connect, self.surveyed = connect, {}
        self._open()

    def _open(self) -> None:
        self.connection = self._connect()
        self.opened += 1
        # A statement; its rows, if one wants them.
        cursor = self.connection.cursor()
        self.run: Callable[..., apsw.Cursor] = cursor.execute
        self._many = cursor.executemany
        self.changes = self.connection.changes

    def many(self, sql: str, rows: Sequence[Row]) -> None:
        """One statement for each of these rows of values."""
        if len(rows) == 1:
            self.run(sql, rows[0])
        else:
            self._many(sql, rows)

    def one(self, sql: str, args: Any = ()) -> Row | None:
        # All rows, not the first: a statement that is not read to its end keeps its snapshot open.
        rows = self.run(sql, args).fetchall()
        return rows[0] if rows else None

    def all(self, sql: str, args: Any = ()) -> list[Row]:
        return self.run(sql, args).fetchall()

    def each(self, sql: str, args: Any = ()) -> Iterator[Row]:
        """Rows one by one, on a cursor of its own: what is not asked for is not read."""
        with closing(self.connection.cursor()) as rows:
            yield from rows.execute(sql, args)

    def close(self) -> None:
        self.connection.close()

    def rest(self) -> None:
        """Close, and open anew with the next statement: nothing of it is there in between."""
        if self.resting:
            return
        # Nobody leaves for good: what is in the log may stay there.
        self.connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        self.connection.close()
        self.resting, self.run = True, self._run_anew

    def _run_anew(self, sql: str, args: Any = ()) -> apsw.Cursor:
        self._open()
        self.resting = False
        return self.run(sql, args)
