"""Waits under many hands at once: nothing falls between asking and coming, and each wait is settled once."""

from __future__ import annotations

from unittest.mock import patch

import msgspec
import pytest

from holdfast.lifecycle import Move, Status
from holdfast.records import Chore, NewEvent
from holdfast.testing.contract.hand import ask, done, gate, hear, listen, sleep
from tests.stores.postgres.kit import database

decode = msgspec.json.decode


@pytest.fixture(autouse=True)
def lawful(hand):
    """Whatever happened: an event that is delivered has left nobody behind who may take it."""
    yield
    left = (
        database()[1]
        .execute("""
        select s.run_id from workflow.workflow_inbox as i
        join workflow.workflow_step as s on s.tenant = i.tenant and s.topic = i.topic and s.status = 'waiting'
        join workflow.workflow_run as r on r.id = s.run_id
        where i.delivered and i.seq > s.since_mark and coalesce(i.run_id, r.id) = r.id
            and (i.run_id is not null or i.seq > r.inbox_mark) and (s.due_at is null or i.at <= s.due_at)
            and not exists (
                select 1 from workflow.workflow_receipt as t where t.run_id = r.id and t.event_seq = i.seq
            )
    """)
        .fetchall()
    )
    assert left == []


def item(hand, claim, move, *steps, **fields):
    """The arguments of a commit that any session may send."""
    return [hand.item(claim, move, *steps, **fields)], None, None, None, True


def waiters(hand, count, *steps):
    claims = [hand.held() for _ in range(count)]
    for claim in claims:
        hand.park(claim, *steps)
    return [claim.id for claim in claims]


def event(name="e", topic="parcel", **fields):
    return NewEvent(topic=topic, id=name, **fields)


def statuses(hand, runs):
    return [hand.status(run).value for run in runs]


def later(hand, sessions, seconds):
    """The clock, turned for everybody."""
    hand.clock.turn(seconds)
    for one in sessions:
        one.run("select set_config('holdfast.now', %s, false)", str(hand.clock.now))


def delivers(session, name="e", slice_=None):
    """To the end, or from a slice on: how many runs the event has reached."""
    while slice_ is None or slice_["left"] is not None:
        left = None if slice_ is None else slice_["left"]
        slice_ = session.call("deliver_event", "default", name, left, 500)
    return slice_["woken"]


def undelivered(hand):
    return hand.stats().undelivered


# An event beside a park.


@pytest.mark.spec("EVENT-4")
def test_an_event_that_comes_while_a_run_parks_reaches_it(hand, sessions):
    """The park has looked and found nothing: whoever delivers waits for it, and then meets it."""
    one, two = sessions
    claim = hand.held()
    one.begin()
    one.call("commit", *item(hand, claim, Move.PARK, listen()))
    two.call("emit_at_once", event())
    delivery = two.waits("deliver_event", "default", "e", None, 500)
    one.commit()
    assert delivers(two, slice_=delivery.result()) == 1
    assert (hand.status(claim.id), undelivered(hand)) == (Status.PENDING, 0)


@pytest.mark.spec("EVENT-4")
def test_an_event_that_is_not_committed_when_a_run_looks_reaches_it_later(hand, sessions):
    one, _ = sessions
    claim = hand.held()
    one.begin()
    one.call("emit", event())
    assert hand.park(claim).status is Status.WAITING
    one.commit()
    assert (hand.deliver(), hand.status(claim.id)) == (1, Status.PENDING)


@pytest.mark.spec("EVENT-4")
def test_a_run_that_parks_while_an_event_is_delivered_sees_it(hand, sessions):
    """It comes too late to be met, and finds the event itself."""
    one, two = sessions
    claim = hand.held()
    one.call("emit_at_once", event())
    one.begin()
    assert one.call("deliver", None, 500)["woken"] == 0
    parks = two.waits("commit", *item(hand, claim, Move.PARK, listen(), known=0))
    one.commit()
    (verdict,) = parks.result()["verdicts"]
    assert [step["key"] for step in verdict["settled"]] == ["wait"]
    assert hand.status(claim.id) is Status.LEASED


@pytest.mark.spec("EVENT-4")
def test_a_plan_that_opens_its_next_wait_while_that_is_emitted_hears_it(hand, sessions):
    """The topics of rows to come are locked with the present one."""
    one, two = sessions
    run = hand.plan(hear("A", "first"), hear("B", "second"), "C")
    one.call("emit", event("e1", "first"))
    one.begin()
    assert one.call("deliver_event", "default", "e1", None, 500)["woken"] == 1
    two.call("emit", event("e2", "second"))
    delivery = two.waits("deliver_event", "default", "e2", None, 500)
    one.commit()
    assert delivers(two, "e2", delivery.result()) == 1
    assert (hand.status(run), hand.shape(run)[1]) == (Status.PENDING, ("B", "succeeded"))


@pytest.mark.spec("EVENT-4")
def test_one_that_began_to_wait_a_moment_ago_is_met_by_the_next_slice(hand, sessions):
    """Its further topics were not known when the buckets were taken."""
    one, two = sessions
    claim = hand.begun("A", hear("B"), hear("C", "other"))
    one.begin()
    one.call("commit", *item(hand, claim, Move.ADVANCE, done("A")))
    two.call("emit_at_once", event())
    delivery = two.waits("deliver_event", "default", "e", None, 500)
    one.commit()
    first = delivery.result()
    assert (first["woken"], undelivered(hand)) == (0, 1)
    assert delivers(two, slice_=first) == 1
    assert (hand.shape(claim.id)[1:], undelivered(hand)) == ([("B", "succeeded"), ("C", "waiting")], 0)


# Who delivers.


@pytest.mark.spec("EVENT-3")
def test_two_that_deliver_one_event_skip_nobody_and_count_nobody_twice(hand, sessions):
    one, two = sessions
    runs = waiters(hand, 5)
    one.call("emit", event())
    one.begin()
    first = one.call("deliver", None, 2)
    other = two.waits("deliver", None, 2)
    one.commit()
    slices = [first, other.result(), one.call("deliver", first["left"], 2)]
    while slices[-1]["left"] is not None:
        slices.append(two.call("deliver", slices[-1]["left"], 2))
    assert sum(slice_["woken"] for slice_ in slices) == 5
    assert undelivered(hand) == 0
    assert statuses(hand, runs) == ["pending"] * 5
    assert hand.emit(id="e").woken == 5


@pytest.mark.spec("EVENT-3")
def test_who_comes_too_late_to_deliver_an_event_touches_nobody_who_waited_for_it(hand, sessions):
    """He waits for the topic, sees that all is done, and keeps no run from those who go on with it."""
    one, two = sessions
    runs = waiters(hand, 2)
    one.call("emit_at_once", event())
    one.begin()
    assert one.call("deliver_event", "default", "e", None, 500)["woken"] == 2
    two.begin()
    other = two.waits("deliver_event", "default", "e", None, 500)
    one.commit()
    late = other.result()
    assert (late["woken"], late["runs"], late["left"]) == (2, [], None)
    one.run("select 1 from workflow_run where id = any(%s) for update nowait", runs)
    two.commit()
    assert [hand.told(run).count("woken") for run in runs] == [1, 1]


@pytest.mark.spec("EVENT-3")
def test_who_dies_between_slices_leaves_the_rest_to_a_keeper(hand, sessions):
    one, _ = sessions
    runs = waiters(hand, 5)
    one.call("emit", event())
    one.call("deliver_event", "default", "e", None, 2)
    assert statuses(hand, runs).count("pending") == 2
    assert hand.tick(limit=2).delivered == 3
    assert (statuses(hand, runs), undelivered(hand)) == (["pending"] * 5, 0)


@pytest.mark.spec("EVENT-3")
def test_a_run_that_somebody_keeps_locked_stops_no_other(hand, sessions):
    """It is passed over, and the event is not through before it was met."""
    one, _ = sessions
    runs = waiters(hand, 5)
    one.begin()
    one.run("select 1 from workflow_run where id = %s for update", runs[2])
    assert hand.emit(id="e").woken == 4
    assert hand.emit(topic="other").woken == 0
    assert (hand.tick().delivered, undelivered(hand)) == (0, 1)
    one.roll_back()
    assert (hand.tick().delivered, undelivered(hand)) == (1, 0)
    assert statuses(hand, runs) == ["pending"] * 5


@pytest.mark.spec("EVENT-3")
def test_events_that_are_held_up_keep_later_ones_from_nothing(hand, sessions):
    """A call that ends before all had their turn is followed by one that goes on behind them."""
    one, _ = sessions
    (locked,), (free,) = waiters(hand, 1), waiters(hand, 1, listen(topic="other"))
    sent = [event(f"e{n}", run=locked) for n in range(4)] + [event("late", "other")]
    hand.complete(hand.held(), events=tuple(sent))
    one.begin()
    one.run("select 1 from workflow_run where id = %s for update", locked)
    with patch("holdfast.stores.postgres.waits.SLICES", 2):
        assert [hand.tick(only=Chore.DELIVER).delivered for _ in range(3)] == [0, 0, 1]
    assert statuses(hand, [free]) == ["pending"]
    one.roll_back()
    with patch("holdfast.stores.postgres.waits.SLICES", 2):
        assert sum(hand.tick(only=Chore.DELIVER).delivered for _ in range(3)) == 1
    assert undelivered(hand) == 0


@pytest.mark.spec("EVENT-3")
def test_an_event_that_passed_somebody_over_begins_anew_when_it_has_met_the_others(hand, sessions):
    """Its place is kept until then, from call to call, and so is that it passed somebody over."""
    one, _ = sessions
    runs = waiters(hand, 5)
    hand.complete(hand.held(), events=(event(),))
    one.begin()
    one.run("select 1 from workflow_run where id = %s for update", runs[0])
    with patch("holdfast.stores.pacing.PACED_SECONDS", 0.0):
        assert [hand.deliver(limit=2) for _ in range(3)] == [1, 2, 1]
    assert undelivered(hand) == 1
    one.roll_back()
    assert (hand.deliver(limit=2), undelivered(hand)) == (1, 0)


def test_who_waits_for_a_locked_run_keeps_nobody_from_its_topics(hand, sessions):
    """The row first, then the topics, then the row again: nobody waits for a row with topics in his hands."""
    one, two = sessions
    locked, free = waiters(hand, 1, listen(), ask()), waiters(hand, 1)
    one.begin()
    one.run("select 1 from workflow_run where id = %s for update", *locked)
    decision = two.waits("decide", *locked, None, True, "Ann", "", None, None)
    assert (hand.emit(id="e").woken, statuses(hand, free)) == (1, ["pending"])
    one.roll_back()
    assert decision.result()["decided"]["decision"]["by"] == "Ann"
    assert hand.deliver() == 1


@pytest.mark.spec("EVENT-2")
@pytest.mark.parametrize("lost", [False, True], ids=["committed", "rolled back"])
def test_of_two_emits_of_one_id_at_once_one_is_recorded(hand, sessions, lost):
    one, two = sessions
    one.begin()
    first = one.call("emit", event())
    other = two.waits("emit", event())
    one.run("rollback" if lost else "commit")
    second = other.result()
    assert second["duplicate"] is not lost
    assert (second["seq"] == first["seq"]) is not lost


# In a transaction of somebody else's.


@pytest.mark.spec("EVENT-1", "EVENT-4")
@pytest.mark.parametrize("since_now", [False, True])
def test_an_event_of_a_long_transaction_counts_from_its_delivery(hand, sessions, since_now):
    """However early its number was given: who began to wait before it was there to be seen takes it."""
    one, _ = sessions
    one.begin()
    one.run("select take_in(%s, clock(), true)", '{"topic":"parcel","id":"e","payload":"7"}')
    claim = hand.held()
    hand.emit(topic="other")
    hand.park(claim, listen(since_now=since_now))
    one.commit()
    assert (hand.deliver(), hand.status(claim.id)) == (1, Status.PENDING)
    assert decode(hand.step(claim.id, "wait").output)["payload"] == 7


@pytest.mark.spec("EVENT-1")
def test_an_event_of_a_long_transaction_is_taken_by_nobody_before_its_delivery(hand, sessions):
    one, _ = sessions
    claim = hand.held()
    one.run("select take_in(%s, clock(), true)", '{"topic":"parcel","id":"e"}')
    assert hand.park(claim).status is Status.WAITING
    answer = hand.emit(id="e")
    assert (answer.woken, answer.duplicate, undelivered(hand)) == (1, True, 0)


# A deadline beside a decision.


@pytest.mark.spec("FLOW-6")
def test_a_gate_that_is_decided_while_its_time_runs_out_is_decided(hand, sessions):
    one, two = sessions
    claim = hand.held()
    hand.park(claim, ask(delay_seconds=60.0))
    later(hand, sessions, 60)
    one.begin()
    one.call("decide", claim.id, None, True, "Ann", "", None, None)
    late = two.waits("lapse", None, True, 500)
    one.commit()
    assert late.result()["done"] == 0
    assert decode(hand.step(claim.id, "gate").output)["by"] == "Ann"
    assert hand.told(claim.id).count("timed_out") == 0


@pytest.mark.spec("FLOW-6")
def test_a_decision_that_comes_while_the_deadline_is_noticed_is_refused(hand, sessions):
    one, two = sessions
    claim = hand.held()
    hand.park(claim, ask(delay_seconds=60.0, on_timeout="reject"))
    later(hand, sessions, 60)
    one.begin()
    assert one.call("lapse", None, True, 500)["done"] == 1
    late = two.waits("decide", claim.id, None, True, "Ann", "", None, None)
    one.commit()
    assert "for nobody decided in time" in late.result()["conflict"]
    assert hand.told(claim.id).count("approved") == 0


@pytest.mark.spec("PLAN-3")
def test_a_gate_of_a_plan_is_decided_once_by_two_people_at_once(hand, sessions):
    one, two = sessions
    run = hand.plan(gate("A"), "B")
    one.begin()
    one.call("decide", run, None, True, "Ann", "", None, None)
    other = two.waits("decide", run, None, False, "Bob", "", None, None)
    one.commit()
    assert other.result()["conflict"].endswith("it has been approved by Ann")
    assert (hand.step(run, "A").status, hand.status(run)) == ("succeeded", Status.PENDING)


@pytest.mark.spec("EVENT-5")
def test_of_an_event_and_a_deadline_at_once_one_wins(hand, sessions):
    one, two = sessions
    (run,) = waiters(hand, 1, listen(delay_seconds=60.0))
    later(hand, sessions, 60)
    one.begin()
    assert one.call("lapse", None, True, 500)["done"] == 1
    two.call("emit_at_once", event())
    delivery = two.waits("deliver_event", "default", "e", None, 500)
    one.commit()
    assert delivers(two, slice_=delivery.result()) == 0
    assert (hand.step(run, "wait").status, hand.told(run).count("woken")) == ("failed", 0)


def test_two_keepers_settle_a_wait_that_is_due_once(hand, sessions):
    one, two = sessions
    (run,) = waiters(hand, 1, sleep())
    later(hand, sessions, 60)
    one.begin()
    one.call("lapse", None, True, 500)
    other = two.waits("lapse", None, True, 500)
    one.commit()
    assert other.result()["done"] == 0
    assert hand.told(run).count("woken") == 1


def test_a_locked_run_does_not_keep_other_waits_from_lapsing(hand, sessions):
    one, _ = sessions
    runs = waiters(hand, 3, sleep())
    later(hand, sessions, 60)
    one.begin()
    one.run("select 1 from workflow_run where id = %s for update", runs[0])
    assert hand.tick(limit=1).lapsed == 2
    one.roll_back()
    assert hand.tick(limit=1).lapsed == 1
