"""Signals over a fork: what is sent to a child is the child's own, and is never heard by its parent's loop.

A child inherits what its parent listens with, down to the socket that wakes the parent's loop: a signal
meant for the child would not end it, but stop the parent.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterable

_heard: set[signal.Signals] = set()
_forking = threading.local()


def hear(numbers: Iterable[signal.Signals]) -> None:
    """From now on a loop of this process hears these; its children do not."""
    _heard.update(numbers)


def hear_no_more() -> None:
    """The handlers are what they were: children may inherit them."""
    _heard.clear()


def _before() -> None:
    # One that comes at once waits until the child is ready: before that it would still reach the parent.
    _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, set(_heard))


def _in_parent() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)


def _in_child() -> None:
    heard = set(_heard)
    hear_no_more()
    if heard:
        signal.set_wakeup_fd(-1)
    for number in heard:
        signal.signal(number, signal.SIG_DFL)
    _in_parent()  # what came meanwhile ends the child here: an exception would be lost
    if signal.SIGINT in heard:
        signal.signal(signal.SIGINT, signal.default_int_handler)


os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
