"""Fixtures: databases with a store, and sessions on them."""

from __future__ import annotations

import asyncio
import inspect
from contextlib import ExitStack

import psycopg
import pytest

from holdfast.testing.contract.driver import Clock, StoreDriver
from servers.plugin import fresh_database
from tests.stores.postgres import kit
from tests.stores.postgres.caller.engines import KINDS
from tests.stores.postgres.caller.holder import Holder
from tests.stores.postgres.session import Session
from tests.stores.postgres.sessions.opened import VERBS, opened
from tests.stores.postgres.sessions.proxy import Proxy
from tests.stores.postgres.user_sql.user_sql import UserSqlSession


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Run each async test on its own event loop, by the wall clock: the server has no other clock."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    given = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    asyncio.run(pyfuncitem.obj(**given))
    return True


@pytest.fixture(scope="session")
def with_schema(postgres_server):
    """The name of a database with the schema: a copy of it takes a tenth of the time of its migrations."""
    name = "with_schema"
    postgres_server.create_database(name)
    asyncio.run(_make(postgres_server.url(name)))
    with psycopg.connect(postgres_server.dsn(name), autocommit=True) as connection:
        connection.execute(VERBS)
    return name


@pytest.fixture
def database(postgres_server, with_schema):
    """A database with a store, for this test alone."""
    with ExitStack() as stack:
        yield fresh_database(postgres_server, stack, template=with_schema)


@pytest.fixture
def proxy(database):
    with Proxy(database.dsn) as proxy:
        yield proxy


@pytest.fixture
def admin(database):
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        yield connection


async def _make(url):
    async with opened(url):
        pass


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def driver(clock, tmp_path):
    driver = StoreDriver(kit.make(clock, tmp_path), clock)
    yield driver
    driver.close()


@pytest.fixture
def sessions(driver):
    """Two sessions beside the store's own, for races."""
    two = [Session(driver.clock.now) for _ in range(2)]
    yield two
    for one in two:
        one.close()


@pytest.fixture
def user_sql(driver):
    """A session of user SQL on the driver's store."""
    session = UserSqlSession(kit.database()[0], driver.clock)
    yield session
    session.close()


@pytest.fixture(params=sorted(KINDS))
def holder(request, driver):
    """A holder of a run, with a connection of each kind."""
    holder = Holder(driver, request.param)
    yield holder
    holder.close()


@pytest.fixture
def mine(driver):
    """A holder with sessions of the store."""
    return Holder(driver)
