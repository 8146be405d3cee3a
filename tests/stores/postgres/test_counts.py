"""Kept counts on Postgres: bounds, repairs, old minutes, and a server that crashes."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import psycopg
import pytest

from holdfast.contract import (
    COUNTED_TYPES_MAX,
    DUE_COUNTED,
    FOLD_SECONDS,
    RATE_SECONDS,
    RATES_MAX,
    SCALE_MAX,
)
from holdfast.errors import UsageError
from holdfast.records import ANY, Ask, Chore, Miscount, NewRun
from holdfast.testing.contract.driver import TYPE
from holdfast.testing.contract.test_counts import assert_counts, counted, fold, totals
from servers.postgres import running_postgres
from tests.stores.postgres.kit import database
from tests.stores.postgres.sessions.opened import opened


def execute(text, *values):
    return database()[1].execute(text, values or None)


@pytest.mark.spec("READ-4")
def test_the_bounds_of_the_functions_are_those_of_the_contract(driver):
    row = execute(
        "select workflow.counted_types_max(), workflow.rates_max(), workflow.scale_max(), "
        "workflow.due_counted(), extract(epoch from workflow.fold_age()), "
        "extract(epoch from workflow.rate_age())"
    ).fetchone()
    assert row == (COUNTED_TYPES_MAX, RATES_MAX, SCALE_MAX, DUE_COUNTED, FOLD_SECONDS, RATE_SECONDS)


@pytest.mark.spec("READ-4")
def test_the_types_with_the_most_runs_are_named_and_the_rest_is_one(driver):
    """Also of happenings; nothing is lost from the sums."""
    driver.start_many([NewRun(id=driver.id(), type=f"shop.t{n}.v1") for n in range(COUNTED_TYPES_MAX + 5)])
    driver.start_many(
        [NewRun(id=driver.id(), type=f"shop.t{n}.v1") for n in range(0, COUNTED_TYPES_MAX + 5, 100)]
    )
    for _ in range(2):
        found = driver.counts()
        assert found.more
        assert len(found.by_type) == len(found.totals) == COUNTED_TYPES_MAX + 1
        assert found.by_type[""] == {"pending": 5}
        assert (found.by_type["shop.t1000.v1"], found.totals["shop.t1000.v1"]) == (
            {"pending": 2},
            {"started": 2},
        )
        assert found.by_status() == {"pending": COUNTED_TYPES_MAX + 5 + 11}
        driver.clock.turn(FOLD_SECONDS)
        fold(driver)


@pytest.mark.spec("READ-4")
def test_the_empty_name_is_no_tenant_and_sees_nothing(driver):
    """The counts of all tenants are kept under it."""
    driver.start()
    driver.clock.turn(FOLD_SECONDS)
    fold(driver)
    (found,) = execute("select workflow.counts('')").fetchone()
    (rates,) = execute("select workflow.rates('', 0, null, 9)").fetchone()
    assert (found["by_type"], found["totals"], rates) == ({}, {}, [])
    with pytest.raises(UsageError, match="tenant"):
        driver.start(tenant="")
    with pytest.raises(psycopg.Error, match="tenant"):
        execute("insert into workflow.workflow_run (type, tenant) values ('a.b.v1', '')")


@pytest.mark.spec("READ-4")
def test_kept_counts_that_are_zero_have_no_row(driver):
    driver.complete(driver.held())
    driver.clock.turn(FOLD_SECONDS)
    fold(driver)
    driver.complete(driver.held())
    driver.clock.turn(FOLD_SECONDS)
    fold(driver)
    rows = execute("select tenant, status, number from workflow.workflow_count order by tenant").fetchall()
    assert rows == [("", "succeeded", 2), ("default", "succeeded", 2)]


DAMAGES = {
    "a change is lost": "delete from workflow.workflow_count_change where to_status = 'leased'",
    "a count is wrong": "update workflow.workflow_count set number = number + 7 where tenant = 'acme'",
    "a count is missing": "delete from workflow.workflow_count where tenant = 'acme'",
    "the sum is wrong": "update workflow.workflow_count set number = number - 3 where tenant = ''",
    "the sum is missing": "delete from workflow.workflow_count where tenant = ''",
    "all is lost": "delete from workflow.workflow_count; delete from workflow.workflow_count_change",
    "a count is too much": "insert into workflow.workflow_count values ('gone', 'a.b.v1', 'failed', 3)",
}


@pytest.mark.spec("READ-4")
@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_counts_are_found_and_repaired(driver, damage):
    """Those of each tenant, and those of all."""
    for tenant in ("acme", "default", "acme"):
        driver.start(tenant=tenant)
    driver.clock.turn(FOLD_SECONDS)
    fold(driver)
    driver.claim(1)
    execute(DAMAGES[damage])
    found = driver.recount()
    assert found
    assert all(one.kept != one.real for one in found)
    assert driver.recount(repair=True) == found
    for _ in range(2):
        assert driver.recount() == []
        assert_counts(driver, "acme", "gone")
        driver.clock.turn(FOLD_SECONDS)
        fold(driver)


@pytest.mark.spec("READ-4")
def test_a_repair_mends_numbers_that_began_anew(driver):
    """As after a restore that left the sequence behind: changes below the mark of the folds are not read."""
    driver.start()
    execute("insert into workflow.workflow_count_fold (id, past, next, next_xid) values (1, 1000, 1000, '3')"
            " on conflict (id) do update set past = 1000, next = 1000")  # fmt: skip
    driver.start()
    assert driver.recount()
    driver.recount(repair=True)
    assert driver.recount() == []
    driver.start()
    assert driver.recount() == []
    driver.clock.turn(FOLD_SECONDS)
    fold(driver)
    assert_counts(driver, "default")


@pytest.mark.spec("READ-4")
def test_a_difference_is_named_by_tenant_type_and_status(driver):
    driver.start(tenant="acme")
    driver.clock.turn(FOLD_SECONDS)
    fold(driver)
    execute("update workflow.workflow_count set number = 5")
    assert driver.recount() == [Miscount(tenant="acme", type=TYPE, status="pending", kept=5, real=1)]


@pytest.mark.spec("READ-4", "OPS-2")
def test_old_minutes_go_and_totals_stay(driver):
    driver.complete(driver.held())
    driver.clock.turn(FOLD_SECONDS)
    fold(driver)
    driver.clock.turn(RATE_SECONDS + 60)
    driver.start()
    driver.clock.turn(FOLD_SECONDS)
    fold(driver)
    assert [row[1:] for row in driver.rates()] == [(TYPE, "started", 1)]
    assert totals(driver) == {"started": 2, "succeeded": 1}
    assert execute("select count(*) from workflow.workflow_rate where isfinite(minute)").fetchone() == (2,)


@pytest.mark.spec("READ-4")
def test_a_fold_is_due_when_the_oldest_change_is_old_enough_and_takes_all(driver):
    """So there is one fold in ten seconds, however many runs move."""
    driver.start()
    at = driver.clock.now + int(FOLD_SECONDS * 1_000_000)
    driver.clock.turn(FOLD_SECONDS - 1)
    driver.start()
    assert (driver.due().count_at, driver.tick(only=Chore.COUNT).folded) == (at, 0)
    driver.clock.turn(1)
    assert (driver.due().count_at, driver.tick(only=Chore.COUNT).folded) == (at, 2)
    assert driver.due().count_at is None
    assert counted(driver) == {(TYPE, "pending"): 2}


AT_ONCE = """
create or replace function workflow.fold_age() returns interval language sql immutable as
    'select interval ''0''';
"""


@pytest.mark.spec("READ-4", "STORE-2")
@pytest.mark.slow
def test_after_a_crash_of_the_server_the_counts_are_those_of_the_rows():
    """Runs move and changes are folded until the server is killed, again and again."""
    with running_postgres(fsync=True) as server:
        server.create_database("crashes")
        url = server.url("crashes")
        asyncio.run(_made(url))
        with psycopg.connect(server.dsn("crashes"), autocommit=True) as admin:
            admin.execute(AT_ONCE)
        for _ in range(3):
            asyncio.run(_until_killed(url, server))
            server.start()
            assert asyncio.run(_is_right(url))
            with psycopg.connect(server.dsn("crashes"), autocommit=True) as admin:
                (past,) = admin.execute("select past from workflow.workflow_count_fold").fetchone()
                assert past > 0


async def _made(url):
    async with opened(url):
        pass


async def _until_killed(url, server):
    async with opened(url) as store:
        store.call_seconds = 2.0

        async def live(number):
            while True:
                await store.start([NewRun(id=uuid4(), type=f"shop.t{number}.v1") for _ in range(number + 1)])
                await store.claim(Ask(worker="w", types=(f"shop.t{number}.v1",), limit=2))
                await store.stats()

        async def folds():
            while True:
                await store._call("fold_counts", 7)

        tasks = [asyncio.create_task(one) for one in (*(live(n) for n in range(4)), folds())]
        await asyncio.sleep(1.0)
        server.kill()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _is_right(url):
    async with opened(url) as store:
        counts = await store.counts(ANY)
        return await store.recount() == [] and sum(counts.by_status().values()) > 0
