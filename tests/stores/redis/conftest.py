"""Fixtures: a private server for tests that stop it or set it up, and drivers of stores."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.stores.redis import RedisStore
from holdfast.stores.redis.address import parsed
from holdfast.stores.redis.connections import Connections
from holdfast.testing.contract.driver import Clock, StoreDriver
from servers.plugin import started
from servers.redis import running_redis
from servers.redis_store import make
from tests.stores.redis.producer.producing import Producer


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def driver(clock):
    driver = StoreDriver(make(clock), clock)
    yield driver
    driver.close()


@pytest.fixture
def own_server():
    """A server of this test alone, which it may stop, kill and set up."""
    with started(running_redis()) as server:
        yield server


@pytest.fixture
def opened(own_server, clock):
    """Function that opens a store on the test's own server."""
    drivers = []

    def open_one(prefix="holdfast"):
        drivers.append(StoreDriver(RedisStore(own_server.url(prefix), clock), clock))
        return drivers[-1]

    yield open_one
    for one in drivers:
        one.close()


@pytest.fixture
def calling():
    """Function that runs a function of connections: `calling(url, work, call_seconds=0.1)`."""

    def call(url, work, call_seconds=10.0):
        async def main():
            connections = Connections(parsed(url))
            connections.is_open, connections.call_seconds = True, call_seconds
            try:
                return await work(connections)
            finally:
                await connections.close()

        return asyncio.run(main())

    return call


@pytest.fixture
def made():
    """Function that makes a producer with a namespace of its own."""
    producers = []

    def make_one(maker=make):
        producers.append(Producer(maker(None)))
        return producers[-1]

    yield make_one
    for one in producers:
        one.driver.close()


@pytest.fixture
def produce(made):
    return made()
