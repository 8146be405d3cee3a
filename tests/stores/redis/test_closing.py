"""A store that is closed leaves no connection behind, whenever it is closed and whoever gives up."""

from __future__ import annotations

import asyncio
import contextlib
import time

import pytest

from holdfast.errors import Unavailable
from holdfast.stores.redis import RedisStore


@pytest.fixture
def watched(own_server):
    """A store, and a function that waits until the server has no connection of it."""
    with own_server.client() as client:

        async def gone():
            deadline = time.monotonic() + 5
            while len(found := client.client_list()) > 1:
                assert time.monotonic() < deadline, found
                await asyncio.sleep(0.01)

        yield RedisStore(own_server.url()), gone


@pytest.mark.slow
@pytest.mark.spec("STORE-3")
@pytest.mark.parametrize("turns", [1, 2, 3, 6])
def test_a_close_ends_the_attempt_to_open(watched, turns):
    """It may not have begun yet. Otherwise the store would be open behind the close, and nobody closed it."""
    store, gone = watched

    async def scenario():
        callers = [asyncio.ensure_future(store.open()) for _ in range(2)]
        for _ in range(turns):
            await asyncio.sleep(0)
        callers[0].cancel()
        await store.close()
        with pytest.raises(asyncio.CancelledError):
            await callers[0]
        with pytest.raises(Unavailable, match="closed"):
            await callers[1]
        await gone()
        await store.open()
        assert await store.now() > 0
        await store.close()
        await gone()

    asyncio.run(scenario())


@pytest.mark.slow
@pytest.mark.spec("STORE-3")
@pytest.mark.parametrize("turns", [1, 2, 3])
def test_a_close_that_is_given_up_closes_everything_all_the_same(watched, turns):
    store, gone = watched

    async def scenario():
        await store.open()
        heard = asyncio.Event()
        store.listen(heard.set)  # called when the server has confirmed it
        await asyncio.wait_for(heard.wait(), 5)
        store.renew("w", [], 30.0)
        closing = asyncio.ensure_future(store.close())
        for _ in range(turns):
            await asyncio.sleep(0)
        closing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await closing
        await gone()
        await store.close()

    asyncio.run(scenario())


@pytest.mark.slow
@pytest.mark.spec("STORE-3")
def test_a_listener_of_a_closed_store_opens_no_connection(watched):
    store, gone = watched

    async def scenario():
        await store.open()
        await store.close()
        end = store.listen(lambda: None)
        await asyncio.sleep(0.05)  # a connection would be there by now
        assert not store.hears()
        await gone()
        end()

    asyncio.run(scenario())
