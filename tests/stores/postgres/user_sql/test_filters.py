"""Runs of user SQL are found by the filters of lists: triggers and indexes fill what these need."""

from __future__ import annotations

import pytest

from holdfast.records import ANY, RunFilter
from holdfast.testing.contract.driver import Clock, StoreDriver
from tests.stores.postgres import kit

START = """
insert into workflow.workflow_run (type, labels) values ('shop.order.v1', %s) returning id
"""
LABELS = "select name, value from workflow.workflow_label where run_id = %s order by name"


@pytest.fixture
def driver(tmp_path):
    clock = Clock()
    driver = StoreDriver(kit.make(clock, tmp_path), clock)
    yield driver
    driver.close()


def found(driver, **where):
    return [run.id for run in driver.run(driver.store.list(RunFilter(tenant=ANY, **where)))]


@pytest.mark.spec("READ-2")
def test_labels_of_an_insert_and_of_an_update_are_found(driver):
    """Also after they were changed; odd ones do not stop the insert."""
    _, sql = kit.database()
    (run,) = sql.execute(START, ('{"customer": "42"}',)).fetchone()
    assert found(driver, labels={"customer": "42"}) == [run]
    sql.execute("update workflow.workflow_run set labels = %s where id = %s", ('{"team": "a"}', run))
    assert found(driver, labels={"customer": None}) == []
    assert found(driver, labels={"team": "a"}) == [run]
    sql.execute("update workflow.workflow_run set labels = null where id = %s", (run,))
    assert sql.execute(LABELS, (run,)).fetchall() == []


@pytest.mark.spec("READ-2")
def test_the_error_of_a_worker_in_sql_has_a_fingerprint(driver):
    """It sets status and last_error alone."""
    _, sql = kit.database()
    (run,) = sql.execute(START, (None,)).fetchone()
    sql.execute(
        "update workflow.workflow_run set status = 'leased', leased_by = 'sql',"
        " lease_until = workflow.clock() + interval '1 minute' where id = %s", (run,)
    )  # fmt: skip
    sql.execute(
        "update workflow.workflow_run set status = 'failed', last_error = 'no stock' where id = %s", (run,)
    )  # fmt: skip
    text = driver.get(run).fingerprint
    assert "no stock" in text
    assert found(driver, error=text) == found(driver, error=text[:5] + "%") == [run]
