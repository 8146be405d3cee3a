"""The parent process of one server. When its owner ends, it ends the server and deletes the folder.

It is started as a script with the folder as its argument. Orders are lines of JSON on stdin, and each has one
answer on stdout. The end of stdin means that the owner has ended, for whatever reason.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PR_SET_CHILD_SUBREAPER = 36
# A fork of the owner may hold the other end of the pipe open. Then the id of the parent shows the end.
OWNER_CHECK_SECONDS = 0.5
GONE_SECONDS = 10.0
LAST_SIGNAL_SECONDS = 3.0


class Supervisor:
    """One process at a time, and all its descendants."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._last_signal = int(signal.SIGKILL)

    def start(self, order: dict[str, Any]) -> dict[str, Any]:
        if self._process and self._process.poll() is None:
            return {"error": f"process {self._process.pid} is still running"}
        self._last_signal = order["last_signal"]
        dropped = {} if order["uid"] is None else {"user": order["uid"], "group": order["gid"]}
        with Path(order["log"]).open("ab") as log:
            self._process = subprocess.Popen(
                order["argv"],
                env=order["env"],
                # The account of the server may have no access to the current folder of the owner.
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                extra_groups=[] if dropped else None,
                **dropped,
            )
        return {"pid": self._process.pid}

    def poll(self, _: dict[str, Any]) -> dict[str, Any]:
        return {"code": self._process.poll() if self._process else None}

    def end(self, order: dict[str, Any]) -> dict[str, Any]:
        """Send a signal. A process that still runs after the seconds is killed, with its children."""
        if self._process and self._process.poll() is None:
            if order["signal"] != signal.SIGKILL:
                self._process.send_signal(order["signal"])
            try:
                self._process.wait(0 if order["signal"] == signal.SIGKILL else order["seconds"])
            except subprocess.TimeoutExpired:
                self._kill(self._process)
        return self.poll(order)

    def end_alone(self, order: dict[str, Any]) -> dict[str, Any]:
        """Signal the process only. Wait so many seconds for its children to end by themselves."""
        if self._process and self._process.poll() is None:
            family = descendants(self._process.pid)
            self._process.send_signal(order["signal"])
            self._process.wait()
            deadline = time.monotonic() + order["seconds"]
            while time.monotonic() < deadline and not all(map(gone, family)):
                time.sleep(0.002)
        return self.poll(order)

    def close(self) -> None:
        """End the server for the last time: its data is not needed, but nothing may stay in the system."""
        self.end({"signal": self._last_signal, "seconds": LAST_SIGNAL_SECONDS})

    @staticmethod
    def _kill(process: subprocess.Popen[bytes]) -> None:
        # Stop the process first: it cannot start more children while they are counted.
        process.send_signal(signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        family = [process.pid, *descendants(process.pid)]
        for pid in family:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()
        deadline = time.monotonic() + GONE_SECONDS
        while time.monotonic() < deadline and not all(map(gone, family[1:])):
            time.sleep(0.002)


def descendants(pid: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for child, parent in processes():
        children.setdefault(parent, []).append(child)
    found: list[int] = []
    rest = [pid]
    while rest:
        rest = [child for parent in rest for child in children.get(parent, ())]
        found += rest
    return found


def processes() -> Iterator[tuple[int, int]]:
    """Return the ids of each process and of its parent."""
    if not Path("/proc/self/stat").exists():
        listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True)
        yield from ((int(pid), int(parent)) for pid, parent in map(str.split, listed.stdout.splitlines()))
        return
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            # Split after the last parenthesis: the program name before it may contain anything.
            fields = path.read_text("utf-8", "replace").rpartition(")")[2].split()
        except OSError:
            continue
        yield int(path.parent.name), int(fields[1])


def gone(pid: int) -> bool:
    try:
        # Orphans are children of this process, where the system supports a subreaper.
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        pass
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return False


def orders(owner: int) -> Iterator[dict[str, Any]]:
    """Return the orders of the owner, until it ends."""
    rest = b""
    while True:
        ready, _, _ = select.select([0], [], [], OWNER_CHECK_SECONDS)
        if not ready:
            if os.getppid() != owner:
                return
            continue
        received = os.read(0, 65536)
        if not received:
            return
        *lines, rest = (rest + received).split(b"\n")
        yield from map(json.loads, lines)


def main(folder: str) -> None:
    owner = os.getppid()
    # Ctrl-C in the terminal is for the owner, which may need the server until it has cleaned up.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    supervisor = Supervisor()
    verbs = {"start": supervisor.start, "poll": supervisor.poll, "end": supervisor.end}
    verbs["end_alone"] = supervisor.end_alone
    try:
        for order in orders(owner):
            try:
                answer = verbs[order["do"]](order)
            except (OSError, ValueError) as error:
                answer = {"error": str(error)}
            print(json.dumps({"number": order["number"], **answer}), flush=True)
    except BrokenPipeError:
        pass
    finally:
        supervisor.close()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1])
