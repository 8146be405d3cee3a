"""Databases with a store in them, and links to them."""

from __future__ import annotations

import asyncio
import inspect

import psycopg
import pytest

from holdfast.testing.contract.hand import Clock, Hand
from tests.stores.postgres import kit
from tests.stores.postgres.deeds import Holder
from tests.stores.postgres.engines import KINDS
from tests.stores.postgres.opened import VERBS, opened
from tests.stores.postgres.proxy import Proxy
from tests.stores.postgres.sessions import Session
from tests.stores.postgres.stranger import Stranger


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """An async test has an event loop of its own, on the wall clock: the server has no other."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    given = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    asyncio.run(pyfuncitem.obj(**given))
    return True


@pytest.fixture
def database(postgres_database):
    asyncio.run(_make(postgres_database.url))
    with psycopg.connect(postgres_database.dsn, autocommit=True) as connection:
        connection.execute(VERBS)
    return postgres_database


@pytest.fixture
def link(database):
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
def hand(clock, tmp_path):
    hand = Hand(kit.make(clock, tmp_path), clock)
    yield hand
    hand.close()


@pytest.fixture
def sessions(hand):
    """Two sessions beside the store's own, for races."""
    two = [Session(hand.clock.now) for _ in range(2)]
    yield two
    for one in two:
        one.close()


@pytest.fixture
def plain(hand):
    """A stranger on the store of the hand."""
    stranger = Stranger(kit.database()[0], hand.clock)
    yield stranger
    stranger.close()


@pytest.fixture(params=sorted(KINDS))
def holder(request, hand):
    """One who holds a run, with a connection of each kind."""
    holder = Holder(hand, request.param)
    yield holder
    holder.close()


@pytest.fixture
def mine(hand):
    """On sessions of the store's own."""
    return Holder(hand)
