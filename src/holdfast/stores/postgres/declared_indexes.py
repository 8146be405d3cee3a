"""The indexes and keys that the schema files declare, by the names that the server gives them; `checkup`
compares them.
"""

from __future__ import annotations

import re

_INDEX = re.compile(r"^create (unique )?index (\w+)", re.MULTILINE)
_TABLE = re.compile(r"^create (?:unlogged )?table (\w+) \((.*?)\)(?: with [^;]*)?;", re.MULTILINE | re.DOTALL)
_PARTS = re.compile(r",(?![^(]*\))")  # not inside parentheses
_KEY = re.compile(r"\b(primary key|unique)\b(?: \(([^)]*)\))?")


def indexes(text: str) -> dict[str, bool]:
    """Return the indexes, and whether they are unique."""
    return {name: bool(unique) for unique, name in _INDEX.findall(text)}


def keys(text: str) -> dict[str, str]:
    """Return primary keys and unique constraints, each with the statement that creates it."""
    found = {}
    for table, body in _TABLE.findall(re.sub(r"--.*", "", text)):
        for part in _PARTS.split(body):
            if key := _KEY.search(part):
                columns = key[2] or part.split()[0]
                end = "pkey" if key[1] == "primary key" else columns.replace(", ", "_") + "_key"
                found[f"{table}_{end}"] = f"alter table {table} add {key[1]} ({columns})"
    return found
