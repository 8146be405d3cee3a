"""PgBouncer in front of a test server: the installed program, or the package of Debian, unpacked."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg

from servers import debian
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
    if not debian.available():
        raise ServerError(f"PgBouncer is not installed: {WAYS}")
    root = folder / "debian"
    try:
        debian.unpack(debian.download("pgbouncer", _libraries(), folder), root)
    except ServerError as error:
        raise ServerError(f"PgBouncer is not installed, and {error}: {WAYS}") from None
    libraries = {library.parent for library in root.rglob("*.so*")}
    return Program(root / "usr/sbin/pgbouncer", tuple(sorted(libraries)))


def _libraries() -> list[str]:
    """Return the packages of the libraries that PgBouncer needs. The names differ between releases."""
    output = debian.call(["apt-cache", "depends", "pgbouncer"])
    # Not libc6: every Debian has it, and it must fit the loader of this machine.
    return [name for name in re.findall(r"^\W*Depends: (lib\S+)$", output, re.MULTILINE) if name != "libc6"]


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
