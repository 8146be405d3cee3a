"""Stores of experiments: a SQLite file in a temporary folder, or a new Postgres database.

The Postgres server is started for the command and runs until it ends, unless HOLDFAST_TEST_PG_DSN names one.
"""

from __future__ import annotations

import atexit
import itertools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

# Imported for types only: drivers take a quarter of a second to import, and SQLite does not need them.
if TYPE_CHECKING:
    from servers.named import NamedPostgres
    from servers.postgres import Postgres

SQLITE, POSTGRES = "sqlite", "postgres"


@dataclass
class _Server:
    """The server of a command: started once for all its experiments."""

    version: int | None = None
    server: Postgres | NamedPostgres | None = None
    stack: ExitStack = field(default_factory=ExitStack)


_shared = _Server()
_numbers = itertools.count(1)


def choose_version(version: int | None) -> None:
    """Choose the major version of all servers that are started from now on."""
    if version != _shared.version:
        _shared.stack.close()
        _shared.server = None
    _shared.version = version


def chosen_version() -> int | None:
    return _shared.version


def server() -> Postgres | NamedPostgres:
    """Return the shared server, started at the first call; without fsync, because nothing kills it."""
    from servers.postgres import postgres_for_tests

    if _shared.server is None:
        atexit.register(_shared.stack.close)
        _shared.server = _shared.stack.enter_context(postgres_for_tests(_shared.version))
    return _shared.server


@contextmanager
def use_server(running: Postgres | NamedPostgres) -> Iterator[None]:
    """Use a server that the caller has started, inside the block."""
    before, _shared.server = _shared.server, running
    try:
        yield
    finally:
        _shared.server = before


@contextmanager
def database(of: Postgres | NamedPostgres | None = None) -> Iterator[str]:
    """Make a database, and return its name; it is dropped at the end, with its sessions."""
    running, name = of or server(), f"verify{next(_numbers)}"
    running.create_database(name)
    try:
        yield name
    finally:
        running.drop_database(name)


@contextmanager
def store_url(store: str, folder: Path) -> Iterator[str]:
    """Return the URL of a new store. A URL is returned as it is."""
    if store == SQLITE:
        yield f"sqlite:///{folder / 'holdfast.db'}"
    elif store == POSTGRES:
        with database() as name:
            yield server().url(name)
    else:
        yield store


def is_postgres(url: str) -> bool:
    return url.startswith("postgres")
