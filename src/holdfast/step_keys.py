"""Names and keys of steps: their lengths, and the text that every store can keep."""

from __future__ import annotations

from typing import Any

from .arguments import exact_text, is_storable
from .clipped import clipped
from .errors import UsageError

STEP_NAME_MAX = 640  # above TOPIC_MAX, for a topic is part of names
KEY_MAX = 700  # a name with the number of its use, or with an item of a map; or as the user gives it
KEY_BYTES = 2_600  # an index entry of Postgres has at most 2,700 bytes


def check_key(key: Any, most: int = KEY_MAX) -> str:
    """Check a step's key: text that every store can keep and search for."""
    said = exact_text(key)
    if not isinstance(said, str) or not said or not is_storable(said) or is_long_key(said, most):
        raise UsageError(
            f"{clipped(key)} is not a step's name or key: give text of 1 to {most} characters, without NUL"
        )
    return said


def check_call_name(name: Any) -> str:
    """Check a step's name: its key has room for the number of its use."""
    return check_key(name, STEP_NAME_MAX)


def is_long_key(key: str, most: int = KEY_MAX) -> bool:
    """Return True for a key that is too long for a store."""
    return len(key) > most or (len(key) > STEP_NAME_MAX and len(key.encode(errors="replace")) > KEY_BYTES)


def check_step_name(name: Any) -> str:
    """Check the name of a plan's task, which people read in lists."""
    said = check_call_name(name)
    if not said.strip():
        raise UsageError(
            f"{clipped(name)} is not a name for a plan's step: give text with visible characters"
        )
    return said
