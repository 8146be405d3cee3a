"""transact and connection=: what a store without a database of its own refuses, and what all others do."""

from __future__ import annotations

import time

import msgspec
import pytest

from holdfast.errors import StepTimeout, UsageError
from holdfast.lifecycle import Move, Status
from holdfast.records import NewEvent, NewRun, TrailWrite

from .hand import LEASE, TYPE, done, listen


class Work:
    """A function of the user's: it adds a step to the item, and counts how often it is called."""

    def __init__(self, item, key="last", before=lambda: None, **fields):
        self.item, self._key, self._before, self._fields = item, key, before, fields
        self.calls = 0

    def __call__(self, connection):
        assert connection is not None
        self.calls += 1
        self._before()
        steps = (*self.item.steps, done(self._key, '"7"'))
        return msgspec.structs.replace(self.item, steps=steps, **self._fields)


def work_of(hand, claim, *steps, **fields):
    return Work(hand.item(claim, Move.CHECKPOINT, *steps), **fields)


def send(hand, work, **limit):
    return hand.run(hand.store.transact(work.item, work, **limit))


def refuses(hand):
    """Whether this store has no database of its own; then it calls nothing, and nothing has happened."""
    claim = hand.held()
    work, before = work_of(hand, claim), hand.snapshot(claim.id)
    try:
        send(hand, work)
    except UsageError:
        assert (work.calls, hand.snapshot(claim.id)) == (0, before)
        return True
    return False


@pytest.mark.spec("FLOW-16", "MOVE-2")
def test_a_transaction_is_a_checkpoint_that_its_function_completes(hand):
    """All of the item, and the step, the events and the trail rows that the function has added."""
    if refuses(hand):
        return
    waiter, claim = hand.held(), hand.held()
    hand.park(waiter, listen(), known=0)
    event, row = NewEvent(topic="parcel", id="e1"), TrailWrite("log", '{"message":"m"}')
    work = work_of(hand, claim, done("before"), events=(event,), trail=(row,))
    verdict = send(hand, work)
    assert (verdict.answer, verdict.status, work.calls) == ("applied", Status.LEASED, 1)
    assert [(step.key, step.output) for step in hand.steps(claim.id)] == [("before", "1"), ("last", '"7"')]
    assert hand.told(claim.id)[2:] == ["log", "step_succeeded", "step_succeeded"]
    assert hand.deliver() == 1
    assert hand.status(waiter.id) is Status.PENDING
    hand.assert_replayed(claim.id)


@pytest.mark.spec("FLOW-16", "LEASE-14")
def test_a_transaction_that_was_applied_is_answered_alike_and_its_function_not_called_again(hand):
    """Law 3, also after the run has moved on."""
    if refuses(hand):
        return
    claim = hand.held()
    work = work_of(hand, claim)
    first = send(hand, work)
    assert send(hand, work) == first
    hand.complete(claim)
    before = hand.snapshot(claim.id)
    assert send(hand, work) == first
    assert (work.calls, hand.snapshot(claim.id)) == (1, before)


@pytest.mark.spec("FLOW-16", "LEASE-4", "CANC-2")
def test_the_function_of_a_transaction_is_not_called_for_one_who_does_not_hold_the_run(hand):
    """Law 2: cancelled, or overtaken."""
    if refuses(hand):
        return
    cancelled, lost = hand.held(), hand.held()
    hand.cancel(cancelled.id)
    hand.clock.turn(LEASE + 1)
    for claim, answer in ((cancelled, "cancelled"), (lost, "lost")):
        work, before = work_of(hand, claim), hand.snapshot(claim.id)
        assert send(hand, work).answer == answer
        assert (work.calls, hand.snapshot(claim.id)) == (0, before)


@pytest.mark.spec("FLOW-16", "LEASE-4", "LEASE-5")
@pytest.mark.parametrize(("late", "answer"), [(0, "applied"), (0.000001, "lost")])
def test_whether_the_run_is_held_is_asked_again_after_the_function(hand, late, answer):
    """A lease that ended meanwhile leaves nothing behind; at its very end it still holds."""
    if refuses(hand):
        return
    claim = hand.held()
    before = hand.snapshot(claim.id)
    work = work_of(hand, claim, done("before"), before=lambda: hand.clock.turn(LEASE + late))
    assert (send(hand, work).answer, work.calls) == (answer, 1)
    assert (hand.snapshot(claim.id) == before) is (answer == "lost")


@pytest.mark.spec("FLOW-16", "MOVE-2")
def test_what_the_function_of_a_transaction_raises_is_raised_and_nothing_stays(hand):
    """As it is; and the number is free for the next try."""
    if refuses(hand):
        return
    claim, wrong = hand.held(), ValueError("no")
    before = hand.snapshot(claim.id)

    def fail():
        raise wrong

    bad = work_of(hand, claim, done("before"), before=fail)
    with pytest.raises(ValueError, match="no") as raised:
        send(hand, bad)
    assert raised.value is wrong
    assert hand.snapshot(claim.id) == before
    assert send(hand, Work(bad.item)).answer == "applied"


@pytest.mark.spec("FLOW-16", "START-10")
def test_what_the_function_of_a_transaction_answers_is_checked_as_any_item_is(hand):
    """Texts, values and numbers; and what it has written is rolled back."""
    if refuses(hand):
        return
    claim = hand.held()
    before = hand.snapshot(claim.id)
    for wrong in (
        {"events": (NewEvent(topic="t", id="e\0"),)},
        {"events": (NewEvent(topic="t", id="e", payload="{x"),)},
        {"trail": (TrailWrite("log", "NaN"),)},
        {"number": 2**31},
        {"lease_seconds": -1.0},
    ):
        with pytest.raises(UsageError):
            send(hand, work_of(hand, claim, done("before"), **wrong))
    assert hand.snapshot(claim.id) == before


@pytest.mark.spec("FLOW-16")
def test_a_transaction_that_takes_too_long_is_rolled_back(hand):
    """On the wall clock: nobody else can write meanwhile."""
    if refuses(hand):
        return
    claim = hand.held()
    before = hand.snapshot(claim.id)
    work = work_of(hand, claim, before=lambda: time.sleep(0.02))
    with pytest.raises(StepTimeout):
        send(hand, work, limit_seconds=0.001)
    assert hand.snapshot(claim.id) == before


@pytest.mark.spec("FLOW-16")
@pytest.mark.parametrize("move", [Move.COMPLETE, Move.PARK, Move.RELEASE])
def test_a_transaction_is_nothing_but_a_checkpoint(hand, move):
    """Refused by every store, before anything is called."""
    claim = hand.held()
    work, before = Work(hand.item(claim, move)), hand.snapshot(claim.id)
    with pytest.raises(UsageError):
        send(hand, work)
    assert (work.calls, hand.snapshot(claim.id)) == (0, before)


@pytest.mark.spec("START-7")
def test_a_connection_that_no_store_knows_is_refused_and_nothing_is_written(hand):
    """Whoever took no notice of it would start what its caller may yet roll back."""
    claim = hand.held()
    hand.park(claim, listen(), known=0)
    run, event, before = NewRun(id=hand.id(), type=TYPE), NewEvent(topic="parcel", id="e1"), hand.everything()
    with pytest.raises(UsageError):
        hand.run(hand.store.start([run], object()))
    with pytest.raises(UsageError):
        hand.run(hand.store.emit(event, object()))
    assert hand.get(run.id) is None
    assert hand.everything() == before
    assert hand.status(claim.id) is Status.WAITING


# What a check-up asks.


@pytest.mark.spec("MOVE-7")
def test_no_run_that_moves_have_left_behind_is_stuck(hand):
    """In whatever status: each has a way on, or is at its end."""
    leased, waiting, paused, ended, deleted = (hand.held() for _ in range(5))
    hand.park(waiting, listen(), known=0)
    hand.park(paused, listen(), known=0)
    hand.pause(paused.id)
    hand.complete(ended)
    hand.delete(deleted.id)
    hand.start()
    assert hand.status(leased.id) is Status.LEASED
    assert list(hand.run(hand.store.stuck())) == []
    assert list(hand.run(hand.store.stuck(limit=0))) == []


def test_a_checkup_finds_something_to_say_and_changes_nothing(hand):
    """Each finding is one line, and what is not well says how to mend it; nothing is broken here."""
    hand.held()
    before = hand.everything()
    found = list(hand.run(hand.store.checkup()))
    assert found
    assert {one.level for one in found} <= {"ok", "warning"}
    assert all(one.what and "\n" not in one.what for one in found)
    assert all(one.mend for one in found if one.level != "ok")
    assert hand.everything() == before
