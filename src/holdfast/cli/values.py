"""Values that a person typed: JSON, times, labels."""

from __future__ import annotations

import json
import re
import sys
from datetime import datetime
from typing import Any

import click

from holdfast.codec import parse
from holdfast.errors import BadValue

from .options import JSON_EXAMPLE


def typed_json(text: str | None, what: str) -> Any:
    """Parse JSON; `-` reads it from stdin. BadValue names the place of the error and shows an example."""
    if text is None:
        return None
    if text == "-":
        text = sys.stdin.read()
    try:
        return parse(text, what)
    except BadValue as error:
        raise BadValue(
            f"{_where(text, what) or error}; an example, quoted for the shell: {JSON_EXAMPLE}"
        ) from None


def _where(text: str, what: str) -> str | None:
    """The place of the syntax error, as the standard library reports it."""
    if re.match(r"\s*[a-z][a-z0-9+.-]*://", text, re.IGNORECASE):
        return f"{what} is a URL, not JSON (name a store with --store URL)"
    if text.lstrip().startswith("@"):
        return f"{what} is not JSON: to read it from a file, write - and redirect, as in - < order.json"
    if not text.strip():
        return f"{what} is empty, which is not JSON (leave it out, or write null)"
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        shown = text[max(0, error.pos - 15) : error.pos + 15].replace("\n", " ")
        place = (
            f"character {error.pos + 1}"
            if error.lineno == 1
            else f"line {error.lineno}, column {error.colno}"
        )
        return f"{what} is not JSON: {error.msg[:1].lower()}{error.msg[1:]} at {place}, near {shown!r}"
    except (ValueError, RecursionError):
        return None
    return None


def typed_moment(text: str) -> datetime:
    """An instant in ISO 8601; without a zone it is local time."""
    try:
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        right = "write 2030-12-24T18:00, or with a zone 2030-12-24T18:00+01:00"
        raise click.BadParameter(f"{text!r} is not a time: {right}") from None


def typed_label(text: str) -> tuple[str, str]:
    """A key=value pair, split at the first equals sign."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise click.BadParameter(f"{text!r} is not a label: write key=value")
    return key, value
