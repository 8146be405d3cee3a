"""Stores and servers for tests of clients."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from servers.plugin import fresh_database, missing
from servers.private import ServerError
from servers.typescript import TypeScript
from tests.clients import kit, ledger
from tests.clients.golang import Go
from tests.laws.effort import longer

STORES = ("sqlite", "postgres", "redis")


@pytest.fixture(scope="session")
def sqlite_site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sqlite")
    with kit.site(f"sqlite:///{folder / 'store.db'}", folder) as one:
        yield one


@pytest.fixture(scope="session")
def postgres_site(postgres_server, tmp_path_factory):
    with ExitStack() as stack:
        database = fresh_database(postgres_server, stack)
        one = stack.enter_context(kit.site(database.url, tmp_path_factory.mktemp("postgres")))
        one.dsn = database.dsn
        yield one


@pytest.fixture(scope="session")
def redis_site(request, tmp_path_factory):
    if request.config.getoption("--no-redis"):
        pytest.skip("--no-redis")
    from servers.redis_store import server

    with kit.site(server().url("clients"), tmp_path_factory.mktemp("redis")) as one:
        yield one


@pytest.fixture
def site(sqlite_site):
    """The server on SQLite. Tests share it and must not stop it; their worker programs end with them."""
    with sqlite_site.workers() as one:
        yield one


@pytest.fixture(params=STORES)
def site_on(request):
    """The server on each store, shared in the same way."""
    with request.getfixturevalue(f"{request.param}_site").workers() as one:
        yield one


@pytest.fixture(params=["sqlite", *longer("postgres", "redis")])
def site_on_some(request):
    """The server on SQLite, and in the long form on each store."""
    with request.getfixturevalue(f"{request.param}_site").workers() as one:
        yield one


@pytest.fixture
def own_site(tmp_path):
    """A server on SQLite for this test alone, which may kill it."""
    with kit.site(f"sqlite:///{tmp_path / 'store.db'}", tmp_path) as one:
        yield one


@pytest.fixture(scope="session")
def typescript():
    """The built TypeScript client."""
    try:
        return TypeScript()
    except ServerError as error:
        missing(str(error), "CI")


@pytest.fixture(scope="session")
def go(tmp_path_factory):
    """The Go client."""
    return Go("go", tmp_path_factory.mktemp("go"))


@pytest.fixture
def book():
    """A ledger for the steps of scripts."""
    with ledger.ledger() as one:
        yield one
