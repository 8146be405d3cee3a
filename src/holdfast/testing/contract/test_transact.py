"""transact and connection=: refused by stores without their own database, the same on all others."""

from __future__ import annotations

import time

import msgspec
import pytest

from holdfast.errors import StepTimeout, UsageError
from holdfast.lifecycle import Move, Status
from holdfast.records import NewEvent, NewRun, TrailWrite

from .driver import LEASE, TYPE, done, listen


class Work:
    """A user's function: it adds a step to the item, and counts its calls."""

    def __init__(self, item, key="last", before=lambda: None, **fields):
        self.item, self._key, self._before, self._fields = item, key, before, fields
        self.calls = 0

    def __call__(self, connection):
        assert connection is not None
        self.calls += 1
        self._before()
        steps = (*self.item.steps, done(self._key, '"7"'))
        return msgspec.structs.replace(self.item, steps=steps, **self._fields)


def work_of(driver, claim, *steps, **fields):
    return Work(driver.item(claim, Move.CHECKPOINT, *steps), **fields)


def send(driver, work, **limit):
    return driver.run(driver.store.transact(work.item, work, **limit))


def refuses(driver):
    """Return True for a store without its own database; it calls nothing, and nothing happens."""
    claim = driver.held()
    work, before = work_of(driver, claim), driver.snapshot(claim.id)
    try:
        send(driver, work)
    except UsageError:
        assert (work.calls, driver.snapshot(claim.id)) == (0, before)
        return True
    return False


@pytest.mark.spec("FLOW-16", "MOVE-2")
def test_a_transaction_is_a_checkpoint_that_its_function_completes(driver):
    """The commit has the whole item, and the step, events and trail rows of the function."""
    if refuses(driver):
        return
    waiter, claim = driver.held(), driver.held()
    driver.park(waiter, listen(), known=0)
    event, row = NewEvent(topic="parcel", id="e1"), TrailWrite("log", '{"message":"m"}')
    work = work_of(driver, claim, done("before"), events=(event,), trail=(row,))
    verdict = send(driver, work)
    assert (verdict.answer, verdict.status, work.calls) == ("applied", Status.LEASED, 1)
    assert [(step.key, step.output) for step in driver.steps(claim.id)] == [("before", "1"), ("last", '"7"')]
    assert driver.told(claim.id)[2:] == ["log", "step_succeeded", "step_succeeded"]
    assert driver.deliver() == 1
    assert driver.status(waiter.id) is Status.PENDING
    driver.assert_replayed(claim.id)


@pytest.mark.spec("FLOW-16", "LEASE-14")
def test_a_transaction_that_was_applied_is_answered_alike_and_its_function_not_called_again(driver):
    """Law 3 holds also after the run has moved on."""
    if refuses(driver):
        return
    claim = driver.held()
    work = work_of(driver, claim)
    first = send(driver, work)
    assert send(driver, work) == first
    driver.complete(claim)
    before = driver.snapshot(claim.id)
    assert send(driver, work) == first
    assert (work.calls, driver.snapshot(claim.id)) == (1, before)


@pytest.mark.spec("FLOW-16", "LEASE-4", "CANC-2")
def test_the_function_of_a_transaction_is_not_called_without_the_lease(driver):
    """Law 2 holds for cancelled runs and for zombies."""
    if refuses(driver):
        return
    cancelled, lost = driver.held(), driver.held()
    driver.cancel(cancelled.id)
    driver.clock.turn(LEASE + 1)
    for claim, answer in ((cancelled, "cancelled"), (lost, "lost")):
        work, before = work_of(driver, claim), driver.snapshot(claim.id)
        assert send(driver, work).answer == answer
        assert (work.calls, driver.snapshot(claim.id)) == (0, before)


@pytest.mark.spec("FLOW-16", "LEASE-4", "LEASE-5")
@pytest.mark.parametrize(("late", "answer"), [(0, "applied"), (0.000001, "lost")])
def test_the_lease_is_checked_again_after_the_function(driver, late, answer):
    """A lease that ended meanwhile leaves nothing; at its last instant it is valid."""
    if refuses(driver):
        return
    claim = driver.held()
    before = driver.snapshot(claim.id)
    work = work_of(driver, claim, done("before"), before=lambda: driver.clock.turn(LEASE + late))
    assert (send(driver, work).answer, work.calls) == (answer, 1)
    assert (driver.snapshot(claim.id) == before) is (answer == "lost")


@pytest.mark.spec("FLOW-16", "MOVE-2")
def test_an_error_of_the_function_of_a_transaction_is_raised_and_nothing_stays(driver):
    """The number is free for the next attempt."""
    if refuses(driver):
        return
    claim, wrong = driver.held(), ValueError("no")
    before = driver.snapshot(claim.id)

    def fail():
        raise wrong

    bad = work_of(driver, claim, done("before"), before=fail)
    with pytest.raises(ValueError, match="no") as raised:
        send(driver, bad)
    assert raised.value is wrong
    assert driver.snapshot(claim.id) == before
    assert send(driver, Work(bad.item)).answer == "applied"


@pytest.mark.spec("FLOW-16", "START-10")
def test_the_item_of_a_transactions_function_is_checked_like_any_item(driver):
    """Bad texts, values and numbers are refused, and its writes are rolled back."""
    if refuses(driver):
        return
    claim = driver.held()
    before = driver.snapshot(claim.id)
    for wrong in (
        {"events": (NewEvent(topic="t", id="e\0"),)},
        {"events": (NewEvent(topic="t", id="e", payload="{x"),)},
        {"trail": (TrailWrite("log", "NaN"),)},
        {"number": 2**31},
        {"lease_seconds": -1.0},
    ):
        with pytest.raises(UsageError):
            send(driver, work_of(driver, claim, done("before"), **wrong))
    assert driver.snapshot(claim.id) == before


@pytest.mark.spec("FLOW-16")
def test_a_transaction_that_takes_too_long_is_rolled_back(driver):
    """The limit is on the wall clock: no other transaction can write meanwhile."""
    if refuses(driver):
        return
    claim = driver.held()
    before = driver.snapshot(claim.id)
    work = work_of(driver, claim, before=lambda: time.sleep(0.02))
    with pytest.raises(StepTimeout):
        send(driver, work, limit_seconds=0.001)
    assert driver.snapshot(claim.id) == before


@pytest.mark.spec("FLOW-16")
@pytest.mark.parametrize("move", [Move.COMPLETE, Move.PARK, Move.RELEASE])
def test_a_transaction_is_nothing_but_a_checkpoint(driver, move):
    """Every store refuses other moves before anything is called."""
    claim = driver.held()
    work, before = Work(driver.item(claim, move)), driver.snapshot(claim.id)
    with pytest.raises(UsageError):
        send(driver, work)
    assert (work.calls, driver.snapshot(claim.id)) == (0, before)


@pytest.mark.spec("START-7")
def test_a_connection_that_no_store_knows_is_refused_and_nothing_is_written(driver):
    """A store that ignored it would start a run that its caller may still roll back."""
    claim = driver.held()
    driver.park(claim, listen(), known=0)
    run, event, before = (
        NewRun(id=driver.id(), type=TYPE),
        NewEvent(topic="parcel", id="e1"),
        driver.everything(),
    )
    with pytest.raises(UsageError):
        driver.run(driver.store.start([run], object()))
    with pytest.raises(UsageError):
        driver.run(driver.store.emit(event, object()))
    assert driver.get(run.id) is None
    assert driver.everything() == before
    assert driver.status(claim.id) is Status.WAITING


# Checks of `doctor`.


@pytest.mark.spec("MOVE-7")
def test_no_run_that_moves_have_left_behind_is_stuck(driver):
    """In every status a run can go on, or has ended."""
    leased, waiting, paused, ended, deleted = (driver.held() for _ in range(5))
    driver.park(waiting, listen(), known=0)
    driver.park(paused, listen(), known=0)
    driver.pause(paused.id)
    driver.complete(ended)
    driver.delete(deleted.id)
    driver.start()
    assert driver.status(leased.id) is Status.LEASED
    assert list(driver.run(driver.store.stuck())) == []
    assert list(driver.run(driver.store.stuck(limit=0))) == []


def test_a_checkup_finds_something_to_say_and_changes_nothing(driver):
    """Each finding is one line, and a bad one says how to mend it; here nothing is broken."""
    driver.held()
    before = driver.everything()
    found = list(driver.run(driver.store.checkup()))
    assert found
    assert {one.level for one in found} <= {"ok", "warning"}
    assert all(one.what and "\n" not in one.what for one in found)
    assert all(one.mend for one in found if one.level != "ok")
    assert driver.everything() == before
