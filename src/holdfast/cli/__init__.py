"""The command line: `main` has the table of commands, `commands/` one module for each.

The other modules are parts that commands share. A command's module is imported only when it is called. The
imports of a command take some tenths of a second. Ctrl-C during this time ends the process at once:
KeyboardInterrupt in the middle of an import prints a traceback, or is lost.
"""

from __future__ import annotations

import os
import signal

INTERRUPTED = 130  # the exit code after Ctrl-C


def begin_imports() -> None:
    """Let Ctrl-C end the process at once, until `end_imports`. It stays ignored where a shell ignores it."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def end_imports() -> None:
    """Let Ctrl-C raise KeyboardInterrupt again."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(*_: object) -> None:
    os._exit(INTERRUPTED)
