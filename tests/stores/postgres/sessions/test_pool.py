"""Sessions of a pool: few and warm, a deadline for every call, and calls whose connection is lost."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time

import pytest

from holdfast.errors import StoreError, Unavailable
from holdfast.stores.postgres import PostgresStore
from holdfast.stores.postgres.sessions import pool as pools
from servers.postgres import running_postgres
from tests.stores.postgres.sessions.opened import cut_all, opened, refused, sessions, until


@pytest.mark.parametrize("options", ["allow_fsync_off=1", "allow_fsync_off=1&listen=off"])
def test_a_warm_call_is_one_round_trip(proxy, options):
    """Nothing is sent before the call or after it."""

    async def main():
        async with opened(proxy.url(options)) as store:
            await store._call("who")
            before = len(proxy.sent)
            for _ in range(5):
                await store._call("who")
            assert len(proxy.sent) - before == 5

    asyncio.run(main())


def test_a_silent_connection_blocks_nobody_beyond_the_deadline(proxy):
    """Neither the call nor the close waits longer; and the next call has a new session."""

    async def main():
        async with opened(proxy.url()) as store:
            store.call_seconds = 0.3
            proxy.silent = True
            began = time.monotonic()
            with pytest.raises(Unavailable, match=r"has not answered within 0\.3 s"):
                await store._call("who")
            assert time.monotonic() - began < 2
            proxy.silent = False
            assert await store._call("who")
            proxy.silent = True
        proxy.silent = False

    asyncio.run(main())


def test_what_nobody_waits_for_any_more_is_given_up_by_the_server(database, admin):
    """Otherwise calls that wait for a lock would pile up until no connection is left."""

    async def main():
        async with opened(database.url) as store:
            store.call_seconds = 0.2
            with pytest.raises(Unavailable):
                await store._call("nap", 30.0)
            await until(lambda: not naps(admin))

    asyncio.run(main())


def naps(admin):
    """The sessions that sleep in a call."""
    rows = admin.execute(
        "select pid from pg_stat_activity where query like '%nap(%' and state = 'active' "
        "and datname = current_database() and pid <> pg_backend_pid()"
    )
    return {pid for (pid,) in rows}


def test_a_session_that_was_lost_is_replaced_without_a_word(database, admin):
    """The session may have been lost long ago: by a restart of the server, or an idle limit of a firewall."""

    async def main():
        async with opened(database.url) as store:
            first = await store._call("who")
            cut_all(admin)
            assert await store._call("who") != first

    asyncio.run(main())


def test_a_call_that_is_lost_twice_is_unavailable(database, admin):
    async def main():
        async with opened(database.url) as store:
            call = asyncio.create_task(store._call("nap", 20.0))
            cut: set[int] = set()
            for _ in range(2):
                # Another session than before: the call may be sent again before the lost session is noticed.
                await until(lambda: naps(admin) - cut)
                cut.update(naps(admin))
                cut_all(admin)
            with pytest.raises(Unavailable):
                await call
            assert await store._call("who")

    asyncio.run(main())


@pytest.mark.parametrize("code", ["40P01", "40001", "55P03"])
def test_what_stands_in_the_way_of_others_is_sent_again(database, code):
    async def main():
        async with opened(database.url) as store:
            assert await store._call("stumbles", 3, code) == 4
            with pytest.raises(Unavailable):
                await store._call("stumbles", 1000, code)

    asyncio.run(main())


@pytest.mark.parametrize("code", ["53100", "57P03", "53300", "25006", "42501", "08006"])
def test_what_the_machine_does_is_unavailable(database, code):
    """A holder retries until it succeeds: a full disk fails nothing."""

    async def main():
        async with opened(database.url) as store:
            with pytest.raises(Unavailable, match=r"^postgresql://"):
                await store._call("stumbles", 1000, code)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("verb", "args", "said"),
    [
        ("stumbles", (1000, "22012"), r"stumbled \(22012\)"),
        ("nap", ("soon",), "invalid input"),
        ("who", (), None),
    ],
)
def test_a_mistake_of_ours_is_not_called_unavailable(database, verb, args, said):
    """A retry would never succeed."""

    async def main():
        async with opened(database.url) as store:
            if said is not None:
                with pytest.raises(StoreError, match=said) as caught:
                    await store._call(verb, *args)
                assert not isinstance(caught.value, Unavailable)
            assert await store._call("who")

    asyncio.run(main())


def test_a_call_that_is_cancelled_leaves_nothing_behind(database, admin):
    async def main():
        async with opened(database.url) as store:
            for _ in range(20):
                call = asyncio.create_task(store._call("nap", 20.0))
                await asyncio.sleep(0)
                call.cancel()
                await asyncio.wait([call])
            calls = [asyncio.create_task(store._call("nap", 0.01)) for _ in range(30)]
            await asyncio.sleep(0.015)
            for call in calls[::2]:
                call.cancel()
            await asyncio.wait(calls)
            assert [await call for call in calls[1::2]] == [0.01] * 15
            assert len(store._pool().sessions) <= pools.MOST

    asyncio.run(main())


def test_many_calls_share_few_sessions_and_idle_ones_are_let_go(database, admin, monkeypatch):
    async def main():
        async with opened(database.url) as store:
            pids = await asyncio.gather(*(store._call("nap", 0.02) for _ in range(64)))
            assert len(pids) == 64
            pool = store._pool()
            assert pools.KEPT < len(pool.sessions) <= pools.MOST == sessions(admin)
            monkeypatch.setattr(pools, "IDLE_SECONDS", 0.0)
            pool._trim_idle()
            await until(lambda: sessions(admin) <= pools.KEPT)
            assert await store._call("who")

    asyncio.run(main())


def test_a_server_without_a_place_left_serves_those_who_have_one(postgres_server, database, admin):
    """Calls wait for a free session; nobody is told that the server is full."""
    role = f"few_{database.name}"
    admin.execute(f"create role {role} login connection limit 2")
    try:
        admin.execute(f"grant usage on schema workflow to {role}")
        admin.execute(f"grant select on all tables in schema workflow to {role}")
        url = database.url.replace("postgres@", f"{role}@")

        async def main():
            async with opened(url) as store:
                assert await asyncio.gather(*(store._call("nap", 0.01) for _ in range(30))) == [0.01] * 30
                assert len(store._pool().sessions) == 2
                await refused(url, "no connection left")

        asyncio.run(main())
    finally:
        admin.execute(f"drop owned by {role}")
        admin.execute(f"drop role {role}")


def test_a_store_is_opened_asked_and_closed_from_several_loops(database, admin):
    """Also when the loop that opened the store has ended without closing it."""
    store = PostgresStore(database.url)
    asyncio.run(store.open())
    first = asyncio.run(store._call("who"))
    assert asyncio.run(store._call("who")) != first
    told = []
    elsewhere = threading.Thread(target=lambda: told.append(asyncio.run(store._call("who"))))
    elsewhere.start()
    elsewhere.join()
    assert told
    asyncio.run(store.close())
    asyncio.run(store.close())
    asyncio.run(until(lambda: not sessions(admin)))
    with pytest.raises(Unavailable, match="the store is not open"):
        asyncio.run(store._call("who"))
    asyncio.run(store.open())
    assert asyncio.run(store._call("who"))
    asyncio.run(store.close())


def test_many_first_calls_open_a_store_with_one_session(database, admin):
    """500 starts at once on a new app must not take 500 connections. A caller that gives up ends no other."""

    async def main():
        store = PostgresStore(database.url)
        calls = [asyncio.create_task(store.open()) for _ in range(500)]
        await asyncio.sleep(0)
        calls[0].cancel()
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(one) for one in outcomes] == [asyncio.CancelledError] + [type(None)] * 499
        assert len(store._pool().sessions) == sessions(admin) == 1
        await store.close()

    asyncio.run(main())


def test_a_close_ends_the_attempt_to_open(database, admin):
    """Otherwise the store would be open behind the close, and nobody would close it."""

    async def main():
        store = PostgresStore(database.url)
        opening = asyncio.create_task(store.open())
        await asyncio.sleep(0)
        await store.close()
        with pytest.raises(Unavailable, match="closed while it was being opened"):
            await opening
        await until(lambda: not sessions(admin))
        with pytest.raises(Unavailable, match="the store is not open"):
            await store._call("who")

    asyncio.run(main())


def test_a_close_that_is_given_up_closes_everything_all_the_same(database):
    """Otherwise its sessions would stay open, and no later close would know them."""

    async def main():
        store = PostgresStore(database.url)
        await store.open()
        call = asyncio.create_task(store._call("nap", 3.0))
        await until(lambda: store._pool().sessions and not store._pool()._idle)
        closing = asyncio.create_task(store.close())  # it gives the call a moment to end
        for _ in range(5):
            await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        with pytest.raises(Unavailable):
            async with asyncio.timeout(1):
                await call

    asyncio.run(main())


def test_many_first_calls_hear_of_a_server_that_is_away():
    """All of them at once, and a later call tries again."""

    async def main():
        store = PostgresStore("postgresql://someone@127.0.0.1:1/nothing?connect_timeout=5")
        for _ in range(2):
            outcomes = await asyncio.gather(*(store.open() for _ in range(50)), return_exceptions=True)
            assert {type(one) for one in outcomes} == {Unavailable}

    asyncio.run(main())


def test_closing_lets_what_is_under_way_come_to_its_end(database):
    async def main():
        store = PostgresStore(database.url)
        await store.open()
        call = asyncio.create_task(store._call("nap", 0.1))
        await asyncio.sleep(0.02)
        await store.close()
        assert await call == 0.1

    asyncio.run(main())


@pytest.mark.parametrize("seconds", [0.0, 90.0])
def test_plans_are_made_anew_after_a_slow_call_and_once_a_minute(proxy, monkeypatch, seconds):
    """A plan that was made while a table was empty would stay, however slow it has become."""
    monkeypatch.setattr(pools, "SLOW_SECONDS", 0.05)
    monkeypatch.setattr(pools, "PLANS_AGAIN_SECONDS", 0.0)

    async def main():
        async with opened(proxy.url()) as store:
            await store._call("who")
            assert not any(b"discard plans" in piece for piece in proxy.sent)
            [session] = store._pool().sessions
            session.planned_at -= seconds
            session.calls += pools.PLANS_CALLS
            await store._call("nap", 0.0 if seconds else 0.06)
            await store._call("who")
            assert sum(b"discard plans" in piece for piece in proxy.sent) == 1

    asyncio.run(main())


@pytest.mark.slow
@pytest.mark.spec("STORE-1")
def test_work_goes_on_within_seconds_of_the_server_being_back():
    """Killed and restarted: meanwhile callers get an error after a while, and the server is not overrun."""
    with running_postgres() as server:
        server.create_database("orders")

        async def main():
            async with opened(server.url("orders")) as store:
                server.kill()
                began = time.monotonic()
                with pytest.raises(Unavailable, match="is the server running"):
                    await store.now()
                assert time.monotonic() - began < pools.PATIENCE_SECONDS + 1
                calls = [asyncio.create_task(store.now()) for _ in range(20)]
                await asyncio.sleep(0)
                await asyncio.to_thread(server.start)
                await asyncio.wait(calls, timeout=5)
                async with asyncio.timeout(5):
                    while True:
                        try:
                            assert await store.now()
                            break
                        except Unavailable:
                            await asyncio.sleep(0.05)

        asyncio.run(main())


def test_one_attempt_to_connect_at_a_time_and_pauses_in_between(database, proxy, monkeypatch):
    """However many callers wait."""
    monkeypatch.setattr(pools, "PATIENCE_SECONDS", 0.5)

    async def main():
        async with opened(proxy.url()) as store:
            proxy.refuse()
            tries = []
            connected = pools.connected

            async def counted(address, **options):
                tries.append(time.monotonic())
                return await connected(address, **options)

            monkeypatch.setattr(pools, "connected", counted)
            began = time.monotonic()
            told = await asyncio.gather(*(store._call("who") for _ in range(100)), return_exceptions=True)
            assert all(isinstance(one, Unavailable) for one in told)
            assert time.monotonic() - began < 3
            assert len(tries) < 10
            proxy.accept()
            async with asyncio.timeout(10):
                while not await _answers(store):  # noqa: ASYNC110 - it is asked, nobody tells
                    await asyncio.sleep(0.05)

    asyncio.run(main())


async def _answers(store):
    with contextlib.suppress(Unavailable):
        return await store._call("who")
