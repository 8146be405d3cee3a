"""Races of waits: nothing is missed between the check and the wait, and each wait is settled once."""

from __future__ import annotations

from unittest.mock import patch

import msgspec
import pytest

from holdfast.lifecycle import Move, Status
from holdfast.records import Chore, NewEvent
from holdfast.testing.contract.driver import ask, done, gate, hear, listen, sleep
from tests.stores.postgres.kit import database

decode = msgspec.json.decode


@pytest.fixture(autouse=True)
def lawful(driver):
    """Assert that a delivered event has left no wait behind that may take it."""
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


def item(driver, claim, move, *steps, **fields):
    """The arguments of a commit that any session may send."""
    return [driver.item(claim, move, *steps, **fields)], None, None, None, True


def waiters(driver, count, *steps):
    claims = [driver.held() for _ in range(count)]
    for claim in claims:
        driver.park(claim, *steps)
    return [claim.id for claim in claims]


def event(name="e", topic="parcel", **fields):
    return NewEvent(topic=topic, id=name, **fields)


def statuses(driver, runs):
    return [driver.status(run).value for run in runs]


def later(driver, sessions, seconds):
    """Move the clock of the driver and of the sessions."""
    driver.clock.turn(seconds)
    for one in sessions:
        one.run("select set_config('holdfast.now', %s, false)", str(driver.clock.now))


def delivers(session, name="e", slice_=None):
    """Deliver an event completely, or from a slice on; return how many runs it has reached."""
    while slice_ is None or slice_["left"] is not None:
        left = None if slice_ is None else slice_["left"]
        slice_ = session.call("deliver_event", "default", name, left, 500)
    return slice_["woken"]


def undelivered(driver):
    return driver.stats().undelivered


# Events beside a park.


@pytest.mark.spec("EVENT-4")
def test_an_event_that_comes_while_a_run_parks_reaches_it(driver, sessions):
    """The park has found nothing: the delivering session waits for the park, and then finds the wait."""
    one, two = sessions
    claim = driver.held()
    one.begin()
    one.call("commit", *item(driver, claim, Move.PARK, listen()))
    two.call("emit_at_once", event())
    delivery = two.waits("deliver_event", "default", "e", None, 500)
    one.commit()
    assert delivers(two, slice_=delivery.result()) == 1
    assert (driver.status(claim.id), undelivered(driver)) == (Status.PENDING, 0)


@pytest.mark.spec("EVENT-4")
def test_an_event_that_is_not_committed_when_a_run_looks_reaches_it_later(driver, sessions):
    one, _ = sessions
    claim = driver.held()
    one.begin()
    one.call("emit", event())
    assert driver.park(claim).status is Status.WAITING
    one.commit()
    assert (driver.deliver(), driver.status(claim.id)) == (1, Status.PENDING)


@pytest.mark.spec("EVENT-4")
def test_a_run_that_parks_while_an_event_is_delivered_sees_it(driver, sessions):
    """The park comes too late for the delivery, and finds the event itself."""
    one, two = sessions
    claim = driver.held()
    one.call("emit_at_once", event())
    one.begin()
    assert one.call("deliver", None, 500)["woken"] == 0
    parks = two.waits("commit", *item(driver, claim, Move.PARK, listen(), known=0))
    one.commit()
    (verdict,) = parks.result()["verdicts"]
    assert [step["key"] for step in verdict["settled"]] == ["wait"]
    assert driver.status(claim.id) is Status.LEASED


@pytest.mark.spec("EVENT-4")
def test_a_plan_that_opens_its_next_wait_while_that_is_emitted_hears_it(driver, sessions):
    """The topics of later rows are locked with the present one."""
    one, two = sessions
    run = driver.plan(hear("A", "first"), hear("B", "second"), "C")
    one.call("emit", event("e1", "first"))
    one.begin()
    assert one.call("deliver_event", "default", "e1", None, 500)["woken"] == 1
    two.call("emit", event("e2", "second"))
    delivery = two.waits("deliver_event", "default", "e2", None, 500)
    one.commit()
    assert delivers(two, "e2", delivery.result()) == 1
    assert (driver.status(run), driver.shape(run)[1]) == (Status.PENDING, ("B", "succeeded"))


@pytest.mark.spec("EVENT-4")
def test_one_that_began_to_wait_a_moment_ago_is_met_by_the_next_slice(driver, sessions):
    """Its other topics were not known when the buckets were locked."""
    one, two = sessions
    claim = driver.begun("A", hear("B"), hear("C", "other"))
    one.begin()
    one.call("commit", *item(driver, claim, Move.ADVANCE, done("A")))
    two.call("emit_at_once", event())
    delivery = two.waits("deliver_event", "default", "e", None, 500)
    one.commit()
    first = delivery.result()
    assert (first["woken"], undelivered(driver)) == (0, 1)
    assert delivers(two, slice_=first) == 1
    assert (driver.shape(claim.id)[1:], undelivered(driver)) == ([("B", "succeeded"), ("C", "waiting")], 0)


# Deliveries beside each other.


@pytest.mark.spec("EVENT-3")
def test_two_that_deliver_one_event_skip_nobody_and_count_nobody_twice(driver, sessions):
    one, two = sessions
    runs = waiters(driver, 5)
    one.call("emit", event())
    one.begin()
    first = one.call("deliver", None, 2)
    other = two.waits("deliver", None, 2)
    one.commit()
    slices = [first, other.result(), one.call("deliver", first["left"], 2)]
    while slices[-1]["left"] is not None:
        slices.append(two.call("deliver", slices[-1]["left"], 2))
    assert sum(slice_["woken"] for slice_ in slices) == 5
    assert undelivered(driver) == 0
    assert statuses(driver, runs) == ["pending"] * 5
    assert driver.emit(id="e").woken == 5


@pytest.mark.spec("EVENT-3")
def test_who_comes_too_late_to_deliver_an_event_touches_nobody_who_waited_for_it(driver, sessions):
    """The late session waits for the topic, sees that the event is delivered, and locks no run."""
    one, two = sessions
    runs = waiters(driver, 2)
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
    assert [driver.told(run).count("woken") for run in runs] == [1, 1]


@pytest.mark.spec("EVENT-3")
def test_who_dies_between_slices_leaves_the_rest_to_a_keeper(driver, sessions):
    one, _ = sessions
    runs = waiters(driver, 5)
    one.call("emit", event())
    one.call("deliver_event", "default", "e", None, 2)
    assert statuses(driver, runs).count("pending") == 2
    assert driver.tick(limit=2).delivered == 3
    assert (statuses(driver, runs), undelivered(driver)) == (["pending"] * 5, 0)


@pytest.mark.spec("EVENT-3")
def test_a_locked_run_stops_no_other(driver, sessions):
    """The run is skipped, and the event is not marked as delivered before the run was met."""
    one, _ = sessions
    runs = waiters(driver, 5)
    one.begin()
    one.run("select 1 from workflow_run where id = %s for update", runs[2])
    assert driver.emit(id="e").woken == 4
    assert driver.emit(topic="other").woken == 0
    assert (driver.tick().delivered, undelivered(driver)) == (0, 1)
    one.roll_back()
    assert (driver.tick().delivered, undelivered(driver)) == (1, 0)
    assert statuses(driver, runs) == ["pending"] * 5


@pytest.mark.spec("EVENT-3")
def test_events_that_are_held_up_keep_later_ones_from_nothing(driver, sessions):
    """A call that ends before all events had their turn is followed by one that continues behind them."""
    one, _ = sessions
    (locked,), (free,) = waiters(driver, 1), waiters(driver, 1, listen(topic="other"))
    sent = [event(f"e{n}", run=locked) for n in range(4)] + [event("late", "other")]
    driver.complete(driver.held(), events=tuple(sent))
    one.begin()
    one.run("select 1 from workflow_run where id = %s for update", locked)
    with patch("holdfast.stores.postgres.verbs.waits.SLICES", 2):
        assert [driver.tick(only=Chore.DELIVER).delivered for _ in range(3)] == [0, 0, 1]
    assert statuses(driver, [free]) == ["pending"]
    one.roll_back()
    with patch("holdfast.stores.postgres.verbs.waits.SLICES", 2):
        assert sum(driver.tick(only=Chore.DELIVER).delivered for _ in range(3)) == 1
    assert undelivered(driver) == 0


@pytest.mark.spec("EVENT-3")
def test_an_event_that_skipped_a_run_starts_again_after_the_others(driver, sessions):
    """Its place is kept from call to call, and so is the fact that a run was skipped."""
    one, _ = sessions
    runs = waiters(driver, 5)
    driver.complete(driver.held(), events=(event(),))
    one.begin()
    one.run("select 1 from workflow_run where id = %s for update", runs[0])
    with patch("holdfast.stores.pacing.PACED_SECONDS", 0.0):
        assert [driver.deliver(limit=2) for _ in range(3)] == [1, 2, 1]
    assert undelivered(driver) == 1
    one.roll_back()
    assert (driver.deliver(limit=2), undelivered(driver)) == (1, 0)


def test_who_waits_for_a_locked_run_keeps_nobody_from_its_topics(driver, sessions):
    """The row first, then the topics, then the row again: nobody waits for a row while holding topics."""
    one, two = sessions
    locked, free = waiters(driver, 1, listen(), ask()), waiters(driver, 1)
    one.begin()
    one.run("select 1 from workflow_run where id = %s for update", *locked)
    decision = two.waits("decide", *locked, None, True, "Ann", "", None, None)
    assert (driver.emit(id="e").woken, statuses(driver, free)) == (1, ["pending"])
    one.roll_back()
    assert decision.result()["decided"]["decision"]["by"] == "Ann"
    assert driver.deliver() == 1


@pytest.mark.spec("EVENT-2")
@pytest.mark.parametrize("lost", [False, True], ids=["committed", "rolled back"])
def test_of_two_emits_of_one_id_at_once_one_is_recorded(driver, sessions, lost):
    one, two = sessions
    one.begin()
    first = one.call("emit", event())
    other = two.waits("emit", event())
    one.run("rollback" if lost else "commit")
    second = other.result()
    assert second["duplicate"] is not lost
    assert (second["seq"] == first["seq"]) is not lost


# Events of a caller's transaction.


@pytest.mark.spec("EVENT-1", "EVENT-4")
@pytest.mark.parametrize("since_now", [False, True])
def test_an_event_of_a_long_transaction_counts_from_its_delivery(driver, sessions, since_now):
    """However early its number was given, a wait that was opened before the event was visible takes it."""
    one, _ = sessions
    one.begin()
    one.run("select take_in(%s, clock(), true)", '{"topic":"parcel","id":"e","payload":"7"}')
    claim = driver.held()
    driver.emit(topic="other")
    driver.park(claim, listen(since_now=since_now))
    one.commit()
    assert (driver.deliver(), driver.status(claim.id)) == (1, Status.PENDING)
    assert decode(driver.step(claim.id, "wait").output)["payload"] == 7


@pytest.mark.spec("EVENT-1")
def test_an_event_of_a_long_transaction_is_taken_by_nobody_before_its_delivery(driver, sessions):
    one, _ = sessions
    claim = driver.held()
    one.run("select take_in(%s, clock(), true)", '{"topic":"parcel","id":"e"}')
    assert driver.park(claim).status is Status.WAITING
    answer = driver.emit(id="e")
    assert (answer.woken, answer.duplicate, undelivered(driver)) == (1, True, 0)


# Deadlines beside decisions.


@pytest.mark.spec("FLOW-6")
def test_a_gate_that_is_decided_while_its_time_runs_out_is_decided(driver, sessions):
    one, two = sessions
    claim = driver.held()
    driver.park(claim, ask(delay_seconds=60.0))
    later(driver, sessions, 60)
    one.begin()
    one.call("decide", claim.id, None, True, "Ann", "", None, None)
    late = two.waits("lapse", None, True, 500)
    one.commit()
    assert late.result()["done"] == 0
    assert decode(driver.step(claim.id, "gate").output)["by"] == "Ann"
    assert driver.told(claim.id).count("timed_out") == 0


@pytest.mark.spec("FLOW-6")
def test_a_decision_that_comes_while_the_deadline_is_noticed_is_refused(driver, sessions):
    one, two = sessions
    claim = driver.held()
    driver.park(claim, ask(delay_seconds=60.0, on_timeout="reject"))
    later(driver, sessions, 60)
    one.begin()
    assert one.call("lapse", None, True, 500)["done"] == 1
    late = two.waits("decide", claim.id, None, True, "Ann", "", None, None)
    one.commit()
    assert "for nobody decided in time" in late.result()["conflict"]
    assert driver.told(claim.id).count("approved") == 0


@pytest.mark.spec("PLAN-3")
def test_a_gate_of_a_plan_is_decided_once_by_two_people_at_once(driver, sessions):
    one, two = sessions
    run = driver.plan(gate("A"), "B")
    one.begin()
    one.call("decide", run, None, True, "Ann", "", None, None)
    other = two.waits("decide", run, None, False, "Bob", "", None, None)
    one.commit()
    assert other.result()["conflict"].endswith("it has been approved by Ann")
    assert (driver.step(run, "A").status, driver.status(run)) == ("succeeded", Status.PENDING)


@pytest.mark.spec("EVENT-5")
def test_of_an_event_and_a_deadline_at_once_one_wins(driver, sessions):
    one, two = sessions
    (run,) = waiters(driver, 1, listen(delay_seconds=60.0))
    later(driver, sessions, 60)
    one.begin()
    assert one.call("lapse", None, True, 500)["done"] == 1
    two.call("emit_at_once", event())
    delivery = two.waits("deliver_event", "default", "e", None, 500)
    one.commit()
    assert delivers(two, slice_=delivery.result()) == 0
    assert (driver.step(run, "wait").status, driver.told(run).count("woken")) == ("failed", 0)


def test_two_keepers_settle_a_wait_that_is_due_once(driver, sessions):
    one, two = sessions
    (run,) = waiters(driver, 1, sleep())
    later(driver, sessions, 60)
    one.begin()
    one.call("lapse", None, True, 500)
    other = two.waits("lapse", None, True, 500)
    one.commit()
    assert other.result()["done"] == 0
    assert driver.told(run).count("woken") == 1


def test_a_locked_run_does_not_keep_other_waits_from_lapsing(driver, sessions):
    one, _ = sessions
    runs = waiters(driver, 3, sleep())
    later(driver, sessions, 60)
    one.begin()
    one.run("select 1 from workflow_run where id = %s for update", runs[0])
    assert driver.tick(limit=1).lapsed == 2
    one.roll_back()
    assert driver.tick(limit=1).lapsed == 1
