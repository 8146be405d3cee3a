"""The position of a plan: number and name of its current step are fields of the run."""

from __future__ import annotations

import pytest

from holdfast.records import ANY, RunFilter

from .driver import done, gate


def _place(driver, run):
    """Return the position from `get`, which lists with and without values must also have."""
    seen = driver.get(run)
    place = seen.current_step_seq, seen.current_step_name
    for values in (True, False):
        (listed,) = driver.run(driver.store.list(RunFilter(values=values, tenant=ANY), 10))
        assert (listed.current_step_seq, listed.current_step_name, listed.cursor) == (*place, seen.cursor)
    return place


@pytest.mark.spec("PLAN-17")
def test_number_and_name_of_the_current_step_follow_the_plan(driver):
    """This holds for open gates and for tasks, in the queue or leased; at the end there is none."""
    run = driver.plan("B", gate("A"), "9", 'x"y')
    assert _place(driver, run) == (0, "B")
    claim = driver.take(run)
    assert _place(driver, run) == (0, "B")
    driver.advance(claim, "B")
    assert _place(driver, run) == (1, "A")
    driver.approve(run)
    assert _place(driver, run) == (2, "9")
    claim = driver.take(run)
    driver.advance(claim, "9", in_place=True)
    assert _place(driver, run) == (3, 'x"y')
    driver.rewind(run, "9")
    assert _place(driver, run) == (2, "9")
    claim = driver.take(run)
    driver.advance(claim, "9", in_place=True)
    driver.advance(claim, 'x"y')
    assert _place(driver, run) == (None, None)
    assert driver.get(run).cursor == 'x"y'


@pytest.mark.spec("PLAN-17")
@pytest.mark.parametrize("end", ["fail", "cancel"])
def test_a_plan_that_ended_without_success_says_where(driver, end):
    claim = driver.begun("B", "A", "9")
    driver.advance(claim, "B", in_place=True)
    if end == "fail":
        driver.fail(claim)
    else:
        driver.cancel(claim.id)
    assert _place(driver, claim.id) == (1, "A")


@pytest.mark.spec("PLAN-17")
def test_code_has_no_current_step(driver):
    claim = driver.held()
    driver.checkpoint(claim, done("a"))
    assert _place(driver, claim.id) == (None, None)
    assert driver.get(claim.id).cursor == "a"
