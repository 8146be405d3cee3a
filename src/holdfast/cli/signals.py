"""Signals that come while a command holds no run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from holdfast.engine.worker.stopping import SIGNALS
from holdfast.threads import ExitAtSignal


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """Before a worker starts and after it has stopped, it holds no run: a signal just ends the process."""
    exit_ = ExitAtSignal(SIGNALS)
    exit_.begin()
    try:
        yield
    except BaseException:
        exit_.end()
        raise
    exit_.begin()
