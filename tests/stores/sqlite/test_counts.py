"""Kept counts of a SQLite file: damage and repair, folding without a keeper, older files, killed commits."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.contract import FOLD_MAX, FOLD_SECONDS, RATE_SECONDS
from holdfast.errors import StoreError
from holdfast.lifecycle import Status
from holdfast.records import ANY, Chore, Miscount
from holdfast.stores.sqlite import SqliteStore
from holdfast.stores.sqlite.chores import folding
from holdfast.stores.sqlite.connection import writer
from holdfast.testing.contract.driver import TYPE, Clock, StoreDriver, listen
from tests.stores.sqlite.files import new_run, raw_connection, with_store
from tests.stores.sqlite.test_schema import migrated

INSERT = (
    "insert into workflow_run (id, tenant, type, status, run_at, rev, created_at, updated_at, finished_at,"
    " deleted_at) values (?, ?, 'shop.order.v1', ?, 0, 1, 1, 1, ?, ?)"
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "holdfast.db"


@pytest.fixture
def driver():
    clock = Clock()
    driver = StoreDriver(SqliteStore(":memory:", clock=clock, inline=True), clock)
    yield driver
    driver.close()


def rows(driver, table="workflow_count_change"):
    return driver.store._transactor.db.all(f"select * from {table}")


def spoil(driver, sql):
    driver.run(driver.store._write(lambda db, _: db.run(sql)))


def is_right(driver):
    kept = driver.counts().by_status(), driver.counts("default").by_status()
    return driver.recount() == [] and kept[0] == kept[1]


@pytest.mark.spec("READ-4")
def test_changes_of_one_kind_share_a_row_and_folding_leaves_none(driver):
    """So the rows do not grow with the runs. A fold of all rows is one commit."""
    for _ in range(50):
        driver.start()
    claims = driver.claim(40)
    for claim in claims:
        driver.complete(claim)
    driver.retry(driver.take(limit=1))
    assert len(rows(driver)) == 5  # started, claimed, succeeded, retried and back in the queue
    assert driver.tick(only=Chore.COUNT).folded == 0
    driver.clock.turn(FOLD_SECONDS - 0.000001)
    assert driver.tick(only=Chore.COUNT).folded == 0
    driver.clock.turn(0.000001)
    assert driver.due().is_due(Chore.COUNT)
    commits = driver.stats().extra["commits"]
    assert driver.tick().folded == 5
    assert driver.stats().extra["commits"] == commits + 1
    assert (rows(driver), driver.tick().folded, driver.stats().extra["commits"]) == ([], 0, commits + 1)
    assert is_right(driver)


@pytest.mark.spec("READ-4")
def test_a_round_folds_in_slices(driver, monkeypatch):
    monkeypatch.setattr(folding, "FOLD_MAX", 3)
    for number in range(10):
        driver.start(tenant=f"t{number}")
    driver.clock.turn(FOLD_SECONDS)
    before = driver.counts().by_type
    while driver.tick(only=Chore.COUNT).folded:
        assert driver.counts().by_type == before
    assert (rows(driver), driver.recount(), driver.counts("t7").by_status()) == ([], [], {"pending": 1})


@pytest.mark.spec("READ-4")
def test_numbers_that_are_zero_and_old_minutes_go_away(driver):
    driver.complete(driver.held())
    driver.clock.turn(FOLD_SECONDS)
    driver.tick()
    assert sorted(row[2] for row in rows(driver, "workflow_count")) == ["succeeded"] * 2
    old = len(rows(driver, "workflow_rate"))
    driver.clock.turn(RATE_SECONDS + 60)
    driver.start()
    driver.clock.turn(FOLD_SECONDS)
    driver.tick()
    assert (old, len(rows(driver, "workflow_rate"))) == (4, 2)


@pytest.mark.spec("READ-4")
@pytest.mark.parametrize("folded", [True, False])
def test_damaged_counts_are_found_and_repaired(driver, folded):
    """A repair changes nothing else, and a second one finds nothing."""
    for _ in range(3):
        driver.start()
    driver.start(tenant="acme")
    driver.park(driver.take(limit=1, tenants=("acme",)), listen())
    if folded:
        driver.clock.turn(FOLD_SECONDS)
        driver.tick()
        spoil(driver, "update workflow_count set number = 7 where tenant = 'default'")
        spoil(driver, "delete from workflow_count where tenant = 'acme'")
        spoil(
            driver, "update workflow_count set number = number + 10 where tenant = '' and status = 'waiting'"
        )
    else:
        spoil(driver, "update workflow_count_change set number = 7 where tenant = 'default'")
        spoil(driver, "delete from workflow_count_change where tenant = 'acme'")
    found = driver.recount()
    of_tenants = [one for one in found if one.tenant]
    assert of_tenants == [
        Miscount(tenant="acme", type=TYPE, status="waiting", kept=0, real=1),
        Miscount(tenant="default", type=TYPE, status="pending", kept=7, real=3),
    ]
    assert driver.recount() == found, "looking repairs nothing"
    totals = driver.counts().totals
    assert driver.recount(repair=True) == found
    assert driver.recount() == []
    assert driver.counts().by_status() == {"pending": 3, "waiting": 1}
    assert driver.counts().totals == totals
    driver.clock.turn(FOLD_SECONDS)
    driver.tick()
    assert (driver.recount(repair=True), driver.counts().by_status()) == ([], {"pending": 3, "waiting": 1})


@pytest.mark.spec("READ-4")
def test_two_repairs_at_once_do_not_repair_twice(driver, monkeypatch):
    """The one that comes second counts again."""
    driver.start()
    driver.clock.turn(FOLD_SECONDS)
    driver.tick()
    spoil(driver, "update workflow_count set number = 5 where tenant <> ''")
    store, original, seen = driver.store, driver.store._recounted, []

    async def slow():
        answer = await original()
        if not seen:
            seen.append(answer)
            seen.append(await store.recount(repair=True))
        return answer

    monkeypatch.setattr(store, "_recounted", slow)
    assert driver.recount(repair=True) == []
    assert len(seen[1]) == 2
    assert driver.recount() == []


@pytest.mark.spec("READ-4")
def test_a_repair_that_others_always_overtake_gives_up(driver, monkeypatch):
    driver.start()
    spoil(driver, "update workflow_count_change set number = 5")
    monkeypatch.setattr("holdfast.stores.sqlite.counts._correct", lambda *_: False)
    with pytest.raises(StoreError, match="others repair the counts"):
        driver.recount(repair=True)


@pytest.mark.spec("READ-4")
def test_a_recount_does_not_stop_writers(path):
    """It reads on a connection of its own; what is written meanwhile is in neither of its sides."""

    async def story(store):
        await store.start([new_run() for _ in range(20)])
        recounts, _ = await asyncio.gather(
            asyncio.gather(*(store.recount() for _ in range(5))),
            asyncio.gather(*(store.start([new_run()]) for _ in range(50))),
        )
        assert recounts == [[]] * 5
        assert (await store.counts(ANY)).by_status() == {"pending": 70}

    with_store(path, story)


@pytest.mark.spec("READ-4")
def test_a_store_without_a_keeper_folds_by_itself(path, monkeypatch):
    """The writer does it between commits, once many rows have piled up."""
    monkeypatch.setattr(folding, "PILE_MAX", 30)
    monkeypatch.setattr(writer, "PILE_EVERY", 4)

    async def story(store):
        for number in range(100):
            await store.start([new_run(tenant=f"t{number}")])
        return await store.counts(ANY), await store.recount()

    counts, wrong = with_store(path, story)
    assert (counts.by_status(), wrong) == ({"pending": 100}, [])
    with raw_connection(path) as db:
        assert db.execute("select count(*) from workflow_count_change").fetchone()[0] <= 40


@pytest.mark.spec("READ-4", "STORE-5")
def test_the_runs_of_an_older_file_are_counted(path):
    """By the migration; what has happened to them was not counted."""
    old = migrated(path, 11)
    for number, (tenant, status, end, gone) in enumerate(
        (
            ("default", "pending", None, None),
            ("acme", "pending", None, None),
            ("acme", "succeeded", 1, None),
            ("acme", "succeeded", 1, 1),
            ("acme", "pending", None, -1),
        )
    ):
        old.execute(INSERT, (f"00000000-0000-7000-8000-00000000000{number}", tenant, status, end, gone))
    old.close()

    async def story(store):
        every, acme = await store.counts(ANY), await store.counts("acme")
        assert await store.recount() == []
        return every, acme

    every, acme = with_store(path, story)
    assert (every.by_type, every.totals) == ({"shop.order.v1": {"pending": 2, "succeeded": 1}}, {})
    assert acme.by_status() == {"pending": 1, "succeeded": 1}


@pytest.mark.spec("READ-4")
def test_a_commit_that_is_rolled_back_counts_nothing(path):
    """The change of the counts is in the commit of the run: both are there, or neither."""

    async def story(store):
        await store.start([new_run()])

        def work(db, now):
            db.run(INSERT, ("00000000-0000-7000-8000-000000000009", "default", "pending", None, None))
            raise ValueError("the end of the process")

        with pytest.raises(ValueError, match="the end"):
            await store._write(work)
        return (await store.counts(ANY)).by_status(), await store.recount()

    assert with_store(path, story) == ({Status.PENDING: 1}, [])


@pytest.mark.spec("READ-4")
@pytest.mark.parametrize(
    "name",
    ["kept", "totals", "next_pair", "has_pending", "due", "leased", "leased_of_tenant", "oldest_minute"],
)
def test_a_read_of_counts_scans_no_table_of_runs(path, name):
    """Every statement goes by an index, and sorts nothing."""

    async def nothing(store):
        pass

    with_store(path, nothing)
    with raw_connection(path) as db:
        plan = [row[3] for row in db.execute(f"explain query plan {folding.SQL[name]}", _Any()).fetchall()]
    assert not [
        line for line in plan if line.startswith("SCAN") and "USING" not in line and "subquery" not in line
    ]
    assert not [line for line in plan if "TEMP B-TREE" in line]


class _Any(dict):
    def __missing__(self, key):
        return 1


def test_the_slot_of_a_change_is_as_long_as_a_fold_waits():
    """The triggers have the number too: a slot is over when it is folded."""
    triggers = (folding.micros(FOLD_SECONDS), FOLD_MAX > 0)
    assert triggers == (10_000_000, True)
