"""SQL statements, kept in readable .sql files beside their modules. Each statement has a heading `--
:name`."""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).parent
_HEADING = re.compile(r"^-- :(\w+)\b.*$", re.MULTILINE)


def statements(file: str) -> dict[str, str]:
    """Return all statements of `<file>.sql` by heading. A file without headings has one, named like the file.

    `file` is a path in this folder: "reads", "claiming/claim".
    """
    parts = _HEADING.split((FOLDER / f"{file}.sql").read_text(encoding="utf-8"))
    if len(parts) == 1:
        return {file.rpartition("/")[2]: _bare(parts[0])}
    return {name: _bare(text) for name, text in zip(parts[1::2], parts[2::2], strict=True)}


def _bare(text: str) -> str:
    # Comments are removed: SQLite would parse them at every prepare, and apsw would hash them at every call.
    lines = (line.partition("--")[0].strip() for line in text.splitlines())
    return " ".join(line for line in lines if line).rstrip("; ")
