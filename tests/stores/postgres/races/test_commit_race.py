"""Races of commits: a session that keeps a lock stops only the items that need it."""

from __future__ import annotations

import pytest

from holdfast.errors import Unavailable
from holdfast.lifecycle import Move
from holdfast.records import Lease, NewEvent, NewRun, Started, moment
from holdfast.testing.contract.driver import TYPE, done, listen, sleep
from tests.stores.postgres.session import Session


@pytest.fixture
def other(driver):
    session = Session(driver.clock.now)
    yield session
    session.close()


def answers(verdicts):
    return [verdict.answer for verdict in verdicts]


@pytest.mark.parametrize("how", ["checkpoint", "complete", "park"])
def test_a_locked_row_is_busy_and_stops_no_other_item(driver, other, how):
    """Also on the fast path, where many items are written at once."""
    held, free = driver.held(), driver.held()
    other.begin()
    other.run("select 1 from workflow_run where id = %s for update", held.id)
    steps = {"checkpoint": [done("a")], "complete": [], "park": [sleep()]}[how]
    items = [driver.item(claim, Move(how), *steps) for claim in (held, free)]
    assert answers(driver.send(*items)) == ["busy", "applied"]
    other.roll_back()
    assert answers(driver.send(*items)) == ["applied", "applied"]
    assert driver.told(held.id) == driver.told(free.id)


def test_a_plan_does_not_end_before_a_step_that_is_being_added(driver, other):
    """A session that adds a step locks the run; then the holder goes on with the step."""
    claim, free = driver.begun("A"), driver.begun("A")
    other.begin()
    other.call("append_step", claim.id, "B", None, None)
    items = [driver.item(one, Move.ADVANCE, done("A"), in_place=True) for one in (claim, free)]
    assert answers(driver.send(*items)) == ["busy", "applied"]
    other.commit()
    (verdict,) = driver.send(items[0])
    assert (verdict.status, [step.key for step in verdict.settled]) == ("leased", ["B"])


@pytest.mark.parametrize("what", ["key", "event"])
def test_a_name_in_another_open_transaction_delays_only_its_item(driver, other, what):
    """A key, or the id of an event, in another open transaction, which may still be rolled back."""
    asked, free = driver.held(), driver.held()
    other.begin()
    if what == "key":
        other.call("start", [NewRun(id=driver.id(), type=TYPE, key="k")])
        move, fields = Move.COMPLETE, {"starts": (NewRun(id=driver.id(), type=TYPE, key="k"),)}
    else:
        other.call("emit", NewEvent(topic="t", id="e"))
        move, fields = Move.CHECKPOINT, {"events": (NewEvent(topic="t", id="e"),)}
    items = [
        driver.item(asked, move, done("a"), **fields),
        driver.item(free, Move.CHECKPOINT, done("a")),
    ]
    assert answers(driver.send(*items)) == ["busy", "applied"]
    assert driver.steps(asked.id) == []
    other.roll_back()
    assert answers(driver.send(*items)) == ["applied", "applied"]


def test_a_locked_topic_delays_only_items_that_need_it(driver, other):
    """The fast path needs no topic."""
    waiting, free = driver.held(), driver.held()
    other.begin()
    other.run("select lock_topics(array['default' || U&'\\001F' || 'parcel'])")
    items = [driver.item(waiting, Move.PARK, listen()), driver.item(free, Move.CHECKPOINT, done("a"))]
    assert answers(driver.send(*items)) == ["busy", "applied"]
    other.roll_back()
    assert answers(driver.send(*items)) == ["applied", "applied"]


def test_locked_rows_do_not_end_the_leases_of_others(driver, other):
    """However many rows there are, a renewal waits for all of them together for a short time."""
    claims = [driver.held() for _ in range(30)]
    other.begin()
    other.run("select 1 from workflow_run where id = any(%s) for update", [claim.id for claim in claims[:20]])
    driver.clock.turn(20.0)
    renewal = driver.renew(*(Lease(run=claim.id, fence=claim.fence) for claim in claims))
    assert {one.answer for one in renewal.held} == {"applied"}
    assert [one.renewed for one in renewal.held] == [False] * 20 + [True] * 10
    other.roll_back()
    driver.clock.turn(20.0)
    assert driver.tick().expired == 20


@pytest.mark.spec("LEASE-8", "LEASE-9")
def test_a_renewal_that_could_not_be_written_is_not_called_one(driver, other):
    """Nothing of the renewal is written: not the lease, not the forgiveness, not the progress."""
    run = driver.start()
    driver.take(run)
    driver.clock.turn(30.000001)
    driver.tick()
    claim = driver.take(run)
    lease = Lease(run=run, fence=claim.fence, survived=True, progress='{"done":3}')
    other.begin()
    other.run("select 1 from workflow_run where id = %s for update", run)
    driver.clock.turn(20.0)
    (held,) = driver.renew(lease).held
    assert (held.answer, held.renewed) == ("applied", False)
    other.roll_back()
    seen = driver.get(run)
    assert (seen.lease_until, seen.crashes, seen.progress) == (moment(claim.lease_until), 1, None)
    assert driver.renew(lease).held[0].renewed
    seen = driver.get(run)
    assert (seen.crashes, seen.progress) == (0, {"done": 3})
    assert seen.lease_until == moment(driver.clock.now + 30_000_000)


@pytest.mark.spec("START-12")
@pytest.mark.parametrize("what", ["key", "id"])
def test_a_start_that_meets_an_open_transaction_holds_up_no_other(driver, other, what):
    """Among several it is busy, and nothing of it is written; alone it waits, and finds the committed run."""
    same = {"key": "k"} if what == "key" else {}
    other.begin()
    held = NewRun(id=driver.id(), type=TYPE, **same)
    other.call("start", [held])
    asked = NewRun(id=held.id if what == "id" else driver.id(), type=TYPE, **same)
    free = [NewRun(id=driver.id(), type=TYPE, key=f"free {n}") for n in range(3)]
    before, busy, *after = driver.start_many([free[0], asked, *free[1:]])
    assert [one.created for one in (before, *after)] == [True] * 3
    assert isinstance(busy, Unavailable)
    other.roll_back()
    assert driver.start_many([asked, free[0]]) == [
        Started(asked.id, created=True),
        Started(free[0].id, created=False),
    ]
