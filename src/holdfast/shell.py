"""Words of commands that people copy from a page or a sentence into a terminal."""

from __future__ import annotations

import re
import shlex
from typing import Any

_SPECIAL = re.compile(r"[\\'`]")


def quoted(word: Any) -> str:
    r"""Return a word of a command line as a shell reads it.

    A name may hold control characters, and a terminal obeys them while they are pasted, also inside quotes:
    one ends the line, and what follows is executed. So such a word is written as `$'\x03'`, all in plain
    characters, which bash, zsh and ksh read. Other shells take it for a plain quoted word: so there is no
    quote inside.

    A backtick is written in the same way: sentences have commands between backticks.
    """
    text = str(word)
    if text.isprintable() and "`" not in text:
        return shlex.quote(text)
    return "$'" + "".join(_written(one) for one in text) + "'"


def line_of(*words: Any) -> str:
    """Return a command line."""
    return " ".join(map(quoted, words))


def command_of(verb: str, *names: Any, options: str = "", rest: str = "") -> str:
    """Return a command of `holdfast`. names: its arguments, which others may have chosen; options and rest
    (further arguments) are written already.

    A name such as `--store=https://evil.example` would be taken for an option, and send the API key of
    whoever pastes the command to that server. So `--` stands before names that begin with a dash.
    """
    is_plain = not any(str(one).startswith("-") for one in names)
    words = (line_of(*names), rest, options) if is_plain else (options, "--", line_of(*names), rest)
    return " ".join(filter(None, ("holdfast", verb, *words)))


def _written(one: str) -> str:
    if one.isprintable() and not _SPECIAL.match(one):
        return one
    code = ord(one)
    return f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
