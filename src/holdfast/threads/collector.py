"""A pause of the garbage collector while a large text is decoded.

A decoder builds its value in one call, which keeps Python's lock. The collector looks at all new lists and
objects again and again meanwhile: for 4 MiB of brackets that takes many times as long as the decoding itself,
and the whole process stands still.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_pauses = 0
_enabled = False  # it was, before the first of the present pauses


@contextmanager
def paused() -> Iterator[None]:
    """Pause the collector. Several threads may do so at once: it goes on when the last one has ended."""
    global _pauses, _enabled  # noqa: PLW0603 - there is one collector in a process
    with _lock:
        if not _pauses:
            _enabled = gc.isenabled()
            gc.disable()
        _pauses += 1
    try:
        yield
    finally:
        with _lock:
            _pauses -= 1
            if not _pauses and _enabled:
                gc.enable()
