"""One connection with a cursor that is reused, and the few calls that verbs need."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any

import apsw
import msgspec

from holdfast.stores.claiming.rules import Rules

MEMORY = ":memory:"

Row = tuple[Any, ...]

_encode = msgspec.json.Encoder().encode


def text(value: Any) -> str:
    """Return a value as JSON text."""
    return _encode(value).decode()


class Database:
    """One connection. Two threads must not use it at the same time."""

    opened = 0  # the number of times the connection was opened
    resting = False
    rules: tuple[int, Rules] | None = None  # the revision of the limits and registry, and the rules
    surveyed: dict[object, Any]  # answers of surveys, see claiming/next_claim.py

    def __init__(self, connect: Callable[[], apsw.Connection]) -> None:
        self._connect, self.surveyed = connect, {}
        self._open()

    def _open(self) -> None:
        self.connection = self._connect()
        self.opened += 1
        # Run one statement. The returned cursor gives its rows.
        cursor = self.connection.cursor()
        self.run: Callable[..., apsw.Cursor] = cursor.execute
        self._many = cursor.executemany
        self.changes = self.connection.changes

    def many(self, sql: str, rows: Sequence[Row]) -> None:
        """Run the statement once for each row of values."""
        if len(rows) == 1:
            self.run(sql, rows[0])
        else:
            self._many(sql, rows)

    def one(self, sql: str, args: Any = ()) -> Row | None:
        # Fetch all rows, not only the first: a statement that is not read to its end keeps its snapshot open.
        rows = self.run(sql, args).fetchall()
        return rows[0] if rows else None

    def all(self, sql: str, args: Any = ()) -> list[Row]:
        return self.run(sql, args).fetchall()

    def each(self, sql: str, args: Any = ()) -> Iterator[Row]:
        """Yield rows one by one on a separate cursor. Rows that the caller does not ask for are not read."""
        with closing(self.connection.cursor()) as rows:
            yield from rows.execute(sql, args)

    def close(self) -> None:
        self.connection.close()

    def rest(self) -> None:
        """Close the connection. The next statement opens it again."""
        if self.resting:
            return
        # The close is short, so a checkpoint of the write-ahead log would be wasted.
        self.connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        self.connection.close()
        self.resting, self.run = True, self._reopen_and_run

    def _reopen_and_run(self, sql: str, args: Any = ()) -> apsw.Cursor:
        self._open()
        self.resting = False
        return self.run(sql, args)
