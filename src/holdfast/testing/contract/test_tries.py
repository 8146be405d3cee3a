"""Attempts as shown: a run that failed by a step has the attempts of that step."""

from __future__ import annotations

import pytest

from holdfast.lifecycle import Move, Status, StepStatus
from holdfast.records import ANY, RunFilter, StepWrite

from .driver import error

FAILED = {"error": error("exhausted", "a"), "last_error": "exhausted: no", "kind": "exhausted"}


def tried(key, attempts, most, status=StepStatus.READY, **fields):
    return StepWrite(
        key=key, status=status, attempts=attempts, max_attempts=most, error=error("error", key), **fields
    )


@pytest.mark.spec("RETRY-10")
def test_a_run_that_failed_by_a_step_has_the_attempts_of_that_step(driver):
    """They are in the run, in lists and in the trail, though the step's outcome was progress."""
    claim = driver.held()
    driver.commit(claim, Move.FAIL, tried("a", 5, 5, StepStatus.FAILED), attempt=5, max_attempts=5, **FAILED)
    (listed,) = driver.run(driver.store.list(RunFilter(tenant=ANY)))
    for run in (driver.get(claim.id), listed):
        assert (run.status, run.attempt, run.max_attempts, run.crashes) == (Status.FAILED, 5, 5, 0)
    told = driver.last(claim.id, "failed")
    assert (told["attempt"], told["max_attempts"], told["kind"]) == (5, 5, "exhausted")


@pytest.mark.spec("RETRY-10", "RETRY-1")
def test_a_retry_by_a_person_begins_with_the_tries_that_the_run_was_given(driver):
    claim = driver.held()
    driver.commit(claim, Move.FAIL, tried("a", 5, 5, StepStatus.FAILED), attempt=5, max_attempts=5, **FAILED)
    driver.retry_run(claim.id)
    assert (driver.get(claim.id).attempt, driver.get(claim.id).max_attempts) == (0, 3)
    assert driver.take(claim.id).max_attempts == 3


@pytest.mark.spec("RETRY-10")
@pytest.mark.parametrize("in_place", [True, False])
def test_each_step_that_is_retried_tells_its_own_tries(driver, in_place):
    claim = driver.held()
    steps = (tried("a", 2, 5, due_at=driver.clock.now), tried("b", 1, 2, due_at=driver.clock.now))
    driver.retry(claim, *steps, in_place=in_place, refund=True)
    rows = [row.data for row in driver.trail(claim.id) if row.type == "retried"]
    assert [(row["step"], row["attempt"], row["max_attempts"]) for row in rows] == [("a", 2, 5), ("b", 1, 2)]


@pytest.mark.spec("RETRY-10")
def test_an_execution_that_is_retried_tells_its_tries_without_crashes(driver):
    run = driver.start()
    driver.take(run)
    driver.clock.turn(31)
    driver.tick()
    claim = driver.take(run)
    driver.retry(claim, delay=0.0)
    told = driver.last(run, "retried")
    assert (told["attempt"], told["max_attempts"]) == (1, 3)
    driver.fail(driver.take(run))
    told = driver.last(run, "failed")
    assert (told["attempt"], told["max_attempts"]) == (2, 3)
    assert (driver.get(run).attempt, driver.get(run).crashes) == (3, 1)


@pytest.mark.spec("RETRY-10", "PLAN-1")
def test_a_plan_that_failed_has_the_tries_of_its_task(driver):
    claim = driver.begun("A", "B")
    run = claim.id
    driver.retry(claim, tried("A", 1, 2), delay=0.0)
    told = driver.last(run, "retried")
    assert (told["step"], told["attempt"], told["max_attempts"]) == ("A", 1, 2)
    claim = driver.take(run)
    driver.commit(claim, Move.FAIL, tried("A", 2, 2, StepStatus.FAILED), attempt=2, max_attempts=2, **FAILED)
    seen = driver.get(run)
    assert (seen.status, seen.attempt, seen.max_attempts) == (Status.FAILED, 2, 2)
    assert driver.steps(run)[0].attempts == 2


@pytest.mark.spec("RETRY-10")
def test_an_execution_that_is_given_back_is_no_attempt(driver):
    """Its attempt is refunded: the trail has those before it."""
    run = driver.start()
    for refund, attempt in ((True, 0), (False, 1), (True, 1)):
        driver.retry(driver.take(run), delay=0.0, refund=refund)
        assert (driver.last(run, "retried")["attempt"], driver.get(run).attempt) == (attempt, attempt)


@pytest.mark.spec("RETRY-10", "LEASE-6", "PLAN-9")
def test_crashes_of_a_plans_task_are_no_attempts(driver):
    """Crashes are counted separately, in the step's row, the run and the trail."""
    run = driver.plan("A", "B")
    driver.retry(driver.take(run), tried("A", 1, 3), delay=0.0)
    for _ in range(4):
        driver.take(run)
        driver.clock.turn(31)
        driver.tick()
        driver.clock.turn(100)
    assert (driver.get(run).attempt, driver.get(run).crashes) == (5, 4)
    assert (driver.last(run, "failed")["attempt"], driver.steps(run)[0].attempts) == (1, 1)
