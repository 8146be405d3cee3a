"""The text of a search, and the forms in which stored JSON may hold it."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from .arguments import check_text
from .errors import UsageError

SEARCHED_MAX = 200  # characters of a text


def check_searched(text: Any) -> str:
    """Check the text of a search: 1 to SEARCHED_MAX characters that every store can keep."""
    said = check_text("text", text, SEARCHED_MAX)
    if not said:
        raise UsageError(f"text is empty, and would be found everywhere: give 1 to {SEARCHED_MAX} characters")
    return said


def json_forms(text: str) -> tuple[str, str]:
    """Return the text inside a JSON string: as the codec writes it, and in ASCII alone. For most texts the
    two are the same. The function `json_forms` on Postgres makes the same ones.
    """
    return msgspec.json.encode(text).decode()[1:-1], json.dumps(text)[1:-1]
