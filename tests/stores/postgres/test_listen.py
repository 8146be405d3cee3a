"""Hints: they come fast, come again after every trouble, and nobody needs them."""

from __future__ import annotations

import asyncio
import time
from uuid import UUID

import psycopg
import pytest

from holdfast.records import NewRun
from holdfast.stores.postgres import PostgresStore, listening
from tests.stores.postgres.opened import opened, sessions, until

HINT = "select pg_notify('holdfast_workflow', '')"


class Heard:
    """A listener that counts."""

    def __init__(self, store):
        self.store, self.count, self.event = store, 0, asyncio.Event()
        self.end = store.listen(self)

    def __call__(self):
        self.count += 1
        self.event.set()

    async def next(self, seconds=5.0):
        async with asyncio.timeout(seconds):
            await self.event.wait()
        self.event.clear()


async def listening_now(store):
    await until(lambda: store._ears.heard)
    await asyncio.sleep(0)


@pytest.mark.spec("STORE-1")
def test_a_hint_of_another_process_comes_at_once(database, admin):
    async def main():
        async with opened(database.url) as store:
            heard = Heard(store)
            await listening_now(store)
            await heard.next()
            began = time.monotonic()
            admin.execute(HINT)
            await heard.next()
            assert time.monotonic() - began < 0.5
            heard.end()
            count = heard.count
            admin.execute(HINT)
            await store._call("who")
            assert heard.count == count

    asyncio.run(main())


def test_whoever_begins_to_listen_is_called_once_for_what_came_before(database):
    """Between his last look and the session that listens something may have come."""

    async def main():
        async with opened(database.url) as store:
            await Heard(store).next()

    asyncio.run(main())


def test_many_commits_are_one_hint(database, admin):
    """Once a turn of the loop, however many came."""

    async def main():
        async with opened(database.url) as store:
            heard = Heard(store)
            await listening_now(store)
            await heard.next()
            count = heard.count
            for _ in range(200):
                admin.execute(HINT)
            await heard.next()
            assert heard.count - count < 50

    asyncio.run(main())


@pytest.mark.spec("STORE-1")
def test_a_listener_that_was_cut_off_listens_again_and_looks(database, admin, caplog):
    """Something may have come while nobody heard it. One line in the log each way."""

    async def main():
        async with opened(database.url) as store:
            heard = Heard(store)
            await listening_now(store)
            await heard.next()
            for _ in range(3):
                admin.execute(
                    "select pg_terminate_backend(pid) from pg_stat_activity "
                    "where query ilike 'listen%' and datname = current_database()"
                )
                await heard.next()
            admin.execute(HINT)
            await heard.next()

    with caplog.at_level("INFO", "holdfast.postgres"):
        asyncio.run(main())
    assert caplog.text.count("no hints for now, polling goes on") == 3
    assert caplog.text.count("hints come again") == 3


def test_a_link_that_died_in_silence_is_found_out(link, monkeypatch):
    """It looks like one on which nothing happens: it is asked for a sign of life."""
    monkeypatch.setattr(listening, "ALIVE_SECONDS", 0.05)
    monkeypatch.setattr(listening, "ALIVE_LIMIT_SECONDS", 0.2)

    async def main():
        async with opened(link.url()) as store:
            heard = Heard(store)
            await listening_now(store)
            await heard.next()
            link.silent = True
            await until(lambda: not store._ears.heard)
            link.silent = False
            link.cut()
            await heard.next(10)

    asyncio.run(main())


def test_a_server_that_is_away_is_asked_with_pauses(link, monkeypatch):
    async def main():
        async with opened(link.url()) as store:
            heard = Heard(store)
            await listening_now(store)
            await heard.next()
            tries = []
            connected = listening.connected

            async def counted(address, **options):
                tries.append(address)
                return await connected(address, **options)

            monkeypatch.setattr(listening, "connected", counted)
            link.refuse()
            await asyncio.sleep(0.5)
            assert len(tries) < 10
            link.accept()
            await heard.next()

    asyncio.run(main())


def test_without_listening_there_is_no_session_for_it(database, admin):
    """Behind a pooler a session is not one's own: hints would go to nobody."""

    async def main():
        async with opened(database.url + "&listen=off") as store:
            heard = Heard(store)
            await store._call("who")
            assert sessions(admin) == 1
            heard.end()

    asyncio.run(main())


def test_without_listening_news_of_this_process_come_all_the_same(database):
    """A start and the worker beside it: nobody has to wait for a poll."""

    async def main():
        async with opened(database.url + "&listen=off") as store:
            heard = Heard(store)
            await store.start([NewRun(id=UUID(int=7 << 76 | 2 << 62 | 1), type="shop.order.v1")])
            await heard.next()
            await store.now()
            assert heard.count == 1

    asyncio.run(main())


def test_who_listens_again_and_again_has_one_session(database, admin, monkeypatch):
    """As a client does that waits for one result after the other. It is let go when nobody comes back."""
    monkeypatch.setattr(listening, "LINGER_SECONDS", 0.2)

    async def main():
        async with opened(database.url) as store:
            for _ in range(20):
                heard = Heard(store)
                await listening_now(store)
                heard.end()
            assert sessions(admin) == 2
            await until(lambda: sessions(admin) == 1)
            heard = Heard(store)
            await heard.next()
            heard.end()
            heard.end()

    asyncio.run(main())


def test_listeners_on_a_loop_that_has_ended_harm_nobody(database, admin):
    store = PostgresStore(database.url)

    async def listens():
        await store.open()
        await Heard(store).next()

    asyncio.run(listens())
    asyncio.run(listens())
    asyncio.run(store.close())
    asyncio.run(until(lambda: not sessions(admin)))


def test_schemas_do_not_hear_each_other(database, admin):
    async def main():
        async with opened(database.url + "&schema=other") as store:
            heard = Heard(store)
            await listening_now(store)
            await heard.next()
            admin.execute(HINT)
            await store.now()
            await asyncio.sleep(0.05)  # for what must not come
            assert heard.count == 1
            with psycopg.connect(database.dsn, autocommit=True) as other:
                other.execute("set search_path = other; select hint()")
            await heard.next()

    asyncio.run(main())
