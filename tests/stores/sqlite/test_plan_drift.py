"""Rows of a plan that another program has changed: detected at the next step, and nothing is executed
twice."""

from __future__ import annotations

from contextlib import closing

import apsw
import pytest

from holdfast.lifecycle import Status, StepStatus
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing.contract.driver import Clock, StoreDriver, gate


@pytest.fixture
def driver(tmp_path):
    clock = Clock()
    driver = StoreDriver(SqliteStore(str(tmp_path / "holdfast.db"), clock=clock), clock)
    yield driver
    driver.close()


def _meddle(path, run, step, status):
    with closing(apsw.Connection(str(path))) as other:
        other.set_busy_timeout(5000)
        other.execute(
            "update workflow_step set status = ?, finished_at = ? where run_id = ? and key = ?",
            (status, None if status == "waiting" else 1, str(run), step),
        )


@pytest.mark.spec("PLAN-5")
@pytest.mark.parametrize("status", ["succeeded", "failed", "cancelled", "waiting"])
@pytest.mark.parametrize("in_place", [True, False])
def test_a_next_row_that_is_not_pending_fails_the_run_as_drift(driver, tmp_path, status, in_place):
    """The step that was done stays done; the row behind it is neither called nor opened."""
    claim = driver.begun("A", "B", gate("C"))
    _meddle(tmp_path / "holdfast.db", claim.id, "B", status)
    verdict = driver.advance(claim, "A", in_place=in_place)
    assert (verdict.answer, verdict.status, verdict.settled) == ("applied", Status.FAILED, ())
    seen = driver.get(claim.id)
    assert (seen.error.kind, seen.error.step, seen.waiting_on) == ("drift", "B", ())
    assert driver.step(claim.id, "A").status is StepStatus.SUCCEEDED
    assert (driver.approvals(), driver.claim()) == ([], [])
    assert driver.told(claim.id)[-1] == "failed"


@pytest.mark.spec("PLAN-5", "APPR-2")
def test_a_gate_whose_next_row_was_meddled_with_fails_the_run_as_drift(driver, tmp_path):
    """The same when a person's decision lets the plan go on."""
    run = driver.plan(gate("G"), "B", "C")
    _meddle(tmp_path / "holdfast.db", run, "B", "succeeded")
    assert driver.approve(run).run.status is Status.FAILED
    assert (driver.get(run).error.kind, driver.claim()) == ("drift", [])
