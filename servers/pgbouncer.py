"""PgBouncer in front of a test server: the installed program, or the package of Debian, unpacked."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg

from servers.databases import Database, data_directory
from servers.postgres import USER, Postgres, socket_dsn
from servers.private import Private, ServerError, hand_over

PORT = 6432
# Folders that are not on the PATH of an ordinary user on Debian.
SYSTEM_FOLDERS = ("/usr/sbin", "/usr/local/sbin", "/opt/homebrew/bin")
WAYS = "install it (Debian: apt install pgbouncer; macOS: brew install pgbouncer)"


@dataclass(frozen=True)
class Program:
    """The program PgBouncer, and the folders of the libraries that came with it."""

    path: Path
    libraries: tuple[Path, ...] = ()

    def env(self) -> dict[str, str]:
        return {"LD_LIBRARY_PATH": ":".join(map(str, self.libraries))} if self.libraries else {}


@contextmanager
def running_pgbouncer(
    server: Postgres,
    database: str,
    pool_mode: str = "transaction",
    settings: Mapping[str, str] | None = None,
) -> Iterator[Database]:
    """Run PgBouncer and yield the address of the database behind it."""
    with Private("pb") as private:
        program = find(private.folder)
        config = private.folder / "pgbouncer.ini"
        asked = {"pool_mode": pool_mode, **(settings or {})}
        config.write_text(_config(server, database, private.folder, asked), "utf-8")
        hand_over(private.folder, private.account)
        private.start([program.path, config], program.env())
        dsn = socket_dsn(private.folder, PORT, database)

        def identify() -> None:
            if (found := data_directory(dsn)) != server.data:
                raise ServerError(f"behind PgBouncer at {dsn} is another server: its data is in {found}")

        private.wait_until(identify, not_yet=psycopg.OperationalError)
        yield Database(database, dsn, server.allowing_fsync_off(dsn))


def find(folder: Path) -> Program:
    """Return the installed PgBouncer, else the one of Debian, unpacked into this folder."""
    path = os.pathsep.join([*os.get_exec_path(), *SYSTEM_FOLDERS])
    if found := shutil.which("pgbouncer", path=path):
        return Program(Path(found))
    if not (shutil.which("apt-get") and shutil.which("dpkg")):
        raise ServerError(f"PgBouncer is not installed: {WAYS}")
    root = folder / "debian"
    for package in _packages(folder):
        _call(["dpkg", "-x", str(package), str(root)])
    libraries = {library.parent for library in root.rglob("*.so*")}
    return Program(root / "usr/sbin/pgbouncer", tuple(sorted(libraries)))


def _packages(folder: Path) -> list[Path]:
    """Return the package files of Debian, downloaded once. This needs no root and installs nothing."""
    cache = _cache(folder) / f"pgbouncer-{platform.freedesktop_os_release().get('VERSION_ID', '')}"
    if not cache.is_dir():
        # Rename the folder at the end, so that an incomplete download is not used.
        partial = Path(tempfile.mkdtemp(dir=cache.parent))
        try:
            _call(["apt-get", "download", "pgbouncer", *_libraries()], cwd=partial)
            with contextlib.suppress(OSError):
                partial.rename(cache)  # fails when another process was faster
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return sorted(cache.glob("*.deb"))


def _cache(folder: Path) -> Path:
    """Return the cache folder of the user, or this folder for a user without a home."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    cache = home / "holdfast"
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError:
        return folder
    return cache if os.access(cache, os.W_OK) else folder


def _libraries() -> list[str]:
    """Return the packages of the libraries that PgBouncer needs. The names differ between releases."""
    output = _call(["apt-cache", "depends", "pgbouncer"])
    # Not libc6: every Debian has it, and it must fit the loader of this machine.
    return [name for name in re.findall(r"^\W*Depends: (lib\S+)$", output, re.MULTILINE) if name != "libc6"]


def _call(argv: list[str], cwd: Path | None = None) -> str:
    done = subprocess.run(argv, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise ServerError(f"PgBouncer is not installed, and `{' '.join(argv[:2])}` failed ({last}): {WAYS}")
    return done.stdout


def _config(server: Postgres, database: str, folder: Path, settings: Mapping[str, str]) -> str:
    own = {
        "listen_port": str(PORT),
        "unix_socket_dir": str(folder),
        # No password: access to the private folder is the right to connect, as with the server itself.
        "auth_type": "any",
        "max_client_conn": "200",
        **settings,
    }
    lines = [f"{name} = {value}" for name, value in own.items()]
    target = f"{database} = host={server.folder} port={server.port} user={USER}"
    return "\n".join(["[databases]", target, "[pgbouncer]", *lines, ""])
