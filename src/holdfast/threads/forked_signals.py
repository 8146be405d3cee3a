"""Signals in forked children: their handlers are reset, so that a signal to a child does not reach the
parent.

A child inherits the handlers of its parent and even the socket that wakes the parent's loop. Without a reset
a signal sent to the child would not end the child but stop the parent.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterable

_handled: set[signal.Signals] = set()
_forking = threading.local()


def reset_signals_in_children(numbers: Iterable[signal.Signals]) -> None:
    """Reset these signals in every child that is forked from now on."""
    _handled.update(numbers)


def keep_signals_in_children() -> None:
    """Reset no signals any more: this process has its old handlers again, and children may inherit them."""
    _handled.clear()


def _before() -> None:
    # A signal that comes now is blocked until the child is ready: before that it would reach the parent.
    _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, set(_handled))


def _in_parent() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)


def _in_child() -> None:
    handled = set(_handled)
    keep_signals_in_children()
    if handled:
        signal.set_wakeup_fd(-1)
    for number in handled:
        signal.signal(number, signal.SIG_DFL)
    _in_parent()  # a signal that came meanwhile ends the child here: an exception would be lost
    if signal.SIGINT in handled:
        signal.signal(signal.SIGINT, signal.default_int_handler)


os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
