"""Worker processes: forked from a server that has imported everything; they can be killed and stopped.

No process is left behind, also when the command itself is killed.
"""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import wait
from types import TracebackType
from typing import Any, Self

CONTEXT = multiprocessing.get_context("forkserver")
# Preloaded: a worker that is replaced every 300 ms must not spend that time on imports.
CONTEXT.set_forkserver_preload(
    [
        "verify.workloads.workflows",
        "verify.environment.ledger",
        "verify.server_crashes.serve_kill",
        "holdfast.stores.postgres",
        "holdfast.stores.redis",
        "holdfast.stores.sqlite",
        "holdfast.http.api",
        "uvicorn.protocols.http.httptools_impl",
        "uvicorn.lifespan.on",
    ]
)

Process = Any  # multiprocessing's own classes differ by context


def die_with_parent() -> None:
    """End this process when its parent has ended, killed or not."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, name="verify-parent", daemon=True).start()


def quiet(file: str) -> None:
    """Send the logs of this process to a file, which is shown when something stalls."""
    form = "%(asctime)s %(process)d %(levelname)s %(message)s"
    logging.basicConfig(filename=file, level=logging.WARNING, format=form)


def tell_on_signal(file: str) -> None:
    """Write the stacks of all tasks and threads to the file on SIGUSR1."""

    def tell(*_: object) -> None:
        with open(file, "a", encoding="utf-8") as log:  # noqa: PTH123
            print(f"--- {os.getpid()}: tasks", file=log)
            for task in asyncio.all_tasks():
                task.print_stack(limit=12, file=log)
            print(f"--- {os.getpid()}: threads", file=log, flush=True)
            faulthandler.dump_traceback(log, all_threads=True)

    signal.signal(signal.SIGUSR1, tell)


class Fleet:
    """A fixed number of worker processes: those that end are replaced."""

    def __init__(self, target: Callable[..., None], args: tuple[Any, ...], size: int) -> None:
        self._target, self._args, self._size = target, args, size
        self.members: list[Process] = []
        self.replaced = 0

    def __enter__(self) -> Self:
        self.members = [self._new() for _ in range(self._size)]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self.members:
            process.kill()  # SIGKILL: a stopped process ends too
        for process in self.members:
            process.join()

    def _new(self) -> Process:
        process = CONTEXT.Process(target=self._target, args=self._args, daemon=True)
        process.start()
        return process

    def kill(self, process: Process) -> None:
        """Send SIGKILL, and start a new process at once."""
        process.kill()
        process.join()
        self.supervise()

    def supervise(self) -> int:
        """Replace ended processes, and return their number."""
        ended = [process for process in self.members if not process.is_alive()]
        for process in ended:
            process.join()
            self.members[self.members.index(process)] = self._new()
        self.replaced += len(ended)
        return len(ended)

    def stop(self, process: Process) -> None:
        """Send SIGSTOP: the process stands still and does not notice it."""
        os.kill(process.pid, signal.SIGSTOP)

    def cont(self, process: Process) -> None:
        """Send SIGCONT."""
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGCONT)

    @property
    def pids(self) -> set[int]:
        """Return the ids of the present processes."""
        return {process.pid for process in self.members}
