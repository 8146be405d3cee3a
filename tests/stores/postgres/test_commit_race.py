"""Holders beside sessions that keep something for long: who has nothing to do with it goes on."""

from __future__ import annotations

import pytest

from holdfast.errors import Unavailable
from holdfast.lifecycle import Move
from holdfast.records import Lease, NewEvent, NewRun, Started, moment
from holdfast.testing.contract.hand import TYPE, done, listen, sleep
from tests.stores.postgres.sessions import Session


@pytest.fixture
def other(hand):
    session = Session(hand.clock.now)
    yield session
    session.close()


def answers(verdicts):
    return [verdict.answer for verdict in verdicts]


@pytest.mark.parametrize("how", ["checkpoint", "complete", "park"])
def test_a_row_that_somebody_keeps_is_busy_and_stops_no_other_item(hand, other, how):
    """Also on the plain way, where many go at once."""
    held, free = hand.held(), hand.held()
    other.begin()
    other.run("select 1 from workflow_run where id = %s for update", held.id)
    steps = {"checkpoint": [done("a")], "complete": [], "park": [sleep()]}[how]
    items = [hand.item(claim, Move(how), *steps) for claim in (held, free)]
    assert answers(hand.send(*items)) == ["busy", "applied"]
    other.roll_back()
    assert answers(hand.send(*items)) == ["applied", "applied"]
    assert hand.told(held.id) == hand.told(free.id)


def test_a_plan_does_not_end_before_a_step_that_is_being_added(hand, other):
    """Whoever adds one has the run for itself; then the holder goes on with it."""
    claim, free = hand.begun("A"), hand.begun("A")
    other.begin()
    other.call("append_step", claim.id, "B", None, None)
    items = [hand.item(one, Move.ADVANCE, done("A"), in_place=True) for one in (claim, free)]
    assert answers(hand.send(*items)) == ["busy", "applied"]
    other.commit()
    (verdict,) = hand.send(items[0])
    assert (verdict.status, [step.key for step in verdict.settled]) == ("leased", ["B"])


@pytest.mark.parametrize("what", ["key", "event"])
def test_a_name_in_somebodys_open_transaction_holds_up_its_item_alone(hand, other, what):
    """A key, or the id of an event, that may or may not come to stand: only time tells."""
    asked, free = hand.held(), hand.held()
    other.begin()
    if what == "key":
        other.call("start", [NewRun(id=hand.id(), type=TYPE, key="k")])
        move, fields = Move.COMPLETE, {"starts": (NewRun(id=hand.id(), type=TYPE, key="k"),)}
    else:
        other.call("emit", NewEvent(topic="t", id="e"))
        move, fields = Move.CHECKPOINT, {"events": (NewEvent(topic="t", id="e"),)}
    items = [
        hand.item(asked, move, done("a"), **fields),
        hand.item(free, Move.CHECKPOINT, done("a")),
    ]
    assert answers(hand.send(*items)) == ["busy", "applied"]
    assert hand.steps(asked.id) == []
    other.roll_back()
    assert answers(hand.send(*items)) == ["applied", "applied"]


def test_a_topic_that_somebody_keeps_holds_up_only_those_who_look_at_it(hand, other):
    """The plain way needs no topic."""
    waiting, free = hand.held(), hand.held()
    other.begin()
    other.run("select lock_topics(array['default' || U&'\\001F' || 'parcel'])")
    items = [hand.item(waiting, Move.PARK, listen()), hand.item(free, Move.CHECKPOINT, done("a"))]
    assert answers(hand.send(*items)) == ["busy", "applied"]
    other.roll_back()
    assert answers(hand.send(*items)) == ["applied", "applied"]


def test_rows_that_somebody_keeps_do_not_end_the_leases_of_others(hand, other):
    """However many they are: a renewal waits for all of them together, and not long."""
    claims = [hand.held() for _ in range(30)]
    other.begin()
    other.run("select 1 from workflow_run where id = any(%s) for update", [claim.id for claim in claims[:20]])
    hand.clock.turn(20.0)
    renewal = hand.renew(*(Lease(run=claim.id, fence=claim.fence) for claim in claims))
    assert {one.answer for one in renewal.held} == {"applied"}
    assert [one.renewed for one in renewal.held] == [False] * 20 + [True] * 10
    other.roll_back()
    hand.clock.turn(20.0)
    assert hand.tick().expired == 20


@pytest.mark.spec("LEASE-8", "LEASE-9")
def test_a_renewal_that_could_not_be_written_is_not_called_one(hand, other):
    """Nothing of it is there: not the lease, not the forgiveness, not the progress."""
    run = hand.start()
    hand.take(run)
    hand.clock.turn(30.000001)
    hand.tick()
    claim = hand.take(run)
    lease = Lease(run=run, fence=claim.fence, survived=True, progress='{"done":3}')
    other.begin()
    other.run("select 1 from workflow_run where id = %s for update", run)
    hand.clock.turn(20.0)
    (held,) = hand.renew(lease).held
    assert (held.answer, held.renewed) == ("applied", False)
    other.roll_back()
    seen = hand.get(run)
    assert (seen.lease_until, seen.crashes, seen.progress) == (moment(claim.lease_until), 1, None)
    assert hand.renew(lease).held[0].renewed
    seen = hand.get(run)
    assert (seen.crashes, seen.progress) == (0, {"done": 3})
    assert seen.lease_until == moment(hand.clock.now + 30_000_000)


@pytest.mark.spec("START-12")
@pytest.mark.parametrize("what", ["key", "id"])
def test_a_start_that_meets_an_open_transaction_holds_up_no_other(hand, other, what):
    """Of several it is busy, and nothing of it is written; alone it waits, and is what came to stand."""
    same = {"key": "k"} if what == "key" else {}
    other.begin()
    held = NewRun(id=hand.id(), type=TYPE, **same)
    other.call("start", [held])
    asked = NewRun(id=held.id if what == "id" else hand.id(), type=TYPE, **same)
    free = [NewRun(id=hand.id(), type=TYPE, key=f"free {n}") for n in range(3)]
    before, busy, *after = hand.start_many([free[0], asked, *free[1:]])
    assert [one.created for one in (before, *after)] == [True] * 3
    assert isinstance(busy, Unavailable)
    other.roll_back()
    assert hand.start_many([asked, free[0]]) == [
        Started(asked.id, created=True),
        Started(free[0].id, created=False),
    ]
