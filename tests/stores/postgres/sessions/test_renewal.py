"""Renewals: from their own thread, on their own session, whatever the event loop does."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from holdfast.errors import StoreError, Unavailable
from holdfast.stores.blocking_calls import RENEWAL_SECONDS_MAX
from holdfast.stores.postgres import PostgresStore
from tests.stores.postgres.sessions.opened import cut_all, opened, sessions, until


def in_thread(work):
    """Run `work` on a thread without an event loop; return or raise its outcome."""
    outcome = []

    def run():
        try:
            outcome.append(work())
        except BaseException as error:  # noqa: BLE001
            outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(20)
    return outcome[0]


@pytest.mark.spec("LEASE-8")
def test_a_blocked_event_loop_does_not_hold_it_up(database):
    """The calling thread drives the session itself."""

    async def main():
        async with opened(database.url) as store:
            assert (
                in_thread(lambda: store._call_blocking(2, "nap", 0.01)) == 0.01
            )  # joined here, so that the loop is blocked
            assert store._call_blocking(2, "nap", 0.01) == 0.01  # also here, where a loop runs

    asyncio.run(main())


def test_all_renewals_share_one_session(database, admin):
    async def main():
        async with opened(database.url) as store:
            pids = {in_thread(lambda: store._call_blocking(2, "who")) for _ in range(5)}
            assert len(pids) == 1
            assert sessions(admin) == 2
        await until(lambda: not sessions(admin))

    asyncio.run(main())


def test_it_does_not_wait_for_sessions_that_are_busy(database):
    """Eight calls use all sessions of the loop; the lease is renewed all the same."""

    async def main():
        async with opened(database.url) as store:
            calls = [asyncio.create_task(store._call("nap", 1.0)) for _ in range(16)]
            await asyncio.sleep(0.1)
            began = time.monotonic()
            assert await asyncio.to_thread(store._call_blocking, 2, "who")
            assert time.monotonic() - began < 0.8
            await asyncio.wait(calls)

    asyncio.run(main())


def test_a_silent_connection_blocks_no_longer_than_the_limit(proxy):
    async def main():
        async with opened(proxy.url()) as store:
            assert in_thread(lambda: store._call_blocking(2, "who"))
            proxy.silent = True
            began = time.monotonic()
            told = in_thread(lambda: store._call_blocking(0.3, "who"))
            assert isinstance(told, Unavailable)
            assert "has not answered within 0.3 s" in str(told)
            assert time.monotonic() - began < 1
            proxy.silent = False
            assert in_thread(lambda: store._call_blocking(2, "who"))

    asyncio.run(main())


def test_a_server_that_cannot_be_reached_is_told_of_at_once(proxy):
    async def main():
        async with opened(proxy.url()) as store:
            proxy.refuse()
            told = in_thread(lambda: store._call_blocking(5, "who"))
            assert isinstance(told, Unavailable)
            assert "is the server running" in str(told)
            proxy.accept()
            assert in_thread(lambda: store._call_blocking(5, "who"))

    asyncio.run(main())


def test_a_session_that_was_lost_is_replaced(database, admin):
    async def main():
        async with opened(database.url) as store:
            first = in_thread(lambda: store._call_blocking(2, "who"))
            cut_all(admin)
            second = in_thread(lambda: store._call_blocking(2, "who"))
            assert isinstance(second, int)
            assert second != first

    asyncio.run(main())


def test_what_stands_in_the_way_is_sent_again_and_a_mistake_is_not(database):
    async def main():
        async with opened(database.url) as store:
            assert in_thread(lambda: store._call_blocking(2, "stumbles", 1, "40P01")) == 2
            told = in_thread(lambda: store._call_blocking(2, "stumbles", 1000, "22012"))
            assert isinstance(told, StoreError)
            assert not isinstance(told, Unavailable)

    asyncio.run(main())


@pytest.mark.parametrize(("lease", "limit"), [(0.5, 0.25), (4.0, 1.0), (30.0, 5.0), (3600.0, 5.0)])
def test_its_limit_is_well_under_the_lease(monkeypatch, lease, limit):
    """There is time for another try before the lease ends."""
    store = PostgresStore("postgresql://db/orders")
    asked = []

    def answer(limit_seconds, *_):
        asked.append(limit_seconds)
        return '{"held": []}'

    monkeypatch.setattr(store, "_call_blocking", answer)
    assert store.renew("w", [], lease).held == ()
    assert asked == [limit]
    assert RENEWAL_SECONDS_MAX < 10


def test_it_is_closed_with_the_store_and_opened_with_it(database, admin):
    store = PostgresStore(database.url)
    with pytest.raises(Unavailable, match="the store is not open"):
        store._call_blocking(2, "who")
    for _ in range(2):
        asyncio.run(store.open())
        assert store._call_blocking(2, "who")
        asyncio.run(store.close())
        asyncio.run(until(lambda: not sessions(admin)))
