"""`holdfast dev` with reload: a supervisor, and the worker in a process of its own, which starts again when
code changes.

The supervisor never imports the app. It talks to its worker through a pipe: a byte asks the worker to stop
for a reload. The end of the pipe says that the supervisor is gone, even after SIGKILL, and the worker stops.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import click

import holdfast
from holdfast.escaping import escaped_lines
from holdfast.shown.text import clean

from .program import short_path

STOP_SECONDS = 8.0  # a worker has its grace period to stop; then it is told again, and then killed
HURRY_SECONDS = 3.0
WATCH_MILLISECONDS, WATCH_SECONDS_MAX = 100, 10.0
BROKEN = 4  # exit code of a worker whose code cannot be imported
NAMED = 3  # changed files that are named
IGNORED = {"__pycache__", "node_modules", "site-packages", "venv", "env"}
HINT = "it does not reload when code changes: install watchfiles (the extra `dev`) for this"
AGAIN = "waiting for the next change"


def can_watch() -> bool:
    """Whether the library that watches files is installed."""
    return importlib.util.find_spec("watchfiles") is not None


def watched_folder(app: str) -> Path | None:
    """The package that MODULE:APP names, or the folder of its module; None if there is no such module."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    top = app.partition(":")[0].partition(".")[0]
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    if spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations)))
    return None if spec.origin is None or not spec.origin.endswith(".py") else Path(spec.origin).parent


def is_code(path: str, folder: Path) -> bool:
    """Whether a changed file is code of the app: no virtual environment, no cache, no hidden folder."""
    file = Path(path)
    if file.suffix != ".py":
        return False
    try:
        inside = file.relative_to(folder).parts[:-1]
    except ValueError:
        return False
    if any(part in IGNORED or part.startswith(".") for part in inside):
        return False
    parents = [folder.joinpath(*inside[: n + 1]) for n in range(len(inside))]
    return not any((one / "pyvenv.cfg").exists() for one in parents)


class Supervisor:
    """Starts the worker, and starts it again when a file of the app changes. Ctrl-C stops both."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # News: ("changed", names), ("ended", a worker), ("signal", its number), ("off", None).
        self._news: SimpleQueue[tuple[str, Any]] = SimpleQueue()
        self._worker: subprocess.Popen[bytes] | None = None
        self._pipe = -1
        self._watching = threading.Event()  # files are watched, or cannot be
        self._off = False  # files cannot be watched: no change will come
        self._reloaded = False  # code has changed, or was broken: further changes may mend an error

    def run(self) -> int:
        """Work until a signal stops it; return the exit code."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, _: self._news.put(("signal", number)))
        over = threading.Event()
        threading.Thread(target=self._watch, args=(over,), name="holdfast-watch", daemon=True).start()
        self._watching.wait(WATCH_SECONDS_MAX)  # a change that comes before the watch would be missed
        self._start()
        try:
            return self._serve()
        finally:
            over.set()

    def _serve(self) -> int:
        while True:
            kind, what = self._news.get()
            if kind == "signal":
                return self._stopped(what)
            if kind == "changed":
                self._reload(what)
            elif kind == "off":
                if self._worker is None:
                    return BROKEN
            elif self._worker is not None and what is self._worker:
                code, self._worker = int(self._worker.returncode), None
                if code == 0 or (code in {1, 2, 3} and not self._reloaded):
                    return code  # a wrong call, or no store: no change of code would mend it
                if self._off:
                    return abs(code)
                self._reloaded = True
                how = "" if code == BROKEN else f"the worker ended ({_how(code)}); "
                _say(f"{how}{AGAIN}")

    def _reload(self, names: list[str]) -> None:
        shown = ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
        _say(f"{clean(shown)} changed: reloading")
        self._reloaded = True
        if self._worker is not None:
            with contextlib.suppress(OSError):
                os.write(self._pipe, b"r")
            if not self._gone(STOP_SECONDS):
                return  # a signal came: it is the next news
        self._start()

    def _gone(self, seconds: float) -> bool:
        """Wait for the end of the worker, whatever that takes. Return False when a signal came meanwhile."""
        for limit, sends in ((seconds, signal.SIGTERM), (HURRY_SECONDS, signal.SIGKILL), (None, None)):
            ends = None if limit is None else time.monotonic() + limit
            while self._worker is not None:
                left = None if ends is None else max(0.0, ends - time.monotonic())
                try:
                    kind, what = self._news.get(timeout=left)
                except Empty:
                    break
                if kind == "signal":
                    self._news.put((kind, what))
                    return False
                if kind == "ended" and what is self._worker:
                    self._worker = None
                # Further changes are part of this reload.
            if self._worker is None or sends is None:
                break
            self._worker.send_signal(sends)
        return True

    def _stopped(self, number: int) -> int:
        """Pass signals on, until the worker has ended. After the second one it ends at once by itself."""
        worker = self._worker
        self._pass_on(number)
        while worker is not None:
            kind, what = self._news.get()
            if kind == "signal":
                self._pass_on(what)
            elif kind == "ended" and what is worker:
                return 0 if what.returncode in {0, BROKEN} else abs(int(what.returncode))
        return 0

    def _pass_on(self, number: int) -> None:
        """Send a signal to the worker, unless the terminal has sent Ctrl-C to it, too."""
        if self._worker is not None and not (number == signal.SIGINT and _in_foreground()):
            self._worker.send_signal(number)

    def _start(self) -> None:
        if self._pipe >= 0:
            os.close(self._pipe)
        reads, self._pipe = os.pipe()
        self._worker = subprocess.Popen([*_program(), "--watched", str(reads)], pass_fds=(reads,))
        os.close(reads)
        waits = threading.Thread(
            target=self._await, args=(self._worker,), name="holdfast-worker", daemon=True
        )
        waits.start()

    def _await(self, worker: subprocess.Popen[bytes]) -> None:
        worker.wait()
        self._news.put(("ended", worker))

    def _watch(self, over: threading.Event) -> None:
        from watchfiles import watch

        def wanted(_change: Any, path: str) -> bool:
            self._watching.set()  # other files may change all the time: then no timeout comes
            return is_code(path, self._folder)

        try:
            # The first yield, empty after the timeout, says that the watch has begun.
            for changes in watch(
                self._folder,
                watch_filter=wanted,
                stop_event=over,
                raise_interrupt=False,
                rust_timeout=WATCH_MILLISECONDS,
                yield_on_timeout=True,
            ):
                self._watching.set()
                if changes:
                    _forget_compiled(path for _, path in changes)
                    self._news.put(("changed", sorted({short_path(Path(path)) for _, path in changes})))
        except Exception as error:  # noqa: BLE001 - such as the system's limit of watched files
            _say(f"reload is off: {clean(str(error) or type(error).__name__)}")
            self._off = True
            self._news.put(("off", None))
            self._watching.set()


def _forget_compiled(paths: Iterable[str]) -> None:
    """Remove the compiled form of changed files.

    Python takes it for current if size and time, in whole seconds, are those of the file: two changes within
    one second would look like one.
    """
    for path in paths:
        with contextlib.suppress(OSError):
            Path(importlib.util.cache_from_source(path)).unlink()


def _program() -> list[str]:
    """The command that starts the worker: this one."""
    script = Path(sys.argv[0])
    start = ["-m", "holdfast.cli"] if script.name == "__main__.py" else [str(script)]
    return [sys.executable, *start, *sys.argv[1:]]


def _in_foreground() -> bool:
    """Whether this process belongs to the foreground of a terminal: then Ctrl-C reaches its worker, too."""
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except (OSError, ValueError):
        return False


def _how(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {-code}"


def _say(text: str) -> None:
    click.echo(click.style(text, fg="cyan"), err=True)


# -- in the worker -----------------------------------------------------------------------------------


def obey(pipe: int) -> None:
    """Stop this process when its supervisor asks for it, or is gone. Call it before the app is loaded."""

    def listen() -> None:
        asked = b""
        with contextlib.suppress(OSError):
            asked = os.read(pipe, 1)
        if asked:  # a reload: nobody pressed Ctrl-C, so nobody has to be told how to stop
            logging.getLogger("holdfast").setLevel(logging.WARNING)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(STOP_SECONDS)
        os.kill(os.getpid(), signal.SIGTERM)  # it does not end: the second signal ends it at once

    threading.Thread(target=listen, name="holdfast-supervisor", daemon=True).start()


@contextlib.contextmanager
def broken_code_shown() -> Iterator[None]:
    """Print the traceback of code that cannot be imported, without our frames, and end with BROKEN."""
    try:
        yield
    except holdfast.UsageError as error:
        if error.__cause__ is None:
            raise
        click.echo(escaped_lines("".join(_own_traceback(error.__cause__)).rstrip("\n")), err=True)
        sys.stderr.flush()
        os._exit(BROKEN)


def _own_traceback(error: BaseException) -> Sequence[str]:
    ours = str(Path(holdfast.__file__).parent)
    found = traceback.TracebackException.from_exception(error)
    each: traceback.TracebackException | None = found
    while each is not None:
        kept = [
            one for one in each.stack if "importlib" not in one.filename and not one.filename.startswith(ours)
        ]
        each.stack = traceback.StackSummary.from_list(kept)
        each = each.__cause__ or each.__context__
    return list(found.format())
