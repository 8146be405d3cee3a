"""A pool of connections at its end."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from redis.exceptions import ConnectionError as DriverError

from holdfast.stores.redis.pool import Pool


class FakeLink:
    """A connection that only knows whether it is over."""

    is_over = False
    load = idle_seconds = 0

    @property
    def is_usable(self):
        return not self.is_over

    def close(self):
        self.is_over = True


def test_a_closed_pool_leaves_no_connection_behind():
    """One that is still being opened is closed when it is there, one that was replaced too; callers that
    wait get an error and not a cancel."""
    made, opens = [], asyncio.Event()

    async def opened():
        with contextlib.suppress(asyncio.CancelledError):  # as the driver may do
            await opens.wait()
        made.append(FakeLink())
        return made[-1]

    async def aside(node):
        await asyncio.sleep(0)
        made.append(FakeLink())
        return made[-1]

    async def scenario():
        pool = Pool(opened, aside, 4)
        first, second = await asyncio.gather(pool.aside(("host", 1)), pool.aside(("host", 1)))
        assert first is not second
        waiting = asyncio.ensure_future(pool.link())
        for _ in range(3):  # until it is being opened
            await asyncio.sleep(0)
        await pool.close()
        with pytest.raises(DriverError, match="closed"):
            await waiting
        with pytest.raises(DriverError, match="closed"):
            await pool.link()
        with pytest.raises(DriverError, match="closed"):
            await pool.aside(("host", 2))
        assert len(made) == 4
        assert all(link.is_over for link in made)

    asyncio.run(scenario())
