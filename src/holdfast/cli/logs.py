"""Log lines of the command line, as text for people or as JSON for machines."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from textwrap import indent
from typing import Any

import click
import msgspec

from holdfast.engine.log_context import FIELDS, TRACE_FIELDS, LogContext
from holdfast.escaping import LINES_MAX, escaped, escaped_lines
from holdfast.shown.text import SHORT, clean, short

LEVELS = ("debug", "info", "warning", "error")
_RUN = re.compile(r"(?:\brun )?\b([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})\b:?\s?")
_COLOURS = {"WARNING": "yellow", "ERROR": "red", "CRITICAL": "red"}
_ERROR_FIELDS = ("max_attempts", "error_kind", "error_type", "error_message", "error_at", "retry_at")


class TextFormatter(logging.Formatter):
    """One line for each record: time, level, the run's short id, step and attempt, message, and the trace."""

    def __init__(self, *, with_date: bool) -> None:
        super().__init__()
        self._time_format = "%Y-%m-%d %H:%M:%S" if with_date else "%H:%M:%S"

    def format(self, record: logging.LogRecord) -> str:
        run, message = _of_ours(record) if _is_ours(record) else _of_user(record)
        at = click.style(self.formatTime(record, self._time_format), dim=True)
        level = click.style(f"{record.levelname.lower():<7}", fg=_COLOURS.get(record.levelname))
        text = f"{at}  {level}  {run:<{SHORT}}  {message.strip()}{_spans(record)}"
        trace = _trace(record, self)
        return f"{text}\n{indent(trace, '  ')}" if trace else text


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, the fields of the run, those of an error.

    Empty fields are left out. Control characters are escaped, as JSON does it.
    """

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        fields: dict[str, Any] = {
            "time": at.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _cut(record.getMessage()),
        }
        fields |= {name: getattr(record, name, "") for name in (*FIELDS, *TRACE_FIELDS, *_ERROR_FIELDS)}
        if isinstance(record.exc_info, tuple) and record.exc_info[1] is not None:
            error = record.exc_info[1]
            fields |= {"error_type": type(error).__qualname__, "error_message": escaped(error, LINES_MAX)}
        fields["traceback"] = _trace(record, self)
        return _json_line({name: value for name, value in fields.items() if value not in ("", None)})


def _is_ours(record: logging.LogRecord) -> bool:
    return record.name == "holdfast" or record.name.startswith("holdfast.")


def _of_ours(record: logging.LogRecord) -> tuple[str, str]:
    """Return the run and the message; the run's id, which the message contains, is in a column of its own."""
    message = escaped(record.getMessage(), None)
    found = _RUN.search(message)
    if found is None:
        return short(getattr(record, "run", "")), message
    return short(found[1]), _RUN.sub("", message, count=1)


def _of_user(record: logging.LogRecord) -> tuple[str, str]:
    """Return the run and the message, after `[charge #2]`: the step and its attempt."""
    run, step, attempt = (getattr(record, name, "") for name in ("run", "step", "attempt"))
    place = f"[{clean(step)} #{attempt}] " if step else f"[#{attempt}] " if run else ""
    logger = "" if record.name == "root" else f"{clean(record.name)}: "
    return short(clean(run)), f"{place}{logger}{escaped(record.getMessage(), LINES_MAX)}"


def _spans(record: logging.LogRecord) -> str:
    """Return the ids of the trace and the span that a record was written in, if there is one."""
    ids = [f"{name}={clean(getattr(record, name))}" for name in TRACE_FIELDS if getattr(record, name, "")]
    return click.style(f"  {' '.join(ids)}", dim=True) if ids else ""


def _trace(record: logging.LogRecord, formatter: logging.Formatter) -> str:
    """Return the traceback and the stack of a record, escaped."""
    if _is_ours(record) and record.exc_text:
        return record.exc_text  # escaped and cut by our logger
    # The text may be that of another handler's formatter: it is not trusted when there is a better one.
    raw = formatter.formatException(record.exc_info) if record.exc_info else record.exc_text
    return escaped_lines("\n".join(filter(None, (raw, record.stack_info))))


def _json_line(fields: dict[str, Any]) -> str:
    known = {name: value if isinstance(value, int) else _whole(str(value)) for name, value in fields.items()}
    text = msgspec.json.encode(known).decode()
    return text if text.isprintable() else "".join(one if one.isprintable() else _u(one) for one in text)


def _u(char: str) -> str:
    r"""Return a character as JSON escapes it: `\u202e`; beyond 16 bits by two halves."""
    code = char.encode("utf-16-be")
    return "".join(f"\\u{code[n]:02x}{code[n + 1]:02x}" for n in range(0, len(code), 2))


def _whole(text: str) -> str:
    """Return the text without halves of surrogate pairs, which cannot be written."""
    return text.encode("utf-8", "replace").decode()


def _cut(text: str) -> str:
    return text if len(text) <= LINES_MAX else f"{text[:LINES_MAX]}… ({len(text):,} characters)"


class _Echo(logging.Handler):
    """A handler that prints through click, which removes colours where they cannot be shown."""

    def __init__(self, *, err: bool) -> None:
        super().__init__()
        self._err = err
        self.addFilter(LogContext())

    def emit(self, record: logging.LogRecord) -> None:
        try:
            click.echo(self.format(record), file=sys.stderr if self._err else sys.stdout, color=None)
        except Exception:  # noqa: BLE001 - as every handler: an argument of a user's call may be anything
            self.handleError(record)


def show_logs(
    level: str | None = None, format_: str | None = None, *, usual: str = "info", with_date: bool = True
) -> logging.Handler | None:
    """Print the log of Holdfast and of users' code; return the handler that does.

    If the app has set up logging itself, that stays, and None is returned: a level is still set, and a format
    replaces the handlers of the app.
    """
    root, ours = logging.getLogger(), logging.getLogger("holdfast")
    number = logging.getLevelNamesMapping()[(level or usual).upper()]
    if format_ is None and (ours.handlers or root.handlers):
        if level:
            root.setLevel(number)
        if level or ours.getEffectiveLevel() > number:
            ours.setLevel(number)
        return None
    for logger in (root, ours):
        for handler in list(logger.handlers):
            logger.removeHandler(handler)
    ours.propagate = True
    handler = _Echo(err=format_ != "json")
    handler.setFormatter(JsonFormatter() if format_ == "json" else TextFormatter(with_date=with_date))
    root.addHandler(handler)
    root.setLevel(number)
    return handler


def log_level_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --log-level."""
    return click.option(
        "--log-level",
        type=click.Choice(LEVELS),
        help="Print log lines from this level on; info by default.",
    )(command)


def log_format_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --log-format."""
    return click.option(
        "--log-format",
        type=click.Choice(["text", "json"]),
        help="Print log lines as text to stderr, or as one JSON object a line to stdout. "
        "Without it, logging that the app sets up itself stays.",
    )(command)
