"""Transactions of another database in a rehearsal."""

from __future__ import annotations

import holdfast as hf


def test_a_transaction_of_another_database_runs_as_a_sync_replacement(rehearsal):
    """The engine of the other database is not there, and a rehearsal's store runs no async function."""
    app, engine = hf.App("memory://"), object()

    async def book(connection, item: str) -> int:
        return await connection.fetchval("insert into booked values ($1) returning id", item)

    def stand_in(connection, item: str) -> int:
        return connection.execute("select length(?)", (item,)).get

    @app.workflow("shop.book.v1")
    async def booking(ctx: hf.Context) -> list[int]:
        return [await ctx.transaction(book, "book"), await ctx.transaction(book, "pen", on=engine)]

    assert rehearsal(app, store="sqlite", replace={book: stand_in}).start(booking).result() == [4, 3]
