"""Runs of all kinds go from store to store, by files, and end as those that did not move."""

from __future__ import annotations

from itertools import pairwise

import pytest

from holdfast.records import ANY, NewEvent, RunFilter
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing.contract.driver import done
from holdfast.testing.contract.transfers import plain, runs, without_import
from servers.redis_store import make as redis
from servers.reused_store import make as postgres
from tests.transfer.journey import furnish

pytestmark = pytest.mark.spec("STORE-6")


@pytest.fixture
def stores(fresh, clock, tmp_path):
    """Drivers of new stores: SQLite, Postgres, Redis, and SQLite again."""
    return [
        fresh(SqliteStore(str(tmp_path / "a.db"), clock=clock)),
        fresh(postgres(clock, tmp_path)),
        fresh(redis(clock, tmp_path)),
        fresh(SqliteStore(str(tmp_path / "b.db"), clock=clock)),
    ]


def test_runs_go_through_all_stores_and_end_like_their_twins(stores, fresh, exported, imported):
    twin = fresh()
    for driver in (twin, stores[0]):
        driver.ids = furnish(driver)
    for number, (source, target) in enumerate(pairwise(stores)):
        report = imported(target, exported(source, f"{number}.jsonl"))
        assert (report.refused, report.complete) == ([], True)
        assert target.recount() == []
        assert plain(without_import(runs(target))) == plain(without_import(runs(source)))
    moved = stores[-1]
    for run in moved.run(moved.store.list(RunFilter(tenant=ANY))):
        if run.status == "paused":
            moved.resume(run.id)
    assert ended(moved, twin.ids) == ended(twin, twin.ids)


def ended(driver, ids):
    """Execute all runs to their ends; return what each has come to."""
    driver.clock.now = start = 1_700_000_000_000_000 + 10**9
    driver.approve(ids["gated"])
    driver.approve(ids["plan"])
    driver.restore(ids["deleted"])
    if driver.status(ids["deleted"]) == "paused":
        driver.resume(ids["deleted"])
    for topic in ("parcel", "parcel"):
        driver.run(driver.store.emit(_event(topic, driver)))
    for _ in range(8):
        driver.clock.turn(3600)
        driver.tick()
        for claim in driver.claim(types=tuple(f"shop.{name}.v1" for name in TYPES)):
            driver.complete(claim, done("last"))
        driver.deliver()
    assert driver.clock.now > start
    return {
        name: (driver.status(run), driver.get(run).result, driver.shape(run)) for name, run in ids.items()
    }


TYPES = (
    "order", "done", "failed", "sleeping", "listening", "gated", "back", "family", "kid", "chain", "deleted",
)  # fmt: skip


def _event(topic, driver):
    return NewEvent(id=str(driver.id()), topic=topic)
