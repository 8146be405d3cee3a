"""Log lines for people: time, level, run, message."""

from __future__ import annotations

import logging
import re
import sys
from textwrap import indent

import click

from holdfast.escaping import escaped, escaped_lines
from holdfast.shown.text import SHORT, short

_RUN = re.compile(r"(?:\brun )?\b([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})\b:?\s?")
_COLOURS = {"WARNING": "yellow", "ERROR": "red", "CRITICAL": "red"}


class LineFormatter(logging.Formatter):
    """One line for each record; the run's short id is in a column of its own."""

    def __init__(self, *, with_date: bool) -> None:
        super().__init__()
        self._time_format = "%Y-%m-%d %H:%M:%S" if with_date else "%H:%M:%S"

    def format(self, record: logging.LogRecord) -> str:
        message = escaped(record.getMessage(), None)
        found = _RUN.search(message)
        run = short(found[1]) if found else " " * SHORT
        message = _RUN.sub("", message, count=1) if found else message
        at = click.style(self.formatTime(record, self._time_format), dim=True)
        level = click.style(f"{record.levelname.lower():<7}", fg=_COLOURS.get(record.levelname))
        text = f"{at}  {level}  {run}  {message.strip()}"
        if not record.exc_info:
            return text
        trace = record.exc_text or indent(escaped_lines(self.formatException(record.exc_info)), "  ")
        return f"{text}\n{trace}"


class _Echo(logging.Handler):
    """A handler that writes to stderr through click, which removes colours where they cannot be shown."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            click.echo(self.format(record), file=sys.stderr, color=None)
        except OSError:
            self.handleError(record)


def show_logs(*, with_date: bool = True) -> None:
    """Print Holdfast's log from INFO on. If the app has set up logging itself, that stays."""
    ours = logging.getLogger("holdfast")
    if ours.handlers or logging.getLogger().handlers:
        ours.setLevel(min(ours.level or logging.INFO, logging.INFO))
        return
    handler = _Echo()
    handler.setFormatter(LineFormatter(with_date=with_date))
    ours.addHandler(handler)
    ours.setLevel(logging.INFO)
    ours.propagate = False
