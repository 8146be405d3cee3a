"""Errors that Holdfast logs while a test disturbs it: warnings are expected then, errors are not."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


class _Listener(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if not hasattr(record, "error_kind"):  # a run that failed by its own code
            self.messages.append(record.getMessage())


@contextmanager
def logged_errors() -> Iterator[list[str]]:
    """Collect the errors that Holdfast logs inside the block, but for failed runs; nothing is shown."""
    log, listener = logging.getLogger("holdfast"), _Listener()
    log.addHandler(listener)
    propagated, log.propagate = log.propagate, False
    try:
        yield listener.messages
    finally:
        log.removeHandler(listener)
        log.propagate = propagated
