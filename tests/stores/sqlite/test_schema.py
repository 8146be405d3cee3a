"""The schema of a SQLite file: created at once or by migrations, and read without large values of other
rows."""

from __future__ import annotations

import asyncio
import hashlib
import re
import threading
from concurrent.futures import ThreadPoolExecutor

import apsw
import pytest

from holdfast.errors import Unavailable
from holdfast.records import ANY, Item, Lease, NewEvent, StepWrite
from holdfast.records.moves import Checkpoint, Complete
from holdfast.stores.sqlite import migrate
from holdfast.stores.sqlite.claiming import claim as claiming
from holdfast.stores.sqlite.connection.turnstile import Turnstile
from tests.stores.sqlite.files import ask, new_run, raw_connection, with_store

PUBLISHED = {
    "0001.sql": "b93c6806596f2ba83a710738d7c44d17326eb591190e0389f55a6935f66f4aad",
    "0002.sql": "ceee096efba008e831a0f7cada87dd049f7cce9754b9318b6252b551bb534c6f",
    "0003.sql": "51d177ba572b44b18f7d864e3b35ddda2268a2213016bb2317748779adc08319",
    "0004.sql": "b5ccfaa58ce0d8c97264cdbc89a50c3679bd10a3ab96b370f2801463042340fa",
    "0005.sql": "5866f16793b8ac812ce269b5c6d0d9e3f5713d4c6926ba5dfa61d405242f2336",
    "0006.sql": "940545456aa17d91f5562f1625a71356cd545d78c5f48926aa39f54aede8ef34",
    "0007.sql": "681b5c641792b499fc4701e249ab07ba215bbbacfe58af9a1aa18a3cc2a04658",
    "0008.sql": "a1b96f27a8fd90b1be0e7d97596232dd100d59e16b2763326c2a9ca0aee0f240",
    "0009.sql": "a44427d2d2f3f74e662edd80140cbaa83c9794fe2fe9f8cb6b331b4a641fd6c1",
    "0010.sql": "fc398e60d3b3f77f5ec6475be58c873d18d567089254e7bbc3f20a643eb6cbc4",
    "0011.sql": "d41e2f2127a6d46886966ab9e135a1c01b276f6afa73767e4b294d7c36560634",
    "0012.sql": "2b0af93ce742bda4596674858edf59f42494ea50edb0a07524b100febbb4599b",
    "0013.sql": "87ac65b956d4a7e219eab820dd45bcbc3f025c69ffae25a061613fa7eaca9ea2",
    "0014.sql": "bf471ff4790356d84ef35fdcbeed0ebc521c641404b2111af405b7379f304b2e",
    "0015.sql": "3c6e32c135e9e39c2255a317908ab78b66553ae11282f96b5b308998ebafeb57",
    "0016.sql": "5653039b687e8763ba971675a3201543dae2d648c8361a0321c2028a7ce0c6f5",
}
MILLION = '"' + "x" * 1_000_000 + '"'
OLD_RUN = "00000000-0000-7000-8000-00000000000%d"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "holdfast.db"


@pytest.mark.spec("STORE-5")
def test_a_migration_that_files_have_been_through_is_never_changed():
    """A file is stamped with the number alone: what is added later goes into the next one."""
    assert {one.name: hashlib.sha256(one.read_bytes()).hexdigest() for one in migrate.minors()} == PUBLISHED


def shape(db):
    """Every table with its columns and indexes, every trigger; without comments and the names of rows."""
    found = {}
    for kind, name, sql in db.execute(
        "select type, name, sql from sqlite_master where name not like 'sqlite_sequence'"
    ).fetchall():
        plain_sql = re.sub(r"--[^\n]*", "", sql or "").replace('"', "")
        found[kind, name] = (" ".join(plain_sql.split()) if kind != "table" else "").lower()
        if kind == "table":
            checks = sorted(re.findall(r"check\s*\(.*", plain_sql))
            found[kind, name] = (
                db.execute(f"pragma table_xinfo({name})").fetchall(),
                db.execute(f"pragma table_list({name})").fetchall(),
                checks,
            )
    return found


def migrated(path, minor):
    """A file as a library of that minor version has left it."""
    db = apsw.Connection(str(path))
    db.execute(migrate._META)
    for one in migrate.minors()[:minor]:
        db.execute(one.read_text(encoding="utf-8"))
    db.execute(migrate._STAMP, (str(migrate.MAJOR), str(minor)))
    return db


@pytest.mark.spec("STORE-5")
def test_a_new_file_is_what_all_migrations_together_make(path):
    async def nothing(store):
        pass

    with_store(path, nothing)
    with raw_connection(path) as new:
        made = shape(new)
    assert made == shape(migrated(path.with_name("old.db"), len(migrate.minors())))


@pytest.mark.spec("STORE-5")
def test_an_older_file_keeps_what_it_holds(path):
    """Its tables are copied: runs go on where they were, and a key is still taken."""
    old = migrated(path, 5)
    for n, status in enumerate(("pending", "waiting")):
        old.execute(
            "insert into workflow_run (id, type, status, run_at, rev, idempotency_key, payload, created_at,"
            " updated_at) values (?, 'shop.order.v1', ?, 0, 1, ?, ?, 1, 1)",
            (OLD_RUN % n, status, f"key {n}", f'"params {n}"'),
        )
        old.execute(
            "insert into workflow_step (run_id, seq, key, kind, status, output, topic, finished_at)"
            " values (?, 1, 'done', 'task', 'succeeded', '7', null, 1),"
            " (?, 2, 'w', 'event', ?, null, 't', ?)",
            (OLD_RUN % n, OLD_RUN % n, *(("waiting", None) if n else ("succeeded", 1))),
        )
    old.close()

    async def story(store):
        (claim,) = await store.claim(ask())
        await store.emit(NewEvent(tenant="default", topic="t", id="e", payload="1"))
        (woken,) = await store.claim(ask())
        return claim, woken, await store.schedules(ANY)

    claim, woken, schedules = with_store(path, story)
    assert (claim.params, [step.output for step in claim.steps]) == ('"params 0"', ["7", None])
    assert woken.params == '"params 1"'
    assert woken.steps[-1].key == "w"
    assert schedules == []


@pytest.mark.spec("STORE-5")
def test_a_broken_view_of_a_user_does_not_stop_a_migration(path):
    """It stays as it is. A view that is whole goes on, also one that reads a column with a new name."""
    old = migrated(path, 7)
    for sql in (
        "create view broken as select lacking from workflow_run",
        "create view gone as select * from missing",
        "create view whole as select id, cursor from workflow_run",
        "create table notes (text text)",
        "create trigger spoilt after insert on notes begin insert into missing values (new.text); end",
    ):
        old.execute(sql)
    old.close()

    async def story(store):
        await store.start([new_run()])
        return await store._write(lambda db, _: db.one("pragma writable_schema"))

    assert with_store(path, story) == (0,)
    with raw_connection(path) as db:
        assert len(db.execute("select * from whole").fetchall()) == 1
        texts = dict(db.execute("select name, sql from sqlite_master").fetchall())
        assert db.execute("pragma integrity_check").fetchall() == [("ok",)]
    assert texts["broken"].endswith("select lacking from workflow_run")
    assert "missing values (new.text)" in texts["spoilt"]


async def misses(store, work):
    """Return how many pages the writer fetches for this work."""
    before = await store._write(lambda db, _: db.connection.status(apsw.SQLITE_DBSTATUS_CACHE_MISS))
    await work
    after = await store._write(lambda db, _: db.connection.status(apsw.SQLITE_DBSTATUS_CACHE_MISS))
    return after[0] - before[0]


async def small(store):
    """Execute a run of one step, from its start to its end."""
    await store.start([new_run(type="small.run.v1")])
    (claim,) = await store.claim(ask(types=("small.run.v1",)))
    steps = (StepWrite(key="a", output="1"),)
    await store.commit([Item(run=claim.id, fence=claim.fence, number=1, move=Checkpoint(), steps=steps)])
    item = Item(run=claim.id, fence=claim.fence, number=2, move=Complete(result="1"))
    (verdict,) = await store.commit([item])
    assert verdict.status == "succeeded"


@pytest.mark.slow
@pytest.mark.spec("START-10", "LEASE-19")
def test_a_small_run_does_not_read_the_large_values_of_others(path):
    """A search passes many rows; it must not read the megabytes in them."""

    async def story(store):
        await store.start([new_run(params=MILLION) for _ in range(30)])
        for claim in await store.claim(ask(limit=30)):
            writes = tuple(StepWrite(key=f"s{n}", output=MILLION) for n in range(2))
            item = Item(run=claim.id, fence=claim.fence, number=1, move=Checkpoint(), steps=writes)
            await store.commit([item])
        await store._write(lambda db, _: db.run("pragma cache_size = 100"))
        return await misses(store, small(store))

    assert with_store(path, story) < 100


@pytest.mark.spec("LEASE-19")
def test_a_large_record_is_read_beside_everything_else(path, monkeypatch):
    """While one is read, which may take long, the event loop goes on, and so do other reads."""
    go_on = threading.Event()
    real = claiming.load
    monkeypatch.setattr(claiming, "load", lambda *args: (go_on.wait(10), real(*args)))

    async def story(store):
        run = new_run()
        await store.start([run])
        (claim,) = await store.claim(ask())
        lease = Lease(run=claim.id, tenant="default", fence=claim.fence)
        reading = asyncio.create_task(store.load(lease))
        await asyncio.sleep(0)
        shown = await store.get(run.id, ANY)
        go_on.set()
        return shown.status, await reading

    status, (was_let_go_on, loaded) = with_store(path, story)
    assert (status, was_let_go_on, loaded.answer) == ("leased", True, "applied")


@pytest.mark.spec("LEASE-19")
@pytest.mark.parametrize("trouble", ["executor is full", "no thread is to be had"])
def test_a_large_record_needs_no_thread_of_others(path, monkeypatch, trouble):
    """Calls of users may fill the event loop's executor; and where threads are few, the loop itself reads."""
    leave = threading.Event()

    async def story(store):
        await store.start([new_run(params='"large"')])
        (claim,) = await store.claim(ask())
        if trouble == "executor is full":
            asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
            asyncio.get_running_loop().run_in_executor(None, leave.wait, 10)
        else:
            monkeypatch.setattr(threading.Thread, "start", refused)
        try:
            lease = Lease(run=claim.id, tenant="default", fence=claim.fence)
            return await asyncio.wait_for(store.load(lease), 5)
        finally:
            monkeypatch.undo()
            leave.set()

    assert with_store(path, story).params == '"large"'


def refused(_thread):
    raise RuntimeError("can't start new thread")


@pytest.mark.spec("STORE-5")
def test_whoever_opens_a_file_that_is_being_migrated_waits_for_it(path):
    """Longer than for a turn; but not for one that is stopped and has a file that is up to date."""
    migrated(path, 5).close()
    other = Turnstile(str(path), 0.01)
    other.enter()
    tries = []

    class Impatient(Turnstile):
        def enter(self):
            tries.append(1)
            if len(tries) == 3:
                other.leave()
            super().enter()

    mine = Impatient(str(path), 0.01)
    migrate.open_up_to_date(str(path), mine).close()
    assert len(tries) == 3
    other.enter()
    with pytest.raises(Unavailable, match="kept its turn"):
        migrate.open_up_to_date(str(path), mine)
    assert len(tries) == 4
    other.close()
    mine.close()


@pytest.mark.spec("LEASE-20")
@pytest.mark.parametrize("steps", ["", "[", "7", "{}", '[{"step": 7}]', "[null]"])
def test_a_run_is_read_although_somebody_has_spoilt_its_running_steps(path, steps):
    async def main(store):
        await store.start([new_run()])
        (claim,) = await store.claim(ask())
        with raw_connection(path) as db:
            db.execute("insert into workflow_running values (?, ?, ?)", (str(claim.id), claim.fence, steps))
        return await store.get(claim.id, ANY)

    assert with_store(path, main).running == ()


@pytest.mark.spec("LEASE-20")
def test_running_steps_go_with_their_run_whoever_removes_it(path):
    """An older library knows nothing of them."""

    async def main(store):
        await store.start([new_run()])
        (claim,) = await store.claim(ask())
        with raw_connection(path) as db:
            db.execute("insert into workflow_running values (?, 1, '[]')", (str(claim.id),))
            db.execute("delete from workflow_run")
            return db.execute("select count(*) from workflow_running").fetchall()

    assert with_store(path, main) == [(0,)]


def test_a_run_that_an_older_library_has_resumed_does_not_pause_again(path):
    """That library leaves the name of who paused it in the row: a claim clears it."""

    async def main(store):
        run = new_run()
        await store.start([run])
        await store.pause(run.id, ANY, "ann")
        with raw_connection(path) as db:
            db.execute("update workflow_run set status = 'pending', resume_to = null, rev = rev + 1")
        (claim,) = await store.claim(ask())
        steps = (StepWrite(key="a", output="1"),)
        item = Item(run=claim.id, fence=claim.fence, number=1, move=Checkpoint(), steps=steps)
        (verdict,) = await store.commit([item])
        return verdict.answer, (await store.get(run.id, ANY)).status

    assert with_store(path, main) == ("applied", "leased")
