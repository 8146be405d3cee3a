"""Postgres servers: private ones in a temporary folder, or the one that HOLDFAST_TEST_PG_DSN names."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

import psycopg

from servers import installs
from servers.databases import Databases, data_directory
from servers.named import NamedPostgres
from servers.private import Private, ServerError, free_port

NAMED_BY = "HOLDFAST_TEST_PG_DSN"
VERSION_BY = "HOLDFAST_TEST_PG_VERSION"
USER = "postgres"
SOCKET_PORT = 5432
PORTS_TRIED = 5
SHARED_LINE = 6  # line of postmaster.pid with the key and the id of the shared memory

SETTINGS = {
    "max_connections": "200",
    "shared_buffers": "128MB",
    "timezone": "UTC",
    "log_checkpoints": "off",
    "log_min_messages": "warning",
    # Files in the data folder, deleted with it. Other kinds would outlive a server that was killed.
    "dynamic_shared_memory_type": "mmap",
}
# Data survives the death of every process, but not a power failure. synchronous_commit stays on: it costs
# nothing here, and without it a killed server would lose commits that it had confirmed. full_page_writes
# stays on too: on tmpfs SIGKILL can end a write between two kernel pages and leave a torn database page.
WITHOUT_FSYNC = {"fsync": "off", "max_wal_size": "512MB"}


def socket_dsn(folder: Path, port: int, database: str) -> str:
    where = urlencode({"host": str(folder), "port": port}, safe="/")
    return f"postgresql://{USER}@/{database}?{where}"


class Postgres:
    """A private server. It listens on a unix socket in its folder, and on TCP only if asked to."""

    def __init__(
        self,
        private: Private,
        install: installs.Install,
        *,
        fsync: bool,
        settings: Mapping[str, str],
        tcp: bool,
    ) -> None:
        self._private = private
        self._install = install.runnable_by(private.account, private.folder)
        self._tcp = tcp
        self._settings = SETTINGS | ({} if fsync else WITHOUT_FSYNC) | dict(settings)
        self._databases = Databases(lambda: self.dsn("postgres"), install.version)
        self.version = install.version
        self.folder = private.folder
        self.data = private.folder / "data"
        self.port = SOCKET_PORT
        self.pid = 0

    def bin(self, name: str) -> Path:
        """Return the path of a program of the same version: psql, pg_dump, pgbench."""
        return self._install.bin / name

    def dsn(self, database: str) -> str:
        """Return the DSN of the unix socket, for any driver."""
        return socket_dsn(self.folder, self.port, database)

    def dsn_tcp(self, database: str) -> str:
        if not self._tcp:
            raise ServerError(
                "this server does not listen on TCP: ask for it with running_postgres(tcp=True)"
            )
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{database}"

    def url(self, database: str) -> str:
        """Return the URL for Holdfast's store. Without fsync the store needs `allow_fsync_off` in it."""
        return self.allowing_fsync_off(self.dsn(database))

    def allowing_fsync_off(self, dsn: str) -> str:
        """Return the DSN with `allow_fsync_off`, if this server runs without fsync."""
        if self._settings.get("fsync") != "off":
            return dsn
        return f"{dsn}{'&' if '?' in dsn else '?'}allow_fsync_off=1"

    def create_database(self, name: str, template: str | None = None) -> str:
        """Create a database and return its name. No session may be connected to the template meanwhile."""
        self._databases.create(name, template)
        return name

    def drop_database(self, name: str) -> None:
        self._databases.drop(name)

    def init(self) -> None:
        account = ["-U", USER, "--auth=trust"]
        locale = ["--encoding=UTF8", "--locale=C"]
        self._private.run([self.bin("initdb"), "-D", self.data, *account, *locale, "--no-sync"])

    def start(self) -> None:
        """Start on the existing data. After `kill` the server recovers first."""
        for last in (False,) * (PORTS_TRIED - 1) + (True,):
            # A restarted server keeps its port, so that clients can reconnect.
            chosen = self._tcp and not self.pid
            if chosen:
                self.port = free_port()
            try:
                self._start()
            except ServerError:
                if last or not chosen:
                    raise
            else:
                return

    def _start(self) -> None:
        listen = "127.0.0.1" if self._tcp else ""
        options = [f"--{name}={value}" for name, value in self._settings.items()]
        where = ["-D", str(self.data), "-k", str(self.folder), "-h", listen, "-p", str(self.port)]
        pid = self._private.start([self.bin("postgres"), *where, *options])
        self._private.wait_until(self._identify, not_yet=psycopg.OperationalError)
        self.pid = pid

    def _identify(self) -> None:
        """Check that the server that answers has our data: another one may have taken the port first."""
        for way in (self.dsn, self.dsn_tcp)[: 1 + self._tcp]:
            dsn = way("postgres")
            if (found := data_directory(dsn)) != self.data:
                raise ServerError(f"another server answers at {dsn}: its data is in {found}")

    def kill(self) -> None:
        """End all processes of the server at once, as a crash of the machine does."""
        lock = self.data / "postmaster.pid"
        lines = lock.read_text("utf-8").splitlines() if lock.exists() else []
        shared = " ".join(lines[SHARED_LINE:][:1]).split()[1:]
        self._private.end(signal.SIGKILL)
        if shared and (ipcrm := shutil.which("ipcrm")):
            # A crash of the machine clears shared memory too. Here it would stay until a restart.
            subprocess.run([ipcrm, "-m", shared[0]], check=False, capture_output=True)

    def kill_postmaster(self) -> None:
        """Send SIGKILL to the parent process only. Its children notice and end by themselves."""
        self._private.end_alone(signal.SIGKILL)

    def stop(self) -> None:
        """Stop as an administrator does: connections are closed, and nothing is left to recover."""
        self._private.end(signal.SIGINT)

    def stop_at_once(self) -> None:
        """Stop as `pg_ctl stop -m immediate` does: without a checkpoint, so the next start recovers."""
        self._private.end(signal.SIGQUIT)

    def log(self) -> str:
        return self._private.log()


@contextmanager
def running_postgres(
    version: int | None = None,
    *,
    fsync: bool = False,
    settings: Mapping[str, str] | None = None,
    tcp: bool = False,
) -> Iterator[Postgres]:
    """Run a private server of this major version. With fsync its data is on a disk and survives a crash."""
    install = installs.find(version)
    with Private("pg", durable=fsync, last_signal=signal.SIGQUIT) as private:
        server = Postgres(private, install, fsync=fsync, settings=settings or {}, tcp=tcp)
        server.init()
        server.start()
        yield server


@contextmanager
def postgres_for_tests(version: int | None = None) -> Iterator[Postgres | NamedPostgres]:
    """Run the server for tests: the one of HOLDFAST_TEST_PG_DSN, else a private one.

    A version, given here or by HOLDFAST_TEST_PG_VERSION, always means a private one.
    """
    named, wanted = os.environ.get(NAMED_BY), os.environ.get(VERSION_BY)
    version = version if version is not None or not wanted else int(wanted)
    if named and version is None:
        with NamedPostgres(named) as server:
            yield server
    else:
        with running_postgres(version) as own:
            yield own
