"""Where stores are that an experiment plays on: a file in its folder, or a database of its own.

The Postgres server is ours and runs until the command ends, unless HOLDFAST_TEST_PG_DSN names one.
"""

from __future__ import annotations

import atexit
import itertools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

# Drivers take a quarter of a second to import; experiments on SQLite do without.
if TYPE_CHECKING:
    from servers.named import NamedPostgres
    from servers.postgres import Postgres

SQLITE, POSTGRES = "sqlite", "postgres"


@dataclass
class _Lasting:
    """What is started once for all experiments of a command."""

    version: int | None = None
    server: Postgres | NamedPostgres | None = None
    stack: ExitStack = field(default_factory=ExitStack)


_lasting = _Lasting()
_numbers = itertools.count(1)


def choose_version(version: int | None) -> None:
    """The major version of all servers that are started from here on."""
    if version != _lasting.version:
        _lasting.stack.close()
        _lasting.server = None
    _lasting.version = version


def chosen_version() -> int | None:
    return _lasting.version


def server() -> Postgres | NamedPostgres:
    """Without fsync: it outlives all of its clients, and nobody kills it."""
    from servers.postgres import postgres_for_tests

    if _lasting.server is None:
        atexit.register(_lasting.stack.close)
        _lasting.server = _lasting.stack.enter_context(postgres_for_tests(_lasting.version))
    return _lasting.server


@contextmanager
def lent(running: Postgres | NamedPostgres) -> Iterator[None]:
    """For a while that server, which somebody else has started."""
    before, _lasting.server = _lasting.server, running
    try:
        yield
    finally:
        _lasting.server = before


@contextmanager
def database(of: Postgres | NamedPostgres | None = None) -> Iterator[str]:
    """The name of a new one; gone at the end, whoever is connected."""
    running, name = of or server(), f"verify{next(_numbers)}"
    running.create_database(name)
    try:
        yield name
    finally:
        running.drop_database(name)


@contextmanager
def place(store: str, folder: Path) -> Iterator[str]:
    """The URL of a store that nobody else knows. A URL stays what it is."""
    if store == SQLITE:
        yield f"sqlite:///{folder / 'holdfast.db'}"
    elif store == POSTGRES:
        with database() as name:
            yield server().url(name)
    else:
        yield store


def is_postgres(url: str) -> bool:
    return url.startswith("postgres")
