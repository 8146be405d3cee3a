"""Somebody who knows nothing of us but docs/sql.md: a session of his own, and the statements of that page."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from holdfast.testing.contract.hand import TYPE

PAGE = Path(__file__).resolve().parents[3] / "docs" / "sql.md"
PUBLISHED = Path(__file__).with_name("published")

_NAMED = re.compile(r"^-- (\w+)\n(.*?;)\n(?=\n|```|\Z)", re.MULTILINE | re.DOTALL)
_VALUE = re.compile(r""":(['"])(\w+)\1""")

# His statements say now(), and the test says when that is. A search_path like this is any stranger's right.
_TURNED = """
create schema if not exists turned;
create or replace function turned.now() returns timestamptz language sql stable as 'select workflow.clock()';
set search_path = turned, pg_catalog;
"""


def statements(page: Path = PAGE) -> dict[str, str]:
    """By name, as they stand there."""
    return dict(_NAMED.findall(page.read_text("utf-8")))


class Stranger:
    """Statements by their name, or any other, with values filled in as psql does it."""

    def __init__(self, url, clock, texts=None):
        self._clock, self._texts = clock, statements() if texts is None else texts
        self.connection = psycopg.connect(url, autocommit=True)
        self.connection.execute(_TURNED)

    def __call__(self, text, **values):
        """Its rows; where it has none to show, how many it has changed."""
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
        """The one row, or the one value of it."""
        (row,) = self(text, **values)
        return row[0] if len(row) == 1 else row

    def close(self):
        self.connection.close()


def _text(value):
    return None if value is None else str(value)


def started(plain, **values):
    """A run by the page's own insert."""
    return plain.one("start", **{"type": TYPE, "payload": '{"n": 1}', "key": None, **values})


def refused(plain, words, text, **values):
    """The code of a refusal, in one line with these words."""
    with pytest.raises(psycopg.Error, match=words) as caught:
        plain(text, **values)
    assert "\n" not in caught.value.diag.message_primary
    return caught.value.diag.sqlstate
