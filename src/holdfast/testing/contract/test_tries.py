"""What is shown as attempts is what happened: of a run that failed by a step, how often that was tried."""

from __future__ import annotations

import pytest

from holdfast.lifecycle import Move, Status, StepStatus
from holdfast.records import ANY, RunFilter, StepWrite

from .hand import error

FAILED = {"error": error("exhausted", "a"), "last_error": "exhausted: no", "kind": "exhausted"}


def tried(key, attempts, most, status=StepStatus.READY, **fields):
    return StepWrite(
        key=key, status=status, attempts=attempts, max_attempts=most, error=error("error", key), **fields
    )


@pytest.mark.spec("RETRY-10")
def test_a_run_that_failed_by_a_step_has_the_tries_of_that_step(hand):
    """In the run, in lists and in the trail, though the step's outcome was progress."""
    claim = hand.held()
    hand.commit(claim, Move.FAIL, tried("a", 5, 5, StepStatus.FAILED), attempt=5, max_attempts=5, **FAILED)
    (listed,) = hand.run(hand.store.list(RunFilter(tenant=ANY)))
    for run in (hand.get(claim.id), listed):
        assert (run.status, run.attempt, run.max_attempts, run.crashes) == (Status.FAILED, 5, 5, 0)
    told = hand.last(claim.id, "failed")
    assert (told["attempt"], told["max_attempts"], told["kind"]) == (5, 5, "exhausted")


@pytest.mark.spec("RETRY-10", "RETRY-1")
def test_a_retry_by_a_person_begins_with_the_tries_that_the_run_was_given(hand):
    claim = hand.held()
    hand.commit(claim, Move.FAIL, tried("a", 5, 5, StepStatus.FAILED), attempt=5, max_attempts=5, **FAILED)
    hand.retry_run(claim.id)
    assert (hand.get(claim.id).attempt, hand.get(claim.id).max_attempts) == (0, 3)
    assert hand.take(claim.id).max_attempts == 3


@pytest.mark.spec("RETRY-10")
@pytest.mark.parametrize("in_place", [True, False])
def test_each_step_that_is_retried_tells_its_own_tries(hand, in_place):
    claim = hand.held()
    steps = (tried("a", 2, 5, due_at=hand.clock.now), tried("b", 1, 2, due_at=hand.clock.now))
    hand.retry(claim, *steps, in_place=in_place, refund=True)
    rows = [row.data for row in hand.trail(claim.id) if row.type == "retried"]
    assert [(row["step"], row["attempt"], row["max_attempts"]) for row in rows] == [("a", 2, 5), ("b", 1, 2)]


@pytest.mark.spec("RETRY-10")
def test_an_execution_that_is_retried_tells_its_tries_without_crashes(hand):
    run = hand.start()
    hand.take(run)
    hand.clock.turn(31)
    hand.tick()
    claim = hand.take(run)
    hand.retry(claim, delay=0.0)
    told = hand.last(run, "retried")
    assert (told["attempt"], told["max_attempts"]) == (1, 3)
    hand.fail(hand.take(run))
    told = hand.last(run, "failed")
    assert (told["attempt"], told["max_attempts"]) == (2, 3)
    assert (hand.get(run).attempt, hand.get(run).crashes) == (3, 1)


@pytest.mark.spec("RETRY-10", "PLAN-1")
def test_a_plan_that_failed_has_the_tries_of_its_task(hand):
    claim = hand.begun("A", "B")
    run = claim.id
    hand.retry(claim, tried("A", 1, 2), delay=0.0)
    told = hand.last(run, "retried")
    assert (told["step"], told["attempt"], told["max_attempts"]) == ("A", 1, 2)
    claim = hand.take(run)
    hand.commit(claim, Move.FAIL, tried("A", 2, 2, StepStatus.FAILED), attempt=2, max_attempts=2, **FAILED)
    seen = hand.get(run)
    assert (seen.status, seen.attempt, seen.max_attempts) == (Status.FAILED, 2, 2)
    assert hand.steps(run)[0].attempts == 2


@pytest.mark.spec("RETRY-10")
def test_an_execution_that_is_given_back_is_no_try(hand):
    """Its attempt is refunded: the trail tells of those before it."""
    run = hand.start()
    for refund, attempt in ((True, 0), (False, 1), (True, 1)):
        hand.retry(hand.take(run), delay=0.0, refund=refund)
        assert (hand.last(run, "retried")["attempt"], hand.get(run).attempt) == (attempt, attempt)


@pytest.mark.spec("RETRY-10", "LEASE-6", "PLAN-9")
def test_a_task_at_which_a_plan_crashed_too_often_was_not_tried_by_that(hand):
    """Crashes are counted apart, in the step's row as in the run's and in the trail."""
    run = hand.plan("A", "B")
    hand.retry(hand.take(run), tried("A", 1, 3), delay=0.0)
    for _ in range(4):
        hand.take(run)
        hand.clock.turn(31)
        hand.tick()
        hand.clock.turn(100)
    assert (hand.get(run).attempt, hand.get(run).crashes) == (5, 4)
    assert (hand.last(run, "failed")["attempt"], hand.steps(run)[0].attempts) == (1, 1)
