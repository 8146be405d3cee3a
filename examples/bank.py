"""Move money between two rows of your own, in the engine's database: exactly once, whatever crashes."""

from __future__ import annotations

import asyncio
from contextlib import closing

import apsw

import holdfast as hf

FILE = "bank.db"  # a separate file, whatever HOLDFAST_STORE says: the accounts are in it too

app = hf.App(f"sqlite:///{FILE}")


def move(connection: apsw.Connection, source: str, target: str, cents: int) -> int:
    """Run inside the commit that records the step: both rows and the step are written, or nothing is."""
    sql = "update account set cents = cents + ? where name = ?"
    connection.execute(sql, (-cents, source))
    connection.execute(sql, (cents, target))
    left: int = connection.execute("select cents from account where name = ?", (source,)).get
    if left < 0:
        raise hf.Fatal(f"{source} does not have that much")  # everything above is rolled back
    return left


@app.workflow("bank.transfer.v1")
async def transfer(ctx: hf.Context, cents: int) -> str:
    try:
        left = await ctx.transaction(move, "Ada", "Bob", cents)
    except hf.StepFailed as error:
        return error.message
    return f"Ada has {left} left"


async def main() -> None:
    await app.publish()
    with closing(apsw.Connection(FILE)) as connection:
        connection.set_busy_timeout(5000)  # the engine writes too; without this apsw does not wait
        connection.execute("create table if not exists account (name text primary key, cents integer)")
        connection.execute("insert or replace into account values ('Ada', 100), ('Bob', 0)")

        # The requests and the runs that fulfil them are written in one transaction of our own.
        connection.execute("create table if not exists request (cents integer)")
        connection.execute("begin immediate")
        connection.execute("insert into request values (70), (50)")
        runs = [await app.start(transfer, cents, connection=connection) for cents in (70, 50)]
        connection.execute("commit")

        async with app.worker(slots=1):
            for run in runs:
                print(await run.result(timeout=30))
        print(connection.execute("select name, cents from account order by name").fetchall())
    await app.close()


if __name__ == "__main__":
    asyncio.run(main())
