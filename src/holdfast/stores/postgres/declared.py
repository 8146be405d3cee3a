"""What the schema files declare, by the names that the server gives it: to be compared with what is there."""

from __future__ import annotations

import re

_INDEX = re.compile(r"^create (unique )?index (\w+)", re.MULTILINE)
_TABLE = re.compile(r"^create (?:unlogged )?table (\w+) \((.*?)\)(?: with [^;]*)?;", re.MULTILINE | re.DOTALL)
_PARTS = re.compile(r",(?![^(]*\))")  # not inside parentheses
_KEY = re.compile(r"\b(primary key|unique)\b(?: \(([^)]*)\))?")


def indexes(text: str) -> dict[str, bool]:
    """The indexes, and whether they are unique."""
    return {name: bool(unique) for unique, name in _INDEX.findall(text)}


def keys(text: str) -> dict[str, str]:
    """Primary keys and unique constraints, and the statement that brings one back."""
    found = {}
    for table, body in _TABLE.findall(re.sub(r"--.*", "", text)):
        for part in _PARTS.split(body):
            if said := _KEY.search(part):
                columns = said[2] or part.split()[0]
                end = "pkey" if said[1] == "primary key" else columns.replace(", ", "_") + "_key"
                found[f"{table}_{end}"] = f"alter table {table} add {said[1]} ({columns})"
    return found
