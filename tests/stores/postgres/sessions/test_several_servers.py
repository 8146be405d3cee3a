"""A URL that names several servers: one that can serve is found, whatever the others do."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from holdfast.errors import Unavailable
from holdfast.stores.postgres import PostgresStore
from holdfast.stores.postgres.address import parsed
from holdfast.stores.postgres.sessions.session import connected
from tests.stores.postgres.sessions.opened import refused
from tests.stores.postgres.sessions.proxy import Proxy

BOTH_SECONDS = 1.0  # half of it for each


@pytest.fixture
def pair(database):
    """Two proxies to one server, like two servers, and the URL that names both."""
    with Proxy(database.dsn) as one, Proxy(database.dsn) as other:
        yield one, other, one.url().replace(f":{one.port}", f":{one.port},127.0.0.1:{other.port}")


async def _connect(url):
    proxy = await connected(parsed(url), BOTH_SECONDS)
    await proxy.leave()


def test_one_that_lost_its_power_keeps_nobody_from_the_other(pair):
    """The server takes everything and answers nothing, so there is no error."""
    one, other, url = pair
    one.silent = True
    asyncio.run(_connect(url))
    assert (one.accepted, other.accepted) == (1, 1)


def test_the_one_that_served_is_asked_first_the_next_time(pair):
    one, other, url = pair
    one.refuse()
    asyncio.run(_connect(url))
    one.accept()
    asyncio.run(_connect(url))
    assert (one.accepted, other.accepted) == (0, 2)
    other.refuse()
    asyncio.run(_connect(url))
    asyncio.run(_connect(url))
    assert (one.accepted, other.accepted) == (2, 2)


def test_a_worker_that_was_at_the_one_goes_on_at_the_other(pair):
    one, other, url = pair

    async def main():
        store = PostgresStore(url)
        await store.open()
        assert await store._call("who")
        one.refuse()
        assert await store._call("who")
        await store.close()

    asyncio.run(main())
    assert other.accepted


def test_what_is_wrong_with_the_last_one_is_told_when_none_serves(pair):
    one, other, url = pair
    one.refuse()
    asyncio.run(refused(url.replace(f"{other.port}/", f"{other.port}/no"), "no such database"))
    other.refuse()
    with pytest.raises(Unavailable, match="connection refused"):
        asyncio.run(PostgresStore(url).open())


def test_a_server_that_is_not_of_the_kind_that_is_asked_for_is_told(database):
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        connection.execute(f'alter database "{database.name}" set default_transaction_read_only = on')
    url = f"{database.url}&target_session_attrs=read-write"
    with pytest.raises(Unavailable, match="is now what its target_session_attrs asks for"):
        asyncio.run(PostgresStore(url).open())


@pytest.mark.parametrize(
    ("url", "each"),
    [
        ("postgresql://me@db/orders", ["postgresql://me@db/orders"]),
        ("postgresql:///orders?host=/run/pg", ["postgresql:///orders?host=/run/pg"]),
        (
            "postgresql://me:x@a:1,[::1]:2,c/orders?sslmode=disable",
            [
                "postgresql://me:x@a:1/orders?sslmode=disable&target_session_attrs=read-write",
                "postgresql://me:x@[::1]:2/orders?sslmode=disable&target_session_attrs=read-write",
                "postgresql://me:x@c/orders?sslmode=disable&target_session_attrs=read-write",
            ],
        ),
        (
            "postgresql://a,b/orders?target_session_attrs=any",
            [f"postgresql://{host}/orders?target_session_attrs=any" for host in "ab"],
        ),
    ],
)
def test_each_server_has_all_the_rest_of_the_address(url, each):
    """With several servers the one that takes writes is meant, unless the URL says otherwise."""
    assert parsed(url).each == each
