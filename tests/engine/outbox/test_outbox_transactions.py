"""Messages beside a transaction of the user: they share its commit, or wait for the next one."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import Backoff, Message
from holdfast.stores.sqlite import SqliteStore
from tests.engine.accounts import amounts, put, with_accounts


@pytest.fixture
def path(tmp_path):
    return with_accounts(tmp_path / "holdfast.db")


@pytest.fixture
def store(path, world):
    return SqliteStore(str(path), clock=world.now, inline=True)


@pytest.mark.spec("FLOW-18", "FLOW-16", "OUT-1")
async def test_a_message_of_a_transaction_is_there_with_what_it_writes_or_not_at_all(app, path):
    """A try that was rolled back sends nothing; messages that the body sent before it are not lost."""
    tries = []

    def deposit(connection, ctx):
        tries.append(1)
        ctx.send(Message("mail", len(tries)))
        put(connection, "ada", 5)
        if len(tries) == 1:
            raise ValueError("not yet")

    @app.workflow("bank.deposit.v1")
    async def banking(ctx):
        ctx.send("mail", "before")
        await ctx.transaction(deposit, ctx, retry=Backoff.fixed(0.1))

    async with app.worker(relay=False):
        await (await app.start(banking)).result(60)
    assert amounts(path) == {"ada": 5}
    assert [(one.step, one.payload) for one in await app.outbox()] == [
        ("send:mail", "before"),
        ("deposit", 2),
    ]


@pytest.mark.spec("FLOW-18", "OUT-1")
async def test_a_message_that_went_along_with_a_failed_transaction_goes_with_the_next_commit(app):
    """This holds even when the transaction never succeeds."""

    def deposit(connection):
        raise ValueError("never")

    @app.workflow("bank.deposit.v1")
    async def banking(ctx):
        ctx.send("mail", "still")
        try:
            await ctx.transaction(deposit, retry=Backoff.none())
        except Exception:  # noqa: BLE001 - it goes on without
            await asyncio.sleep(0)
        return "done"

    async with app.worker(relay=False):
        assert await (await app.start(banking)).result(60) == "done"
    assert [one.payload for one in await app.outbox()] == ["still"]
