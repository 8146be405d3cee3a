"""purge on SQLite: it looks before it writes, by an index. A run that is partly removed is hidden."""

from __future__ import annotations

import asyncio
import re
from types import SimpleNamespace
from uuid import UUID

import pytest

from holdfast.errors import UnknownRun
from holdfast.records import ANY, Item, Purged, RunFilter, Started, StepWrite
from holdfast.records.moves import Complete
from holdfast.stores.sqlite import migrate
from holdfast.stores.sqlite.chores import purge
from holdfast.stores.sqlite.sql import FOLDER
from tests.stores.sqlite.files import TYPE, ask, new_run, opened, raw_connection, with_store

NOW = {"ttl_seconds": 0.0, "deleted_seconds": 0.0}
TABLES = ("run", "step", "event", "receipt", "inbox", "outbox")

MANY = """
insert into workflow_run (id, type, status, run_at, created_at, updated_at, finished_at, expires_at)
with recursive n (i) as (select 1 union all select i + 1 from n where i < 20000)
select printf('%08d-0000-7000-8000-000000000000', i), 'a.b.v1', iif(i % 2, 'succeeded', 'pending'), 0, 0, 0,
    iif(i % 2, :now, null), iif(i % 4 = 1, :now + 1000000000, null)
from n
"""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "holdfast.db"


async def ended(store, steps=0, **fields):
    run = new_run(**fields)
    await store.start([run])
    (claim,) = await store.claim(ask())
    writes = tuple(StepWrite(key=f"s{number}", output="1") for number in range(steps))
    item = Item(run=run.id, fence=claim.fence, number=1, move=Complete(result='{"a":1}'), steps=writes)
    await store.commit([item])
    return run.id


async def purged(store, **terms):
    """Run all slices."""
    total = 0
    while (one := await store.purge(**{**NOW, **terms})).total:
        total += one.runs
    return total


def rows_of(path):
    with raw_connection(path) as db:
        return {table: db.execute(f"select count(*) from workflow_{table}").fetchone()[0] for table in TABLES}


@pytest.mark.spec("TTL-1", "LEASE-15")
def test_a_purge_that_finds_nothing_takes_no_lock_and_writes_nothing(path):
    """It answers at once, also while another process holds the file."""

    async def story(store):
        await ended(store)
        await store.start([new_run()])
        before = store._transactor.commits
        with raw_connection(path) as other:
            other.execute("begin immediate")
            assert await store.purge() == Purged()
        assert store._transactor.commits == before

    with_store(path, story)


@pytest.mark.spec("TTL-1")
def test_looking_for_what_has_expired_does_not_pay_for_what_has_not(path):
    """Twenty thousand open and finished runs are not looked at."""

    async def story(store):
        few = _instructions(store)
        await store._write(lambda db, now: db.run(MANY, {"now": now}))
        assert _instructions(store) <= few + 50

    with_store(path, story)


def _instructions(store):
    """Return how many instructions SQLite's virtual machine executes to find that nothing has expired."""
    counted = []
    db = store._reader
    db.connection.set_progress_handler(lambda: bool(counted.append(1)), 1)
    try:
        assert purge.found(db, store._clock(), (3600.0, 3600.0), {}) is False
    finally:
        db.connection.set_progress_handler(None)
    return len(counted)


@pytest.mark.spec("TTL-1")
def test_a_purge_leaves_no_row_behind(path):
    """In every table that refers to the run."""

    async def story(store):
        run = await ended(store, steps=45)
        add = (
            (
                "insert into workflow_outbox (id, run_id, sink, status, next_at, created_at) "
                "values ('m', ?, '', 'sent', 0, 0)"
            ),
            "insert into workflow_receipt (run_id, event_seq, step) values (?, 1, 's0')",
            "insert into workflow_inbox (topic, event_id, run_id, at) values ('t', 'e', ?, 0)",
        )
        for sql in add:
            await store._write(lambda db, _, sql=sql: db.run(sql, (str(run),)))
        assert await purged(store) == 1

    with_store(path, story)
    assert rows_of(path) == dict.fromkeys(TABLES, 0)


@pytest.mark.spec("TTL-1")
def test_a_run_stays_while_a_message_of_its_outbox_is_on_its_way(path):
    """Sent or dead: it goes, and its messages with it."""

    async def story(store):
        runs = [await ended(store) for _ in range(2)]
        add = "insert into workflow_outbox (id, run_id, sink, next_at, created_at) values (?1, ?1, '', 0, 0)"
        for run in runs:
            await store._write(lambda db, _, run=run: db.run(add, (str(run),)))
        await store.delete(runs[0], ANY)
        assert await store.purge(**NOW) == Purged()
        done = "update workflow_outbox set status = ? where run_id = ?"
        for run, status in zip(runs, ("sent", "dead"), strict=True):
            await store._write(lambda db, _, row=(status, str(run)): db.run(done, row))
            assert await purged(store) == 1

    with_store(path, story)
    assert rows_of(path) == dict.fromkeys(TABLES, 0)


@pytest.mark.spec("TTL-1", "DEL-1")
def test_a_run_that_is_removed_in_several_commits_is_hidden_from_the_first_on(path, monkeypatch):
    """A process that dies in between leaves nothing that can be seen or restored. The next purge goes on."""
    monkeypatch.setattr(purge, "SLICE_SECONDS", 0.0)
    begun = []

    async def begin(store):
        run = await ended(store, steps=200, key="k", digest="d")
        begun.append(run)
        assert await store._write(lambda db, now: purge.purge(db, now, (0.0, 1e6), 100)) is None
        assert await store.get(run, ANY) is None
        assert (
            await store.trail(run, ANY)
            == await store.trail(None, ANY)
            == await store.trail(None, "default")
            == []
        )
        assert await store.list(RunFilter(deleted=True)) == []
        for verb in (store.restore, store.delete, store.steps):
            with pytest.raises(UnknownRun):
                await verb(run, ANY)
        assert await store.start([new_run(key="k", digest="d")]) == [Started(run, created=False)]

    async def go_on(store):
        assert (await store.purge(ttl_seconds=1e9, deleted_seconds=1e9)).runs == 1
        (answer,) = await store.start([new_run(key="k", digest="d")])
        assert answer.created
        await store.delete(answer.id, ANY)
        await purged(store)

    with_store(path, begin)
    left = rows_of(path)
    assert (left["run"], 0 < left["event"] < 203) == (1, True)
    with_store(path, go_on)
    assert rows_of(path) == dict.fromkeys(TABLES, 0)


@pytest.mark.spec("TTL-1")
@pytest.mark.parametrize(("row_seconds", "most"), [(0.004, 5), (0.0003, 80), (1e-9, 10_000)])
def test_a_slice_lasts_as_long_as_it_may_however_long_a_row_takes(path, monkeypatch, row_seconds, most):
    """A writer waits for at most one slice, of runs and of events. A hidden run is a row of counts too."""
    slices = []

    async def story(store):
        await ended(store, steps=50)
        add = (
            "insert into workflow_inbox (topic, event_id, at, delivered, keep_until) values ('t', ?, 0, 1, 0)"
        )
        for number in range(50):
            await store._write(lambda db, _, number=number: db.run(add, (f"e{number}",)))
        removed = store._transactor.db.connection.total_changes
        clock = type("Clock", (), {"monotonic": lambda: removed() * row_seconds})
        monkeypatch.setattr(purge, "time", clock)

        def slice_(db, now):
            # Counted in the writer's thread, which may use the connection after the answer, too.
            before = removed()
            purge.purge(db, now, (0.0, 0.0), 100)
            slices.append(removed() - before)

        while rows_of(path)["run"] or rows_of(path)["inbox"]:
            await store._write(slice_)

    with_store(path, story)
    assert max(slices) <= most
    assert len(slices) <= 2 + 3 * 200 * row_seconds / purge.SLICE_SECONDS


@pytest.mark.spec("TTL-1")
def test_several_may_purge_one_file_at_once(path):
    """Every run is removed once, and counted once."""

    async def story(first):
        for _ in range(30):
            await ended(first)
        async with opened(path) as second:
            counts = await asyncio.gather(purged(first, limit=3), purged(second, limit=3))
        assert sum(counts) == 30

    with_store(path, story)


OLD_RUN = "018bcfe5-0000-7000-8000-000000000001"
# Statements of a library that knew only the first schema.
OLD_WRITES = f"""
insert into workflow_run (id, type, payload, run_at, created_at, updated_at)
values ('{OLD_RUN}', '{TYPE}', '1', 1, 1, 1);
insert into workflow_step (run_id, seq, key, kind, status, output, fence, number, finished_at)
values ('{OLD_RUN}', 1, 's', 'task', 'succeeded', '1', 1, 1, 1);
insert into workflow_event (workflow_id, event_type, created_at) values ('{OLD_RUN}', 'created', 1);
insert into workflow_definition (type, kind, updated_at) values ('{TYPE}', 'code', 1);
insert into workflow_worker (worker, types, patterns, seen_at) values ('old', '[]', '[]', 1);
update workflow_run set status = 'succeeded', result = '{{"a":1}}', finished_at = 1 where id = '{OLD_RUN}';
"""


# An index that is created again, and tables that the first library had and never used.
NEVER_MISSED = {"idx_workflow_run_tenant_claim", "workflow_schedule", "workflow_api_key"}


async def _looked_at_and_purged(store):
    run = UUID(OLD_RUN)
    assert (await store.get(run, ANY)).result == {"a": 1}
    assert [step.key for step in await store.steps(run, ANY)] == ["s"]
    assert [one.type for one in await store.definitions()] == [TYPE]
    assert await purged(store) == 1


@pytest.mark.spec("STORE-5")
def test_a_file_of_the_first_schema_is_brought_up_to_date(path):
    """Its content stays, and can be purged."""
    with raw_connection(path) as db:
        db.execute(migrate._META)
        db.execute(_minors()[0].read_text())
        db.execute(migrate._STAMP, ("1", "1"))
        db.execute(OLD_WRITES)
    with_store(path, _looked_at_and_purged)
    assert _version(path) == str(len(_minors()))


@pytest.mark.spec("STORE-5")
def test_a_library_that_knows_the_first_schema_only_works_on_with_a_newer_one(path):
    """Its statements still work: later schemas only add columns, and these may be left out."""
    with_store(path, ended)
    with raw_connection(path) as db:
        db.execute(f"delete from workflow_run; delete from workflow_definition; {OLD_WRITES}")
    with_store(path, _looked_at_and_purged)
    for later in _minors()[1:]:
        added = [line for line in later.read_text().splitlines() if "add column" in line]
        assert all("default" in line for line in added if "not null" in line)
        gone = re.findall(r"^drop \w+ (\w+)", later.read_text(), re.MULTILINE)
        anew = re.findall(r"rename to (\w+)", later.read_text())  # with every column: see test_schema.py
        assert set(gone) - set(anew) <= NEVER_MISSED


@pytest.mark.spec("STORE-5")
def test_a_library_that_is_older_leaves_a_newer_file_as_it_is(path, monkeypatch):
    """It finds a greater minor version, and works with it."""
    with_store(path, ended)
    newest = _version(path)
    with monkeypatch.context() as older:
        older.setattr(migrate, "minors", lambda: _minors()[:1])
        with_store(path, ended)
    assert _version(path) == newest


def _minors():
    return sorted((FOLDER / "schema").glob("[0-9]*.sql"))


def _version(path):
    with raw_connection(path) as db:
        return db.execute("select value from workflow_meta where key = 'minor'").fetchone()[0]


HELD = """
insert into workflow_outbox (id, run_id, sink, status, next_at, created_at)
select 'm' || id, id, 'nobody', 'pending', 0, 0 from workflow_run where finished_at is not null
"""


@pytest.mark.slow
@pytest.mark.spec("TTL-1", "OUT-1")
def test_runs_that_are_held_are_passed_a_few_at_a_time_and_once(path, monkeypatch):
    """10,000 expired ones whose messages nobody takes: others are purged past them, and nobody waits long."""
    looks = []

    async def story(store):
        await store._write(lambda db, now: db.run(MANY, {"now": now - 10**9 - 1}))
        await store._write(lambda db, _: db.run(HELD))
        free = [await ended(store) for _ in range(30)]
        real = store._read

        def reading(work, *args):
            before = len(counted)
            answer = real(work, *args)
            looks.append(len(counted) - before)
            return answer

        counted = []
        store._reader.connection.set_progress_handler(lambda: bool(counted.append(1)), 1000)
        monkeypatch.setattr(store, "_read", reading)
        assert await purged(store, limit=3) == 30
        assert max(looks) < 100, "thousand instructions in one go"
        assert sum(looks) < 2_000, "of all looks"
        store._reader.connection.set_progress_handler(None)
        assert {await store.get(run, ANY) for run in free} == {None}
        await store._write(lambda db, _: db.run("update workflow_outbox set status = 'dead'"))
        assert await purged(store) == 10_000

    with_store(path, story)


@pytest.mark.spec("TTL-1", "OUT-1")
def test_a_purge_finds_what_has_become_free_behind_its_back(path, monkeypatch):
    """It goes on after runs that are held. At the end it looks at those again."""

    async def story(store):
        held = await ended(store)
        await store._write(lambda db, _: db.run(HELD))
        free = [await ended(store) for _ in range(2)]
        monkeypatch.setattr(purge, "LOOK_MAX", 1)
        assert (await store.purge(**NOW, limit=1)).runs == 1
        await store._write(lambda db, _: db.run("update workflow_outbox set status = 'dead'"))
        assert [(await store.purge(**NOW, limit=1)).runs for _ in range(3)] == [1, 1, 0]
        assert {await store.get(run, ANY) for run in (held, *free)} == {None}

    with_store(path, story)


@pytest.mark.spec("TTL-1")
def test_a_slice_is_bounded_in_bytes_whatever_the_clock_says(path, monkeypatch):
    """Small rows are removed quickly. Large rows after them are not removed in the same commit."""
    monkeypatch.setattr("holdfast.stores.sqlite.chores.purge.SLICE_BYTES", 50_000)
    monkeypatch.setattr("holdfast.stores.sqlite.chores.purge.time", SimpleNamespace(monotonic=lambda: 0.0))
    large, removed = f'"{"x" * 20_000}"', []
    sizes = """
        select coalesce((select sum(octet_length(payload) + octet_length(result)) from workflow_run), 0)
            + coalesce((select sum(octet_length(output)) from workflow_step), 0)
    """

    async def story(store):
        for _ in range(4):
            run = new_run(params=large)
            await store.start([run])
            (claim,) = await store.claim(ask())
            outputs = ["1"] * 20 + [large] * 6
            steps = tuple(StepWrite(key=f"s{n}", output=output) for n, output in enumerate(outputs))
            item = Item(run=run.id, fence=claim.fence, number=1, move=Complete(result=large), steps=steps)
            await store.commit([item])
        write = store._write

        def weighed(work):
            def weigh(db, now):
                before = db.one(sizes)[0]
                answer = work(db, now)
                removed.append(before - db.one(sizes)[0])
                return answer

            return weigh

        store._write = lambda work, **fields: write(weighed(work), **fields)
        return await purged(store)

    assert with_store(path, story) == 4
    assert max(removed) <= 50_000 + 2 * 20_002
    assert sum(removed) > 4 * 8 * 20_000
    assert rows_of(path) == dict.fromkeys(TABLES, 0)
