"""Helpers of tests of transactions: a counter beside the engine's tables, and a holder of one run."""

from __future__ import annotations

import json
from contextlib import closing

import apsw
import msgspec

from holdfast.records import Item, StepWrite
from holdfast.records.moves import CHECKPOINT
from tests.stores.sqlite.files import ask, new_run, raw_connection, with_store


def with_counter(path):
    """Create a file with tables of the user."""
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute("create table counter (n integer); insert into counter values (0)")
        connection.execute("create table named (name text unique); insert into named values ('a')")
    return path


def count(path):
    with raw_connection(path) as connection:
        return connection.execute("select n from counter").fetchall()[0][0]


def up(connection):
    connection.execute("update counter set n = n + 1")
    return connection.execute("select n from counter").fetchall()[0][0]


class Holder:
    """A holder of one run. It numbers its items."""

    def __init__(self, store, claim):
        self.store, self.claim, self.number = store, claim, 0
        self.called = 0

    def item(self, **fields):
        self.number += 1
        return Item(
            **{
                "run": self.claim.id,
                "fence": self.claim.fence,
                "number": self.number,
                "move": CHECKPOINT,
            }
            | fields
        )

    def work(self, item, function, key=None):
        def work(connection):
            self.called += 1
            write = StepWrite(
                key=key or f"k{item.number}", output=json.dumps(function(connection), default=str)
            )
            return msgspec.structs.replace(item, steps=(*item.steps, write))

        return work

    async def send(self, function, limit=5.0, key=None, **fields):
        item = self.item(**fields)
        return await self.store.transact(item, self.work(item, function, key), limit)


async def new_holder(store, **fields):
    await store.start([new_run(**fields)])
    (claim,) = await store.claim(ask())
    return Holder(store, claim)


def with_holder(path, story):
    """Run a test with one holder and an open store."""

    async def with_new_holder(store):
        return await story(store, await new_holder(store))

    return with_store(path, with_new_holder)
