"""Wake-ups: they come fast, come again after every trouble, and nothing depends on them."""

from __future__ import annotations

import asyncio
import time
from uuid import UUID

import psycopg
import pytest

from holdfast.errors import Unavailable
from holdfast.records import Ask, NewRun
from holdfast.stores.postgres import PostgresStore
from holdfast.stores.postgres.sessions import listener as listening
from holdfast.stores.postgres.verbs.calls import json_text
from tests.stores.postgres.sessions.opened import opened, sessions, until

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
    await until(lambda: store._listeners.all_listening)
    await asyncio.sleep(0)


@pytest.mark.spec("STORE-1")
def test_a_hint_of_another_process_comes_at_once(database, admin):
    async def main():
        async with opened(database.url) as store:
            all_listening = Heard(store)
            await listening_now(store)
            await all_listening.next()
            began = time.monotonic()
            admin.execute(HINT)
            await all_listening.next()
            assert time.monotonic() - began < 0.5
            all_listening.end()
            count = all_listening.count
            admin.execute(HINT)
            await store._call("who")
            assert all_listening.count == count

    asyncio.run(main())


def test_a_new_listener_is_called_once_for_earlier_news(database):
    """Something may have happened between the last look and the start of the session."""

    async def main():
        async with opened(database.url) as store:
            await Heard(store).next()

    asyncio.run(main())


def test_many_commits_are_one_hint(database, admin):
    """Once in a turn of the loop, however many commits there were."""

    async def main():
        async with opened(database.url) as store:
            all_listening = Heard(store)
            await listening_now(store)
            await all_listening.next()
            count = all_listening.count
            for _ in range(200):
                admin.execute(HINT)
            await all_listening.next()
            assert all_listening.count - count < 50

    asyncio.run(main())


@pytest.mark.spec("STORE-1")
def test_a_listener_that_was_cut_off_listens_again_and_looks(database, admin, caplog):
    """Something may have happened while nobody listened. Each change logs one line and is a wake-up: from
    then on the worker looks more often, or as seldom as before.
    """

    async def main():
        async with opened(database.url) as store:
            all_listening = Heard(store)
            await listening_now(store)
            await all_listening.next()
            for _ in range(3):
                admin.execute(
                    "select pg_terminate_backend(pid) from pg_stat_activity "
                    "where query ilike 'listen%' and datname = current_database()"
                )
                await all_listening.next()
                assert not store.hears()
                await all_listening.next()
                assert store.hears()
            admin.execute(HINT)
            await all_listening.next()

    with caplog.at_level("INFO", "holdfast.postgres"):
        asyncio.run(main())
    assert caplog.text.count("no wake-ups for now, polling goes on") == 3
    assert caplog.text.count("wake-ups come again") == 3


def test_a_connection_that_died_in_silence_is_noticed(proxy, monkeypatch):
    """A dead session looks like one on which nothing happens, so it is asked for a sign of life."""
    monkeypatch.setattr(listening, "ALIVE_SECONDS", 0.05)
    monkeypatch.setattr(listening, "ALIVE_LIMIT_SECONDS", 0.2)

    async def main():
        async with opened(proxy.url()) as store:
            all_listening = Heard(store)
            await listening_now(store)
            await all_listening.next()
            proxy.silent = True
            await until(lambda: not store._listeners.all_listening)
            proxy.silent = False
            proxy.cut()
            await all_listening.next(10)

    asyncio.run(main())


@pytest.mark.spec("OPS-7")
@pytest.mark.spec("STORE-1")
def test_a_look_for_work_is_the_sign_of_life(database, admin, monkeypatch):
    """An idle worker asks nothing else. A session that was heard of a moment ago is left alone."""
    monkeypatch.setattr(listening, "SILENT_SECONDS", 0.2)

    async def main():
        async with opened(database.url) as store:
            Heard(store)
            await listening_now(store)
            asked = []
            session = next(iter(store._listeners._listeners.values()))._session
            session.add_query_logger(lambda said: asked.append(said.query))
            await store.due(())
            assert not asked
            await asyncio.sleep(0.25)
            both = await asyncio.gather(store.due(()), store.due(()))
            assert [one.claim_at for one in both] == [None, None]
            await store.due(())
            assert [sql for sql in asked if "due" in sql] == asked
            assert len(asked) == 1

    asyncio.run(main())


@pytest.mark.spec("STORE-1")
def test_a_look_on_a_session_that_is_lost_is_answered_elsewhere(database, admin, monkeypatch):
    """The caller gets its answer, and the listener listens again."""
    monkeypatch.setattr(listening, "SILENT_SECONDS", 0.0)

    async def main():
        async with opened(database.url) as store:
            heard = Heard(store)
            await listening_now(store)
            await heard.next()
            await store.due(())
            admin.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity "
                "where pid <> pg_backend_pid() and query ilike '%due%' and datname = current_database()"
            )
            assert (await store.due(())).claim_at is None
            await heard.next()
            await until(store.hears)
            admin.execute(HINT)
            await heard.next()

    asyncio.run(main())


@pytest.mark.spec("LEASE-6")
@pytest.mark.parametrize(("lease", "hints"), [(5.0, 1), (30.0, 0)])
def test_a_short_lease_is_a_hint(database, admin, lease, hints):
    """Keepers sleep for longer than that: without a hint they would find it long after its end."""

    async def main():
        async with opened(database.url) as store:
            await store.start([NewRun(id=UUID(int=1), type="shop.order.v1")])
            heard = Heard(store)
            await listening_now(store)
            await heard.next()
            ask = Ask(worker="w", types=("shop.order.v1",), limit=1, lease_seconds=lease)
            assert len(await store.claim(ask)) == 1
            assert await store.claim(ask) == []
            await asyncio.sleep(0.2)  # to see that nothing more comes
            assert heard.count == 1 + hints

    asyncio.run(main())


@pytest.mark.spec("LEASE-2")
def test_a_claim_with_a_short_lease_commits_without_a_wake_up(database):
    """Commits with wake-ups wait for each other. That of the claim is sent by a call of its own."""

    async def main():
        async with opened(database.url) as store:
            await store.start([NewRun(id=UUID(int=1), type="shop.order.v1")])
            heard = Heard(store)
            await listening_now(store)
            await heard.next()
            ask = Ask(worker="w", types=("shop.order.v1",), limit=1, lease_seconds=1.0)
            assert str(UUID(int=1)) in await store._call("claim", json_text(ask))
            await asyncio.sleep(0.2)  # to see that nothing comes
            assert heard.count == 1

    asyncio.run(main())


@pytest.mark.spec("LEASE-2")
def test_many_claims_share_their_wake_ups_and_a_failing_one_fails_no_claim(database, monkeypatch):
    async def main():
        async with opened(database.url) as store:
            runs = [NewRun(id=UUID(int=number), type="shop.order.v1") for number in range(1, 21)]
            await store.start(runs)
            called, plain, free = [], store._call, asyncio.Event()

            async def call(verb, *args):
                if verb != "announce_lease":
                    return await plain(verb, *args)
                called.append(verb)
                await free.wait()
                raise Unavailable("not now")

            monkeypatch.setattr(store, "_call", call)
            ask = Ask(worker="w", types=("shop.order.v1",), limit=1, lease_seconds=1.0)
            claims = [await store.claim(ask) for _ in runs]
            assert sum(len(one) for one in claims) == 20
            assert len(called) == 1
            free.set()
            await until(lambda: not store._pool()._soon)
            assert len(called) == 2, "one more, after the last claim"

    asyncio.run(main())


def test_a_server_that_is_away_is_asked_with_pauses(proxy, monkeypatch):
    async def main():
        async with opened(proxy.url()) as store:
            all_listening = Heard(store)
            await listening_now(store)
            await all_listening.next()
            tries = []
            connected = listening.connected

            async def counted(address, **options):
                tries.append(address)
                return await connected(address, **options)

            monkeypatch.setattr(listening, "connected", counted)
            proxy.refuse()
            await asyncio.sleep(0.5)
            assert len(tries) < 10
            proxy.accept()
            await all_listening.next()

    asyncio.run(main())


def test_without_listening_there_is_no_session_for_it(database, admin):
    """Behind a pooler each call may have another session: wake-ups would reach nobody."""

    async def main():
        async with opened(database.url + "&listen=off") as store:
            all_listening = Heard(store)
            await store._call("who")
            assert sessions(admin) == 1
            all_listening.end()

    asyncio.run(main())


def test_without_listening_news_of_this_process_come_all_the_same(database):
    """A start and a worker in the same process: the worker need not poll."""

    async def main():
        async with opened(database.url + "&listen=off") as store:
            all_listening = Heard(store)
            await store.start([NewRun(id=UUID(int=7 << 76 | 2 << 62 | 1), type="shop.order.v1")])
            await all_listening.next()
            await store.now()
            assert all_listening.count == 1

    asyncio.run(main())


def test_who_listens_again_and_again_has_one_session(database, admin, monkeypatch):
    """The pattern of a client that waits for one result after the other. The session ends when nobody comes
    back.
    """
    monkeypatch.setattr(listening, "LINGER_SECONDS", 0.2)

    async def main():
        async with opened(database.url) as store:
            for _ in range(20):
                all_listening = Heard(store)
                await listening_now(store)
                all_listening.end()
            assert sessions(admin) == 2
            await until(lambda: sessions(admin) == 1)
            all_listening = Heard(store)
            await all_listening.next()
            all_listening.end()
            all_listening.end()

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
            all_listening = Heard(store)
            await listening_now(store)
            await all_listening.next()
            admin.execute(HINT)
            await store.now()
            await asyncio.sleep(0.05)  # to see that nothing comes
            assert all_listening.count == 1
            with psycopg.connect(database.dsn, autocommit=True) as other:
                other.execute("set search_path = other; select hint()")
            await all_listening.next()

    asyncio.run(main())
