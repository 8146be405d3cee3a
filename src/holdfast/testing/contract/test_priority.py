"""set_priority: an open run moves in the queue."""

from __future__ import annotations

import pytest

from holdfast.errors import IllegalMove, UnknownRun
from holdfast.lifecycle import Status

from .driver import listen


@pytest.mark.spec("START-13")
def test_a_pending_run_is_claimed_by_its_new_priority(driver):
    """The trail names the person, and nothing else of the run changes."""
    runs = [driver.start() for _ in range(3)]
    before = driver.get(runs[2])
    after = driver.set_priority(runs[2], 5, by="ann")
    assert (after.priority, after.status, after.fence, after.run_at) == (
        5, Status.PENDING, before.fence, before.run_at,
    )  # fmt: skip
    assert driver.get(runs[2]) == after
    driver.set_priority(runs[0], 999)
    assert driver.last(runs[2], "reprioritized") == {"by": "ann", "priority": 5}
    assert [driver.take(limit=1).id for _ in runs] == [runs[2], runs[1], runs[0]]
    driver.assert_replayed(runs[2])


@pytest.mark.spec("START-13")
def test_the_new_priority_counts_between_tenants_and_under_limits(driver):
    """This holds for every way in which a claim reads the queue."""
    first, second = driver.start(limit_key="k"), driver.start(limit_key="k")
    driver.run(driver.store.limit("key", "k", concurrency=1))
    driver.set_priority(second, 0)
    assert [claim.id for claim in driver.claim(tenants=("default",))] == [second]
    assert driver.status(first) is Status.PENDING


@pytest.mark.spec("START-13")
def test_a_leased_run_goes_on_and_has_the_new_priority_in_the_queue(driver):
    """Its holder is not affected."""
    claim, other = driver.held(), driver.start()
    driver.set_priority(claim.id, 1)
    assert driver.get(claim.id).status is Status.LEASED
    assert driver.checkpoint(claim).answer == "applied"
    assert driver.release(claim).answer == "applied"
    assert [one.id for one in driver.claim()] == [claim.id, other]


@pytest.mark.spec("START-13")
@pytest.mark.parametrize("status", ["waiting", "paused"])
def test_a_run_at_rest_takes_its_new_priority_along(driver, status):
    claim, other = driver.held(), driver.start()
    if status == "waiting":
        driver.park(claim, listen())
    else:
        driver.release(claim)
        driver.pause(claim.id)
    assert driver.set_priority(claim.id, 1).status == status
    if status == "waiting":
        driver.emit()
    else:
        driver.resume(claim.id)
    assert [one.id for one in driver.claim()] == [claim.id, other]
    driver.assert_replayed(claim.id)


@pytest.mark.spec("START-13")
def test_the_same_priority_changes_nothing(driver):
    run = driver.start(priority=7)
    before = driver.snapshot(run)
    assert driver.set_priority(run, 7) == before[0]
    assert driver.snapshot(run) == before


@pytest.mark.spec("START-13")
@pytest.mark.parametrize("end", ["complete", "fail", "cancel"])
def test_a_run_that_has_ended_is_refused(driver, end):
    """The refusal names the true status, and nothing changes."""
    claim = driver.held()
    getattr(driver, end)(claim.id if end == "cancel" else claim)
    before = driver.snapshot(claim.id)
    with pytest.raises(IllegalMove, match=f"cannot reprioritize run .*: it is {before[0].status}") as refused:
        driver.set_priority(claim.id, 5)
    assert (refused.value.move, refused.value.status) == ("reprioritize", before[0].status)
    assert driver.snapshot(claim.id) == before


@pytest.mark.spec("START-13")
def test_a_plan_keeps_its_rows_and_a_deleted_run_is_unknown(driver):
    plan = driver.plan("A", "B")
    steps = driver.steps(plan)
    assert driver.set_priority(plan, 3).priority == 3
    assert driver.steps(plan) == steps
    driver.delete(plan)
    with pytest.raises(UnknownRun):
        driver.set_priority(plan, 4)
    assert driver.restore(plan).priority == 3
