"""The parts that every private server needs: a folder, an unprivileged account, and a supervisor."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

SUPERVISOR = Path(__file__).with_name("supervisor.py")
MEMORY = Path("/dev/shm")  # noqa: S108 - the folder that is made there is private
FREE_BYTES_MIN = 1 << 30
# The path of a unix socket may have 104 bytes on the strictest system. The name of the socket needs some.
FOLDER_LENGTH_MAX = 70
LOG_LINES = 20
# A server that recovers from a crash needs time.
READY_SECONDS = 60.0


class ServerError(Exception):
    """A server could not be started, or did something that it must not do."""


@dataclass(frozen=True)
class Account:
    """The account of a server when this process is root: database servers refuse to run as root."""

    uid: int
    gid: int


def account() -> Account | None:
    """Return the account for servers. None: the account of this process."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            found = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(found.pw_uid, found.pw_gid)
    raise ServerError(
        "a database server refuses to run as root, and there is no account postgres or nobody to run it as"
    )


def as_account(account: Account | None) -> dict[str, Any]:
    """Return the arguments of subprocess that run a program as this account."""
    return {} if account is None else {"user": account.uid, "group": account.gid, "extra_groups": []}


def hand_over(path: Path, account: Account | None) -> None:
    """Make the account the owner of all files there: with a strict umask it could not even read them."""
    if account:
        for each in (path, *path.rglob("*")):
            os.chown(each, account.uid, account.gid, follow_symlinks=False)


def free_port() -> int:
    """Return a port that the kernel chose. Another process may still take it first: identify the listener."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Private:
    """A folder and a process in it. Both are removed when this process ends, however it ends."""

    def __init__(
        self,
        name: str,
        *,
        durable: bool = False,
        last_signal: signal.Signals = signal.SIGKILL,
        drop_root: bool = True,
    ) -> None:
        self.account = account() if drop_root else None
        self._last_signal = (
            last_signal  # the fastest signal after which the server leaves nothing in the system
        )
        self.folder = Path(tempfile.mkdtemp(prefix=f"hf-{name}-", dir=_place(durable=durable)))
        self._log = self.folder / "server.log"
        self._program = ""
        self._orders = 0
        hand_over(self.folder, self.account)
        self._supervisor = subprocess.Popen(
            [sys.executable, "-I", "-S", str(SUPERVISOR), str(self.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self, argv: Sequence[str | Path], env: Mapping[str, str] | None = None) -> int:
        """Start a process and return its id. It may not be ready yet."""
        account = self.account
        self._program = Path(argv[0]).name
        answer = self._order(
            "start",
            argv=[str(word) for word in argv],
            # Not the environment of this process: PGDATA, LANG and others change what a server does.
            env={"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC", **(env or {})},
            uid=account and account.uid,
            gid=account and account.gid,
            log=str(self._log),
            last_signal=int(self._last_signal),
        )
        pid: int = answer["pid"]
        return pid

    def run(self, argv: Sequence[str | Path]) -> None:
        """Run a process to its end, and raise ServerError unless it succeeds."""
        self.start(argv)
        while (code := self.ended()) is None:
            time.sleep(0.005)
        if code:
            raise ServerError(f"{argv[0]} ended with {code}:\n{self.log()}")

    def ended(self) -> int | None:
        """Return the exit code, or None while the process runs."""
        code: int | None = self._order("poll")["code"]
        return code

    def wait_until(self, answers: Callable[[], None], *, not_yet: type[Exception]) -> None:
        """Call until it no longer raises `not_yet`. Stop waiting when the process has ended."""
        deadline = time.monotonic() + READY_SECONDS
        while True:
            try:
                return answers()
            except not_yet as error:
                if self.ended() is not None or time.monotonic() > deadline:
                    raise ServerError(f"{self._program} did not start: {error}\n{self.log()}") from error
            time.sleep(0.01)

    def end(self, with_signal: signal.Signals, seconds: float = 10.0) -> None:
        """End the process with a signal. SIGKILL, sent at once or after this time, ends its children too."""
        self._order("end", signal=int(with_signal), seconds=seconds)

    def end_alone(self, with_signal: signal.Signals, seconds: float = 10.0) -> None:
        """Signal the process and wait until it and its children are gone."""
        self._order("end_alone", signal=int(with_signal), seconds=seconds)

    def log(self) -> str:
        """Return the last lines that the process wrote."""
        if not self._log.exists():
            return ""
        return "\n".join(self._log.read_text("utf-8", "replace").splitlines()[-LOG_LINES:])

    def close(self) -> None:
        assert self._supervisor.stdin
        assert self._supervisor.stdout
        self._supervisor.stdin.close()
        self._supervisor.wait()
        self._supervisor.stdout.close()

    def _order(self, verb: str, **words: object) -> dict[str, Any]:
        assert self._supervisor.stdin
        assert self._supervisor.stdout
        self._orders += 1
        order = {"number": self._orders, "do": verb, **words}
        self._supervisor.stdin.write(json.dumps(order).encode() + b"\n")
        self._supervisor.stdin.flush()
        answer: dict[str, Any] = {}
        # An answer may belong to an earlier order: a test that timed out did not read it.
        while answer.get("number") != self._orders:
            line = self._supervisor.stdout.readline()
            if not line:
                raise ServerError(f"the supervisor of {self.folder} has ended")
            answer = json.loads(line)
        if "error" in answer:
            raise ServerError(answer["error"])
        return answer


def _place(*, durable: bool) -> Path:
    """Return the folder for data: in memory, or on a disk if it must be durable. The path is always short."""
    if not durable and usable(MEMORY):
        return MEMORY
    places = [Path(tempfile.gettempdir()), Path("/var/tmp"), Path("/tmp")]  # noqa: S108 - see MEMORY
    short = [place for place in places if place.is_dir() and len(str(place)) <= FOLDER_LENGTH_MAX]
    if not short:
        raise ServerError(f"{places[0]} is too long a path for a unix socket: set TMPDIR to a shorter one")
    on_disk = [place for place in short if _file_system(place) != "tmpfs"]
    return (on_disk or short)[0]


def usable(place: Path) -> bool:
    """Return whether files and programs can be put there."""
    if not os.access(place, os.W_OK | os.X_OK):
        return False
    # The folder may hold a copy of the programs of a wheel, so programs must be allowed to run there.
    runnable = not os.statvfs(place).f_flag & getattr(os, "ST_NOEXEC", 0)
    return runnable and shutil.disk_usage(place).free >= FREE_BYTES_MIN


def _file_system(place: Path) -> str:
    """Return the type of the file system, or an empty text where the system does not say."""
    try:
        mounts = [line.split() for line in Path("/proc/mounts").read_text("utf-8").splitlines()]
    except OSError:
        return ""
    real = place.resolve()
    above = [(len(where), kind) for _, where, kind, *_ in mounts if real.is_relative_to(where)]
    return max(above, default=(0, ""))[1]
