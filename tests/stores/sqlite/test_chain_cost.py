"""Cost of chains on SQLite: a long chain costs no more than a short one."""

from __future__ import annotations

import pytest

from holdfast.records import NewEvent
from holdfast.stores.sqlite import SqliteStore
from holdfast.stores.sqlite.view import view
from holdfast.testing.contract.chains import go_on, wait
from holdfast.testing.contract.driver import Clock, StoreDriver, listen


@pytest.fixture
def driver():
    clock = Clock()
    driver = StoreDriver(SqliteStore(":memory:", clock=clock, inline=True), clock)
    yield driver
    driver.close()


def counted(driver, call):
    """Return how many instructions SQLite's virtual machine executes for a call, and its answer."""
    count = []
    connection = driver.store._reader.connection
    connection.set_progress_handler(lambda: bool(count.append(1)), 1)
    try:
        answer = call()
    finally:
        connection.set_progress_handler(None)
    return len(count), answer


@pytest.mark.slow
@pytest.mark.spec("FLOW-24")
def test_events_verbs_and_claims_of_a_long_chain_cost_what_those_of_a_short_one_do(driver):
    """400 events in 40 runs after 40 in 4: the same instructions for the next event, pause and claim."""
    claim, costs = driver.held(), []
    first = claim.id
    for length in (40, 400):
        for n in range(length):
            driver.emit(id=f"{length} {n}")
        for _ in range(0, length, 10):
            for k in range(10):
                wait(driver, claim, f"w{k}")
            claim = driver.take(go_on(driver, claim))
        driver.park(claim, listen(), known=0)
        event = NewEvent(topic="parcel", id=f"last of {length}")
        emitted, _ = counted(driver, lambda event=event: driver.run(driver.store.emit(event)))
        paused, _ = counted(driver, lambda: driver.pause(first))
        resumed, _ = counted(driver, lambda: driver.resume(first))
        taken, claim = counted(driver, driver.take)
        costs.append([emitted, paused, resumed, taken])
        claim = driver.take(go_on(driver, claim))
    short, long = costs
    assert all(0 < after < before * 1.5 for before, after in zip(short, long, strict=True)), costs


@pytest.mark.spec("FLOW-24")
@pytest.mark.parametrize(
    ("name", "by"), [("links", "chain=? AND deleted_at=?"), ("deleted_links", "chain=? AND deleted_at>?")]
)
def test_to_delete_or_restore_a_chain_walks_over_no_run_that_is_done(driver, name, by):
    """A slice finds its own runs by the index, in its order."""
    plan = driver.store._reader.all("explain query plan " + view.SQL[name], ("chain", 500))
    found = [row[3] for row in plan]
    assert found[0] == f"SEARCH workflow_run USING INDEX idx_workflow_run_chain ({by})"
    assert not any("TEMP B-TREE" in line for line in found)
