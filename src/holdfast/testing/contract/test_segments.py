"""A whole run in one item: all of its steps and its end, or nothing."""

from __future__ import annotations

import pytest

from holdfast.lifecycle import Move, Status, StepKind
from holdfast.records import NewRun

from .driver import TYPE, done, listen

FIVE = tuple(done(key, f'"{key}"', started_at=n) for n, key in enumerate("abcde"))


@pytest.mark.spec("FLOW-12")
def test_a_run_that_ends_in_one_item_is_as_one_that_came_step_by_step(driver):
    """Rows, numbers and trail are equal."""
    driver.start_many([NewRun(id=driver.id(), type=TYPE) for _ in range(2)])
    once, slowly = driver.claim()
    driver.complete(once, *FIVE, started_at=7)
    for n, step in enumerate(FIVE):
        driver.checkpoint(slowly, step, started_at=None if n else 7)
    driver.complete(slowly)
    assert driver.steps(once.id) == driver.steps(slowly.id)
    trails = [[(row.type, row.data) for row in driver.trail(one.id)] for one in (once, slowly)]
    assert trails[0] == trails[1]
    assert driver.told(once.id, 2) == ["started", *["step_succeeded"] * 5, "succeeded"]
    run = driver.get(once.id)
    assert (run.status, run.result, run.cursor, run.attempt) == (Status.SUCCEEDED, "done", "e", 1)
    driver.assert_replayed(once.id)


@pytest.mark.spec("FLOW-12", "LEASE-14")
def test_sent_twice_it_is_answered_as_the_first_time(driver):
    claim = driver.held()
    item = driver.item(claim, Move.COMPLETE, *FIVE, result="1")
    (first,) = driver.send(item)
    before = driver.snapshot(claim.id)
    assert driver.send(item) == [first]
    assert driver.snapshot(claim.id) == before


@pytest.mark.spec("CANC-4", "PAUSE-3")
def test_an_end_wins_over_a_pause_and_a_checkpoint_of_many_keeps_them_and_pauses(driver):
    ending, going_on = driver.held(), driver.held()
    for claim in (ending, going_on):
        driver.pause(claim.id)
    assert driver.complete(ending, *FIVE).status is Status.SUCCEEDED
    assert driver.checkpoint(going_on, *FIVE).answer == "paused"
    assert len(driver.steps(ending.id)) == len(driver.steps(going_on.id)) == 5
    assert (driver.status(ending.id), driver.status(going_on.id)) == (Status.SUCCEEDED, Status.PAUSED)


@pytest.mark.spec("CANC-4", "LEASE-4")
@pytest.mark.parametrize("fate", ["cancelled", "rewound", "taken over", "expired", "deleted"])
def test_a_segment_of_a_run_that_is_gone_is_dropped_whole(driver, fate):
    claim = driver.held()
    if fate == "rewound":
        driver.checkpoint(claim, done("first"))
        driver.rewind(claim.id, "first")
    elif fate == "cancelled":
        driver.cancel(claim.id)
    elif fate == "deleted":
        driver.delete(claim.id)
    else:
        driver.clock.turn(31)
        if fate == "taken over":
            driver.tick()
            driver.take(claim.id, "w2")
    before = driver.everything()
    verdict = driver.complete(claim, *FIVE, started_at=1)
    assert verdict.answer == ("cancelled" if fate == "cancelled" else "lost")
    assert driver.everything() == before


@pytest.mark.spec("LEASE-14")
def test_a_key_twice_in_one_item_and_a_key_that_stands_keep_their_first_value(driver):
    claim = driver.held()
    assert driver.complete(claim, done("a", "1"), done("a", "2")).kept == (("a", "1"),)
    other = driver.held()
    driver.checkpoint(other, done("a", "1"))
    assert driver.complete(other, done("a", "2"), done("b", "3")).kept == (("a", "1"),)
    assert [step.output for step in driver.steps(other.id)] == ["1", "3"]


@pytest.mark.spec("RETRY-1")
def test_a_second_execution_that_gets_to_the_end_has_made_progress(driver):
    claim = driver.held()
    driver.retry(claim, delay=0)
    again = driver.take(claim.id)
    assert again.attempt == 2
    driver.complete(again, *FIVE)
    assert driver.get(claim.id).attempt == 1


@pytest.mark.spec("FLOW-12")
def test_a_segment_that_parks_carries_steps_and_waits(driver):
    claim = driver.held()
    assert driver.park(claim, *FIVE, listen()).status is Status.WAITING
    assert [step.kind for step in driver.steps(claim.id)] == [*[StepKind.TASK] * 5, StepKind.EVENT]
    driver.assert_replayed(claim.id)
