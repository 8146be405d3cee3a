"""What every server of ours needs: a private folder, an account without power, and a supervisor."""

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
MEMORY = Path("/dev/shm")  # noqa: S108 - the folder made there is private
ROOMY_BYTES = 1 << 30
# The address of a unix socket holds 104 bytes on the narrowest system; its own name needs some of them.
FOLDER_LENGTH_MAX = 70
LOG_LINES = 20
# A server that recovers from a crash takes its time.
READY_SECONDS = 60.0


class ServerError(Exception):
    """A server could not be had, or did something that it must not do."""


@dataclass(frozen=True)
class Account:
    """Whom a server runs as when we are root: database servers refuse to be root."""

    uid: int
    gid: int


def account() -> Account | None:
    """None: as ourselves."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            found = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(found.pw_uid, found.pw_gid)
    raise ServerError(
        "root may not run a database server, and there is no account postgres or nobody to be instead"
    )


def as_account(who: Account | None) -> dict[str, Any]:
    """The arguments that make a subprocess this account."""
    return {} if who is None else {"user": who.uid, "group": who.gid, "extra_groups": []}


def hand_over(path: Path, who: Account | None) -> None:
    """All that is there becomes the account's: under a strict umask it could not even read it."""
    if who:
        for each in (path, *path.rglob("*")):
            os.chown(each, who.uid, who.gid, follow_symlinks=False)


def free_port() -> int:
    """One that the kernel chose. Another process may still be faster: who listens has to be asked."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Private:
    """A folder that is deleted, and a process in it that is ended, when this process ends: by any death."""

    def __init__(
        self, name: str, *, durable: bool = False, farewell: signal.Signals = signal.SIGKILL
    ) -> None:
        self.account = account()
        self._farewell = farewell  # the quickest one after which the system holds nothing of it
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
        """The process id. It may not be ready yet."""
        who = self.account
        self._program = Path(argv[0]).name
        answer = self._order(
            "start",
            argv=[str(word) for word in argv],
            # Nothing of ours may leak in: PGDATA, LANG and the like change what a server does.
            env={"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC", **(env or {})},
            uid=who and who.uid,
            gid=who and who.gid,
            log=str(self._log),
            farewell=int(self._farewell),
        )
        pid: int = answer["pid"]
        return pid

    def run(self, argv: Sequence[str | Path]) -> None:
        """A process that has to end by itself, and well."""
        self.start(argv)
        while (code := self.ended()) is None:
            time.sleep(0.005)
        if code:
            raise ServerError(f"{argv[0]} ended with {code}:\n{self.log()}")

    def ended(self) -> int | None:
        """The exit code, once there is one."""
        code: int | None = self._order("poll")["code"]
        return code

    def wait_until(self, answers: Callable[[], None], *, not_yet: type[Exception]) -> None:
        """Ask until it no longer raises that; an end of the process is the end of the wait."""
        deadline = time.monotonic() + READY_SECONDS
        while True:
            try:
                return answers()
            except not_yet as error:
                if self.ended() is not None or time.monotonic() > deadline:
                    raise ServerError(f"{self._program} did not start: {error}\n{self.log()}") from error
            time.sleep(0.01)

    def end(self, with_signal: signal.Signals, seconds: float = 10.0) -> None:
        """SIGKILL, and anything that is still there after so long, takes the children along."""
        self._order("end", signal=int(with_signal), seconds=seconds)

    def end_alone(self, with_signal: signal.Signals, seconds: float = 10.0) -> None:
        """Signal the process and wait until it and its children are gone."""
        self._order("end_alone", signal=int(with_signal), seconds=seconds)

    def log(self) -> str:
        """The last lines that the process wrote."""
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
        # A test that ran out of time may have gone without hearing its answer.
        while answer.get("number") != self._orders:
            told = self._supervisor.stdout.readline()
            if not told:
                raise ServerError(f"the supervisor of {self.folder} is gone")
            answer = json.loads(told)
        if "error" in answer:
            raise ServerError(answer["error"])
        return answer


def _place(*, durable: bool) -> Path:
    """Memory for what may be lost with the power, a disk for what may not; always a short path."""
    if not durable and _roomy(MEMORY):
        return MEMORY
    places = [Path(tempfile.gettempdir()), Path("/var/tmp"), Path("/tmp")]  # noqa: S108 - see MEMORY
    short = [place for place in places if place.is_dir() and len(str(place)) <= FOLDER_LENGTH_MAX]
    if not short:
        raise ServerError(f"{places[0]} is too long a path for a unix socket: set TMPDIR to a shorter one")
    on_disk = [place for place in short if _file_system(place) != "tmpfs"]
    return (on_disk or short)[0]


def _roomy(place: Path) -> bool:
    if not os.access(place, os.W_OK | os.X_OK):
        return False
    # Where programs may not run, the copy of a wheel's programs could not stand.
    runnable = not os.statvfs(place).f_flag & getattr(os, "ST_NOEXEC", 0)
    return runnable and shutil.disk_usage(place).free >= ROOMY_BYTES


def _file_system(place: Path) -> str:
    """Its type, where the system tells."""
    try:
        mounts = [line.split() for line in Path("/proc/mounts").read_text("utf-8").splitlines()]
    except OSError:
        return ""
    real = place.resolve()
    above = [(len(where), kind) for _, where, kind, *_ in mounts if real.is_relative_to(where)]
    return max(above, default=(0, ""))[1]
