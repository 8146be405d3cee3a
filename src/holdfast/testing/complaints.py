"""What the engine logs while it is disturbed on purpose: warnings are what it should say, errors are not."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


class _Listener(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.heard: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.heard.append(record.getMessage())


@contextmanager
def complaints() -> Iterator[list[str]]:
    """The errors that Holdfast logs meanwhile; nothing of what it logs is shown."""
    log, listener = logging.getLogger("holdfast"), _Listener()
    log.addHandler(listener)
    propagated, log.propagate = log.propagate, False
    try:
        yield listener.heard
    finally:
        log.removeHandler(listener)
        log.propagate = propagated
