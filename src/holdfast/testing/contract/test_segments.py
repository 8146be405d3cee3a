"""A whole run in one item: its steps and its end, or nothing of it."""

from __future__ import annotations

import pytest

from holdfast.lifecycle import Move, Status, StepKind
from holdfast.records import NewRun

from .hand import TYPE, done, listen

FIVE = tuple(done(key, f'"{key}"', started_at=n) for n, key in enumerate("abcde"))


@pytest.mark.spec("FLOW-12")
def test_a_run_that_ends_in_one_item_is_as_one_that_came_step_by_step(hand):
    """Rows, numbers and trail differ in nothing."""
    hand.start_many([NewRun(id=hand.id(), type=TYPE) for _ in range(2)])
    once, slowly = hand.claim()
    hand.complete(once, *FIVE, started_at=7)
    for n, step in enumerate(FIVE):
        hand.checkpoint(slowly, step, started_at=None if n else 7)
    hand.complete(slowly)
    assert hand.steps(once.id) == hand.steps(slowly.id)
    trails = [[(row.type, row.data) for row in hand.trail(one.id)] for one in (once, slowly)]
    assert trails[0] == trails[1]
    assert hand.told(once.id, 2) == ["started", *["step_succeeded"] * 5, "succeeded"]
    run = hand.get(once.id)
    assert (run.status, run.result, run.cursor, run.attempt) == (Status.SUCCEEDED, "done", "e", 1)
    hand.assert_replayed(once.id)


@pytest.mark.spec("FLOW-12", "LEASE-14")
def test_sent_twice_it_is_answered_as_the_first_time(hand):
    claim = hand.held()
    item = hand.item(claim, Move.COMPLETE, *FIVE, result="1")
    (first,) = hand.send(item)
    before = hand.snapshot(claim.id)
    assert hand.send(item) == [first]
    assert hand.snapshot(claim.id) == before


@pytest.mark.spec("CANC-4", "PAUSE-3")
def test_an_end_wins_over_a_pause_and_a_checkpoint_of_many_keeps_them_and_pauses(hand):
    ending, going_on = hand.held(), hand.held()
    for claim in (ending, going_on):
        hand.pause(claim.id)
    assert hand.complete(ending, *FIVE).status is Status.SUCCEEDED
    assert hand.checkpoint(going_on, *FIVE).answer == "paused"
    assert len(hand.steps(ending.id)) == len(hand.steps(going_on.id)) == 5
    assert (hand.status(ending.id), hand.status(going_on.id)) == (Status.SUCCEEDED, Status.PAUSED)


@pytest.mark.spec("CANC-4", "LEASE-4")
@pytest.mark.parametrize("fate", ["cancelled", "rewound", "taken over", "expired", "deleted"])
def test_a_segment_of_a_run_that_is_gone_is_dropped_whole(hand, fate):
    claim = hand.held()
    if fate == "rewound":
        hand.checkpoint(claim, done("first"))
        hand.rewind(claim.id, "first")
    elif fate == "cancelled":
        hand.cancel(claim.id)
    elif fate == "deleted":
        hand.delete(claim.id)
    else:
        hand.clock.turn(31)
        if fate == "taken over":
            hand.tick()
            hand.take(claim.id, "w2")
    before = hand.everything()
    verdict = hand.complete(claim, *FIVE, started_at=1)
    assert verdict.answer == ("cancelled" if fate == "cancelled" else "lost")
    assert hand.everything() == before


@pytest.mark.spec("LEASE-14")
def test_a_key_twice_in_one_item_and_a_key_that_stands_keep_their_first_value(hand):
    claim = hand.held()
    assert hand.complete(claim, done("a", "1"), done("a", "2")).kept == (("a", "1"),)
    other = hand.held()
    hand.checkpoint(other, done("a", "1"))
    assert hand.complete(other, done("a", "2"), done("b", "3")).kept == (("a", "1"),)
    assert [step.output for step in hand.steps(other.id)] == ["1", "3"]


@pytest.mark.spec("RETRY-1")
def test_a_second_execution_that_gets_to_the_end_has_made_progress(hand):
    claim = hand.held()
    hand.retry(claim, delay=0)
    again = hand.take(claim.id)
    assert again.attempt == 2
    hand.complete(again, *FIVE)
    assert hand.get(claim.id).attempt == 1


@pytest.mark.spec("FLOW-12")
def test_a_segment_that_parks_carries_steps_and_waits(hand):
    claim = hand.held()
    assert hand.park(claim, *FIVE, listen()).status is Status.WAITING
    assert [step.kind for step in hand.steps(claim.id)] == [*[StepKind.TASK] * 5, StepKind.EVENT]
    hand.assert_replayed(claim.id)
