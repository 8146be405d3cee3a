"""Text of other people, made safe for one line of a terminal or a log.

A store holds text that callers, workflows and plain-SQL roles wrote. Such text can hold escape sequences
that steer a terminal, line breaks that forge a line of a log, and format characters that reorder what a
person reads. All that is shown or logged goes through `escaped`, or through `escaped_lines` where line breaks
may stay.
"""

from __future__ import annotations

from textwrap import indent
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import logging

SHORT = 200  # characters of a name or a message inside a sentence
LOGGED = 1_000  # characters of one argument of a log line
LINES_MAX = 16_000  # characters of a traceback

_NAMED = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def escaped(text: object, limit: int | None = SHORT) -> str:
    r"""Show text on one line: control and format characters become `\n`, `\x1b`, `\u202e`.

    Escaped text longer than `limit` is cut, and the end says so: `abc… (61,234 characters)`. The cost is
    linear in `limit`, but for `str(text)`. An object that cannot be made a text is shown by its type.
    """
    string = _text_of(text)
    head = string if limit is None else string[: limit + 1]
    if head.isprintable():
        shown = head
    else:
        shown = "".join(
            char if char.isprintable() or _joins(head, n) else _escape(char) for n, char in enumerate(head)
        )
    if limit is None or len(shown) <= limit:
        return shown
    return f"{shown[:limit]}… ({len(string):,} characters)"


def inline(text: object, limit: int | None = SHORT) -> str:
    """Show text inside a sentence of ours. A sentence has its commands between backticks, so those of the
    text become apostrophes: nobody takes a part of it for a command.
    """
    return escaped(text, limit).replace("`", "'")


def escaped_lines(text: object, limit: int = LINES_MAX) -> str:
    """Show a text of many lines, such as a traceback: its line breaks stay, all else is as `escaped` does it.

    Of a text above `limit` the end is kept: an error stands at the end of its traceback.
    """
    string = _text_of(text)
    left_out = f"({len(string):,} characters, the last {limit:,} follow)\n" if len(string) > limit else ""
    return left_out + "\n".join(escaped(line, None) for line in string[-limit:].split("\n"))


def safe_logger(name: str) -> logging.Logger:
    """Get the logger of this name; all arguments and tracebacks that are logged by it are escaped."""
    import logging  # `holdfast --help` escapes too, and needs no logger

    log = logging.getLogger(name)
    log.addFilter(_escape_record)  # a second time changes nothing
    return log


def _escape_record(record: logging.LogRecord) -> bool:
    """Escape the arguments of a record, not its format: that is a sentence of our own."""
    if isinstance(record.args, tuple):
        from uuid import UUID

        run = next((one for one in record.args if isinstance(one, UUID)), None)
        if run is not None:  # our lines name no other id by a UUID
            record.__dict__.setdefault("run", str(run))
        record.args = tuple(_argument(one) for one in record.args)
    if isinstance(record.exc_info, tuple) and not record.exc_text:
        from traceback import format_exception

        trace = "".join(format_exception(*record.exc_info))
        # A formatter prints this, and not its own. The margin: no line of it looks like one of the log.
        record.exc_text = indent(escaped_lines(trace.rstrip("\n")), "  ")
    return True


def _argument(value: object) -> object:
    return value if value is None or isinstance(value, (int, float)) else escaped(value, LOGGED)


def _text_of(value: object) -> str:
    if isinstance(value, str):
        return value
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - an error of somebody's own class may do anything here
        return f"<{type(value).__name__} without a text>"


def _joins(text: str, n: int) -> bool:
    """Whether U+200C or U+200D stands between two characters beyond ASCII, as in Persian words and emoji."""
    around = text[n - 1 : n] + text[n + 1 : n + 2]
    return text[n] in "\u200c\u200d" and len(around) == 2 and around.isprintable() and min(around) > "\x7f"


def _escape(char: str) -> str:
    if char.isspace() and char not in "\x1c\x1d\x1e\x1f\x0b\x0c\x85\u2028\u2029":
        return _NAMED.get(char, " ")  # the wide and narrow spaces of other scripts are plain spaces here
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
