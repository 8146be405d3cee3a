"""User SQL: a session that knows only docs/sql.md, and the statements of that page."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from holdfast.testing.contract.driver import TYPE

PAGE = Path(__file__).resolve().parents[4] / "docs" / "sql.md"
PUBLISHED = Path(__file__).with_name("published")

_NAMED = re.compile(r"^-- (\w+)\n(.*?;)\n(?=\n|```|\Z)", re.MULTILINE | re.DOTALL)
_VALUE = re.compile(r""":(['"])(\w+)\1""")

# The statements say now(), and the test sets the clock. Any user may set such a search_path.
_TURNED = """
create schema if not exists turned;
create or replace function turned.now() returns timestamptz language sql stable as 'select workflow.clock()';
set search_path = turned, pg_catalog;
"""


def statements(page: Path = PAGE) -> dict[str, str]:
    """The statements of the page, by name."""
    return dict(_NAMED.findall(page.read_text("utf-8")))


class UserSqlSession:
    """Statements by name, or any other, with values filled in like psql does."""

    def __init__(self, url, clock, texts=None):
        self._clock, self._texts = clock, statements() if texts is None else texts
        self.connection = psycopg.connect(url, autocommit=True)
        self.connection.execute(_TURNED)

    def __call__(self, text, **values):
        """Run a statement; return its rows, or the number of changed rows."""
        self.connection.execute("select set_config('holdfast.now', %s, false)", (str(self._clock()),))
        cursor = self.connection.execute(self.filled(self._texts.get(text, text), values))
        while cursor.nextset():
            pass
        return cursor.rowcount if cursor.description is None else cursor.fetchall()

    def filled(self, text, values):
        literal = {"'": sql.Literal, '"': sql.Identifier}
        said = {
            (mark, name): literal[mark](str(value) if mark == '"' else _text(value)).as_string(
                self.connection
            )
            for name, value in values.items()
            for mark in literal
        }
        return _VALUE.sub(lambda found: said[found[1], found[2]], text)

    def one(self, text, **values):
        """Return the one row, or its one value."""
        (row,) = self(text, **values)
        return row[0] if len(row) == 1 else row

    def close(self):
        self.connection.close()


def _text(value):
    return None if value is None else str(value)


def started(user_sql, **values):
    """Start a run by the insert of the page."""
    return user_sql.one("start", **{"type": TYPE, "payload": '{"n": 1}', "key": None, **values})


def refused(user_sql, words, text, **values):
    """Return the code of a refusal, which must be one line with these words."""
    with pytest.raises(psycopg.Error, match=words) as caught:
        user_sql(text, **values)
    assert "\n" not in caught.value.diag.message_primary
    return caught.value.diag.sqlstate
