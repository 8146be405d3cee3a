"""Steps that are added to a plan: a repeat is safe, and another step of the same name is refused."""

from __future__ import annotations

import pytest

from holdfast.errors import Conflict
from holdfast.lifecycle import Status, StepStatus
from holdfast.records import StepWrite


@pytest.mark.spec("PLAN-14", "START-4")
@pytest.mark.parametrize("attempts", [None, 7])
@pytest.mark.parametrize("status", ["pending", "ready", "running", "paused"])
def test_a_step_that_is_added_once_more_is_answered_as_the_first_time(driver, status, attempts):
    """After a lost reply nothing changes, while the step is the last row and still pending."""
    claim = driver.begun("A")
    first = driver.append_step(claim.id, "X", max_attempts=attempts)
    if status == "paused":
        driver.pause(claim.id)
    if status != "pending":
        driver.advance(claim, "A", in_place=status == "running")
    before = driver.snapshot(claim.id)
    assert driver.append_step(claim.id, "X", max_attempts=attempts) == first
    assert driver.snapshot(claim.id) == before
    driver.assert_replayed(claim.id)


@pytest.mark.spec("PLAN-14")
@pytest.mark.parametrize("other", ["attempts", "no longer last", "of the plan itself", "waits", "failed"])
def test_another_step_of_a_name_that_is_there_is_refused(driver, other):
    """It would not be executed, so the caller must not be told that it was added."""
    claim = driver.begun("A", "B")
    name, fields = "X", {}
    if other == "of the plan itself":
        name = "B"
    else:
        driver.append_step(claim.id, "X")
    match other:
        case "attempts":
            fields = {"max_attempts": 9}
        case "no longer last":
            driver.append_step(claim.id, "Y")
        case "waits" | "failed":
            driver.advance(claim, "A", in_place=True)
            driver.advance(claim, "B", in_place=True)
    if other == "waits":
        driver.park(claim, StepWrite(key="X", status=StepStatus.WAITING, topic="parcel"))
    if other == "failed":
        driver.fail(claim)
        assert driver.status(claim.id) is Status.FAILED
    before = driver.snapshot(claim.id)
    with pytest.raises(Conflict):
        driver.append_step(claim.id, name, **fields)
    assert driver.snapshot(claim.id) == before
