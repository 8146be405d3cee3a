"""The statements, kept as readable files beside this one: one file a verb, a heading a statement."""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).parent
_HEADING = re.compile(r"^-- :(\w+)\b.*$", re.MULTILINE)


def statements(verb: str) -> dict[str, str]:
    """All statements of `<verb>.sql` by heading; one without headings is named like its file."""
    parts = _HEADING.split((FOLDER / f"{verb}.sql").read_text(encoding="utf-8"))
    if len(parts) == 1:
        return {verb: _bare(parts[0])}
    return {name: _bare(text) for name, text in zip(parts[1::2], parts[2::2], strict=True)}


def _bare(text: str) -> str:
    # Comments go: SQLite would parse past them at every prepare, and apsw hash them at every call.
    lines = (line.partition("--")[0].strip() for line in text.splitlines())
    return " ".join(line for line in lines if line).rstrip("; ")
