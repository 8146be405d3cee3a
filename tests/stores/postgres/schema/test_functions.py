"""Rules for the functions of the database that keep calls cheap."""

from __future__ import annotations

import re

import pytest

from holdfast.stores.postgres import migrate

SOURCES = sorted(migrate.functions().items())
ONE = re.compile(
    r"^create or replace function (?P<name>\w+)(?P<head>.*?)\bas\s+(?P<quote>\$\$|')(?P<body>.*?)(?P=quote);",
    re.MULTILINE | re.DOTALL,
)


@pytest.mark.parametrize(("file", "source"), SOURCES, ids=[name for name, _ in SOURCES])
def test_sql_that_cannot_be_taken_into_its_caller_is_not_written_as_sql(file, source):
    """It would be planned again at each call. A function that returns a set may be SQL: it is inlined."""
    for one in ONE.finditer(source):
        head = one["head"]
        if not re.search(r"\blanguage sql\b", head) or re.search(r"returns (setof|table)", head):
            continue
        words = re.sub(r"extract\(epoch from|distinct from|substring\(\S+ from", "", one["body"])
        where = f"{file}: {one['name']}"
        assert words.count("select") == 1, f"{where} has a subquery"
        assert not re.search(r"\b(from|insert|update|delete)\b", words), f"{where} reads or writes"
