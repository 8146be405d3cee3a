"""Robustness: several event loops, stopped processes, many listeners, opens that fail."""

from __future__ import annotations

import asyncio
import fcntl
import itertools
import threading
from pathlib import Path

import apsw
import pytest

from holdfast.errors import NotADatabase, Unavailable
from holdfast.lifecycle import Move
from holdfast.records import Item, RunFilter, StepWrite
from holdfast.records.moves import CHECKPOINT, Complete
from holdfast.stores.sqlite import SqliteStore
from holdfast.stores.sqlite.connection import wal
from holdfast.stores.sqlite.connection.turnstile import Turnstile
from holdfast.stores.sqlite.sql import statements
from holdfast.stores.sqlite.view import view
from tests.stores.sqlite.files import ask, new_run, opened, raw_connection, with_store
from tests.stores.sqlite.transactions.holder import new_holder

PATIENCE = 20.0


@pytest.fixture
def path(tmp_path):
    return tmp_path / "holdfast.db"


def writers():
    return [thread for thread in threading.enumerate() if thread.name == "holdfast-sqlite"]


def at_once(count, work):
    """Run it in several threads, each with its own event loop."""
    begin = threading.Barrier(count)

    def run():
        begin.wait(PATIENCE)
        asyncio.run(work())

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    return threads


def test_a_store_that_several_loops_open_at_once_is_opened_once(path):
    """One writer, and none is left when it is closed."""
    store, before = SqliteStore(str(path)), len(writers())
    for thread in at_once(6, store.open):
        thread.join(PATIENCE)
    assert len(writers()) == before + 1
    asyncio.run(store.close())
    assert len(writers()) == before


def test_a_store_may_be_closed_while_another_loop_reads(path):
    """Running reads are finished first. Later reads are told that the store is not open."""
    with_store(path, lambda store: store.start([new_run() for _ in range(100)]))
    store, told = SqliteStore(str(path)), []

    async def read():
        try:
            while True:
                await store.list(RunFilter())
        except Unavailable as error:
            told.append(str(error))

    for _ in range(5):
        asyncio.run(store.open())
        threads = at_once(3, read)
        asyncio.run(store.close())
        for thread in threads:
            thread.join(PATIENCE)
    assert len(told) == 15
    assert all("not open" in each for each in told)


def test_many_listeners_share_one_timer_and_leave_none_behind(path):
    """A thousand listeners cost what one costs."""

    async def story(store):
        ends = [store.listen(lambda: None) for _ in range(1000)]
        many = len(store._hints._watches)
        for end in ends:
            end()
        return many, store._hints._watches, store._hints.listeners

    assert with_store(path, story) == (1, [], ())


@pytest.mark.spec("STORE-2")
def test_a_waiter_gives_up_when_the_writer_before_it_was_stopped(path):
    """A stopped process at the turnstile gives an error, not an endless wait."""
    stopped, waiting = Turnstile(str(path), PATIENCE), Turnstile(str(path), 0.02)
    fcntl.flock(stopped._next, fcntl.LOCK_EX)
    with pytest.raises(Unavailable, match="look for one that is stopped"):
        waiting.enter()
    fcntl.flock(stopped._next, fcntl.LOCK_UN)
    waiting.enter()
    waiting.leave()
    stopped.close()
    waiting.close()


def test_an_open_that_fails_leaves_no_descriptor_behind(path):
    """For any number of attempts."""
    path.write_text("these are my notes, and no database\n" * 50)

    def descriptors():
        with pytest.raises(NotADatabase):
            asyncio.run(SqliteStore(str(path)).open())
        return len(list(Path("/dev/fd").iterdir()))

    first = descriptors()
    assert [descriptors() for _ in range(5)] == [first] * 5


@pytest.mark.parametrize("move", [Move.CHECKPOINT, Move.COMPLETE])
def test_many_large_values_at_once_are_no_larger_for_sqlite_than_each_of_them(path, move):
    """Its limit is for one value; a batch of a few hundred at our own limit would be above it."""
    large = '"' + "x" * 400_000 + '"'

    def item(claim):
        steps = (StepWrite(key="a", output=large),) if move is Move.CHECKPOINT else ()
        made = CHECKPOINT if steps else Complete(result=large)
        return Item(run=claim.id, fence=claim.fence, number=1, move=made, steps=steps)

    async def story(store):
        await store.start([new_run() for _ in range(5)])
        claims = await store.claim(ask(limit=5))
        await store._write(lambda db, _: db.connection.limit(apsw.SQLITE_LIMIT_LENGTH, 1_000_000))
        return await store.commit([item(claim) for claim in claims])

    assert [verdict.answer for verdict in with_store(path, story)] == ["applied"] * 5


def test_to_end_a_run_with_many_steps_only_its_open_ones_are_looked_at(path):
    """By the index of open steps, however the run ends."""

    async def story(store):
        db = store._transactor.db
        names = {"run": "", "runs": "[]", "now": 0}
        found = [view.SQL["open"], statements("fast_writes")["cancel_steps"]]
        return [next(row[3] for row in db.all("explain query plan " + sql, names)) for sql in found]

    assert all("idx_workflow_step_open" in plan for plan in with_store(path, story))


def read_without_a_gap(path, stop):
    """Two readers that overlap: at every moment one of them reads."""
    with raw_connection(path) as first, raw_connection(path) as second:
        for reads, leaves in itertools.cycle([(first, second), (second, first)]):
            reads.execute("begin; select count(*) from workflow_run").fetchall()
            if leaves.in_transaction:
                leaves.execute("commit")
            if stop.wait(0.002):
                return


@pytest.mark.slow
@pytest.mark.spec("STORE-2")
def test_the_log_stays_short_beside_readers_who_leave_no_gap(path, monkeypatch):
    """When the log is too long the writer waits a little for readers, and restarts the log."""
    monkeypatch.setattr("holdfast.stores.sqlite.connection.wal.TOO_LONG", 1 << 20)
    large, stop = '"' + "x" * 20_000 + '"', threading.Event()

    async def story(store):
        sizes = []
        reader = threading.Thread(target=read_without_a_gap, args=(path, stop))
        reader.start()
        try:
            for _ in range(600):
                await store.start([new_run(params=large)])
                sizes.append(wal.length(str(path)))
        finally:
            stop.set()
            reader.join(PATIENCE)
        return max(sizes)

    assert with_store(path, story) < 5 << 20


def test_a_file_that_is_named_by_a_relative_path_stays_the_same_when_the_process_changes_its_folder(
    path, monkeypatch
):
    """A transaction and a fork open the file again, by its absolute path."""
    elsewhere = path.parent / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(path.parent)

    async def story(store):
        holder = await new_holder(store)
        monkeypatch.chdir(elsewhere)
        await holder.send(lambda connection: connection.execute("create table mine (x)").fetchall())
        return (await store.stats()).extra["wal_bytes"]

    assert with_store(path.name, story) > 0
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize("inline", [False, True])
def test_what_went_wrong_in_a_read_is_told_and_not_that_its_transaction_is_gone(path, inline):
    """SQLite may have rolled back the transaction by itself."""

    def torn(db):
        db.run("rollback")
        raise apsw.CorruptError("a torn page")

    async def story():
        async with opened(path, inline=inline) as store:
            with pytest.raises(NotADatabase, match="a torn page"):
                store._read(torn)
            return await store.list(RunFilter())

    assert asyncio.run(story()) == []
