"""One attempt to open a store, for all calls that need it."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.errors import Unavailable
from holdfast.stores import opening
from holdfast.stores.opening import Opening


@pytest.mark.spec("STORE-3")
def test_a_close_does_not_wait_for_ever_for_an_attempt(monkeypatch):
    """A server that does not answer any more keeps its transaction from ending."""
    monkeypatch.setattr(opening, "END_SECONDS", 0.01)

    async def main():
        one, answered = Opening(), asyncio.Event()

        async def attempt():
            try:
                await asyncio.Event().wait()
            finally:
                await answered.wait()

        caller = asyncio.create_task(one.share(attempt))
        await asyncio.sleep(0)
        async with asyncio.timeout(1):
            await one.end()
        answered.set()
        with pytest.raises(Unavailable, match="closed while it was being opened"):
            await caller

    asyncio.run(main())
