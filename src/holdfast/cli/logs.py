"""Logs that a person can read: time, level, which run, what happened."""

from __future__ import annotations

import logging
import re
import sys
from textwrap import indent

import click

from holdfast.escaping import escaped, escaped_lines

from .find import SHORT, short

_RUN = re.compile(r"(?:\brun )?\b([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})\b:?\s?")
_COLOURS = {"WARNING": "yellow", "ERROR": "red", "CRITICAL": "red"}


class Readable(logging.Formatter):
    """One line each; the run's short id stands in a column of its own."""

    def format(self, record: logging.LogRecord) -> str:
        message = escaped(record.getMessage(), None)
        found = _RUN.search(message)
        run = short(found[1]) if found else " " * SHORT
        said = _RUN.sub("", message, count=1) if found else message
        at = click.style(self.formatTime(record, "%H:%M:%S"), dim=True)
        level = click.style(f"{record.levelname.lower():<7}", fg=_COLOURS.get(record.levelname))
        text = f"{at}  {level}  {run}  {said.strip()}"
        if not record.exc_info:
            return text
        trace = record.exc_text or indent(escaped_lines(self.formatException(record.exc_info)), "  ")
        return f"{text}\n{trace}"


class _Echo(logging.Handler):
    """To stderr through click, which leaves colours out where they cannot be shown."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            click.echo(self.format(record), file=sys.stderr, color=None)
        except OSError:
            self.handleError(record)


def show_logs() -> None:
    """Show what Holdfast logs from INFO on. An app that has set up logging of its own keeps it."""
    ours = logging.getLogger("holdfast")
    if ours.handlers or logging.getLogger().handlers:
        ours.setLevel(min(ours.level or logging.INFO, logging.INFO))
        return
    handler = _Echo()
    handler.setFormatter(Readable())
    ours.addHandler(handler)
    ours.setLevel(logging.INFO)
    ours.propagate = False
