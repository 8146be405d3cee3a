"""Events: durable when emit returns, and delivered to each run once."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.errors import IllegalMove, UnknownRun
from holdfast.lifecycle import Status, StepStatus
from holdfast.records import Emitted, NewEvent

from .driver import done, listen, sleep


def _waiter(driver, topic="parcel", tenant="default", **fields):
    claim = driver.held(tenant=tenant)
    driver.park(claim, listen("wait", topic, **fields), known=0)
    return claim.id


def _payload(driver, run, key="wait"):
    return msgspec.json.decode(driver.step(run, key).output)["payload"]


@pytest.mark.spec("EVENT-1", "EVENT-3")
def test_an_event_wakes_everyone_who_waits_and_counts_them(driver):
    """Each waiting run gets the event; no worker needs to run."""
    runs = [_waiter(driver) for _ in range(3)]
    other = _waiter(driver, "elsewhere")
    assert driver.emit("parcel", '{"n":1}') == Emitted(3, duplicate=False)
    for run in runs:
        assert driver.status(run) is Status.PENDING
        assert _payload(driver, run) == {"n": 1}
        driver.assert_replayed(run)
    assert driver.status(other) is Status.WAITING


@pytest.mark.spec("EVENT-1")
def test_an_event_reaches_only_its_tenant(driver):
    """A run of another tenant on the same topic is neither woken nor counted."""
    mine, theirs = _waiter(driver), _waiter(driver, tenant="acme")
    assert driver.emit("parcel", tenant="acme").woken == 1
    assert (driver.status(mine), driver.status(theirs)) == (Status.WAITING, Status.PENDING)


@pytest.mark.spec("EVENT-1", "MOVE-8")
def test_a_park_that_looks_sees_only_its_own_tenants_events(driver):
    """An event of another tenant on the same topic is not found."""
    claim = driver.held()
    driver.emit("parcel", '"theirs"', tenant="acme")
    assert driver.park(claim, listen(), known=0).status is Status.WAITING


@pytest.mark.spec("MOVE-8")
def test_a_park_without_known_is_not_held_up_by_earlier_outcomes(driver):
    """A holder without open waits has seen all outcomes: otherwise it could never park."""
    claim = driver.held()
    driver.emit("parcel")
    assert driver.park(claim, listen("first"), known=0).status is Status.LEASED
    verdict = driver.park(claim, listen("second"))
    assert (verdict.status, verdict.settled, verdict.seq) == (Status.WAITING, (), 0)


@pytest.mark.spec("EVENT-2")
def test_the_same_id_twice_is_one_event_with_the_first_answer(driver):
    """The repeat has the first number and duplicate=True; the id of another tenant is another event."""
    _waiter(driver)
    late = _waiter(driver, "other")
    assert driver.emit(id="x") == Emitted(1, duplicate=False)
    before = driver.everything()
    assert driver.emit("other", "9", id="x") == Emitted(1, duplicate=True)
    assert driver.everything() == before
    assert driver.status(late) is Status.WAITING
    assert driver.emit(id="x", tenant="acme") == Emitted(0, duplicate=False)


@pytest.mark.spec("EVENT-2", "EVENT-7")
def test_a_duplicate_is_recognized_before_the_address_is_checked(driver):
    """The first answer is returned also when the addressed run has ended since."""
    run = _waiter(driver)
    assert driver.emit(id="x", run=run) == Emitted(1, duplicate=False)
    driver.cancel(run)
    assert driver.emit(id="x", run=run) == Emitted(1, duplicate=True)


@pytest.mark.spec("EVENT-3")
def test_waiters_are_woken_in_slices_and_a_keeper_does_the_rest(driver):
    """An event of a commit whose caller died is delivered by the next tick, however small its slices."""
    runs = [_waiter(driver) for _ in range(5)]
    emitter = driver.held()
    driver.complete(emitter, events=(NewEvent(topic="parcel", id="x", payload="7"),))
    assert {driver.status(run) for run in runs} == {Status.WAITING}
    assert driver.due().chore_at <= driver.clock.now
    driver.tick(limit=2)
    assert {driver.status(run) for run in runs} == {Status.PENDING}
    assert driver.emit("parcel", id="x") == Emitted(5, duplicate=True)
    assert driver.tick().total == 0


@pytest.mark.spec("EVENT-3")
def test_a_duplicate_emit_finishes_the_delivery(driver):
    """The repeated call returns the final number."""
    run = _waiter(driver)
    driver.complete(driver.held(), events=(NewEvent(topic="parcel", id="x"),))
    assert driver.emit("parcel", id="x") == Emitted(1, duplicate=True)
    assert (driver.status(run), driver.stats().undelivered) == (Status.PENDING, 0)


@pytest.mark.spec("EVENT-3")
def test_delivery_in_slices_may_be_repeated(driver):
    """Deliver returns the number of woken runs; a repeat finds nothing."""
    for _ in range(5):
        _waiter(driver)
    driver.complete(driver.held(), events=(NewEvent(topic="parcel", id="x"), NewEvent(topic="none", id="y")))
    assert (driver.deliver(limit=2), driver.deliver(limit=2)) == (5, 0)
    assert driver.stats().undelivered == 0


@pytest.mark.spec("EVENT-4")
def test_a_run_sees_the_events_since_its_start_oldest_first_each_once(driver):
    """No event between start and wait is lost; events before the start are not for the run."""
    driver.emit("parcel", '"before"')
    claim = driver.held()
    for payload in ('"one"', '"two"'):
        driver.emit("parcel", payload)
    for key in ("a", "b"):
        known = max((step.seq for step in driver.steps(claim.id)), default=0)
        assert driver.park(claim, listen(key), known=known).status is Status.LEASED
    assert [_payload(driver, claim.id, key) for key in ("a", "b")] == ["one", "two"]
    assert driver.park(claim, listen("c"), known=4).status is Status.WAITING


@pytest.mark.spec("EVENT-4")
def test_an_event_of_the_same_instant_counts_by_order_and_not_by_time(driver):
    """With a stopped clock the order of recording decides what came before the start."""
    driver.emit("parcel", '"before"')
    claim = driver.held()
    driver.emit("parcel", '"after"')
    driver.park(claim, listen(), known=0)
    assert _payload(driver, claim.id) == "after"


@pytest.mark.spec("EVENT-4")
def test_since_now_takes_only_what_comes_after_the_wait_began(driver):
    """The wait does not look at earlier events."""
    claim = driver.held()
    driver.emit("parcel", '"old"')
    assert driver.park(claim, listen(since_now=True), known=0).status is Status.WAITING
    driver.emit("parcel", '"new"')
    assert _payload(driver, claim.id) == "new"


@pytest.mark.spec("EVENT-4")
def test_two_waits_of_a_run_on_one_topic_take_two_events(driver):
    """A run takes an event once: no other wait of the run gets the same event."""
    claim = driver.held()
    driver.park(claim, listen("a"), listen("b"), known=0)
    assert driver.emit("parcel", "1").woken == 1
    assert [s.status for s in driver.steps(claim.id)] == [StepStatus.WAITING, StepStatus.SUCCEEDED]
    assert driver.emit("parcel", "2").woken == 1
    assert [_payload(driver, claim.id, key) for key in ("a", "b")] == [1, 2]


@pytest.mark.spec("EVENT-5")
def test_an_event_at_the_deadline_wins_even_if_it_is_handled_later(driver):
    """An event that is stored at or before the deadline wins, whenever it is noticed."""
    run = _waiter(driver, delay_seconds=10.0)
    emitter = driver.held()
    driver.clock.turn(10)
    driver.complete(emitter, events=(NewEvent(topic="parcel", id="x", payload="1"),))
    driver.clock.turn(5)
    driver.tick()
    assert (driver.step(run, "wait").status, _payload(driver, run)) == (StepStatus.SUCCEEDED, 1)
    assert driver.told(run)[-1] == "woken"
    assert driver.stats().undelivered == 0


@pytest.mark.spec("EVENT-5", "FLOW-5")
def test_an_event_after_the_deadline_loses_even_if_no_keeper_has_noticed(driver):
    """The wait lapses with kind timeout; the event is not taken."""
    run = _waiter(driver, delay_seconds=10.0)
    driver.clock.turn(10.000001)
    assert driver.emit("parcel").woken == 0
    step = driver.step(run, "wait")
    assert (step.status, step.error.kind) == (StepStatus.FAILED, "timeout")
    assert driver.status(run) is Status.PENDING
    told = driver.last(run, "timed_out")
    assert (told["step"], told["status"]) == ("wait", "pending")
    assert driver.tick().total == 0
    driver.assert_replayed(run)


@pytest.mark.spec("EVENT-5", "MOVE-8")
def test_a_park_past_its_deadline_takes_only_an_event_that_was_in_time(driver):
    """The same rule holds when the holder itself parks late."""
    claim = driver.held()
    deadline = driver.clock.now + 5_000_000
    driver.clock.turn(6)
    driver.emit("parcel", "1")
    verdict = driver.park(claim, listen(due_at=deadline), known=0)
    assert [(s.key, s.status) for s in verdict.settled] == [("wait", StepStatus.FAILED)]


@pytest.mark.spec("EVENT-2", "MOVE-4")
def test_a_duplicate_delivers_its_own_event_and_no_other(driver):
    """Other undelivered events are left to their own emit, or to a keeper."""
    claim = driver.held()
    driver.checkpoint(claim, events=(NewEvent(topic="t", id="a"), NewEvent(topic="t", id="b")))
    assert driver.emit("t", id="a").duplicate
    assert driver.stats().undelivered == 1


@pytest.mark.spec("EVENT-6")
def test_an_event_for_no_one_is_kept_and_changes_no_run(driver):
    """A run that waits later gets it."""
    claim = driver.held()
    before = driver.snapshot(claim.id)
    assert driver.emit("parcel", '"kept"') == Emitted(0, duplicate=False)
    assert driver.snapshot(claim.id) == before
    driver.clock.turn(20)
    driver.park(claim, listen(), known=0)
    assert _payload(driver, claim.id) == "kept"


@pytest.mark.spec("EVENT-7")
def test_an_addressed_event_is_seen_by_that_run_only(driver):
    """This holds also for an event that was recorded before the run waits."""
    mine, other = _waiter(driver), _waiter(driver)
    assert driver.emit("parcel", run=mine).woken == 1
    assert (driver.status(mine), driver.status(other)) == (Status.PENDING, Status.WAITING)
    assert driver.emit("parcel", run=other).woken == 1


@pytest.mark.spec("EVENT-7")
def test_an_address_that_is_unknown_foreign_or_ended_is_refused(driver):
    """Unknown: not found; ended: conflict with the true status. Nothing is recorded."""
    run = _waiter(driver)
    for wrong in ({"run": driver.id()}, {"run": run, "tenant": "acme"}):
        with pytest.raises(UnknownRun):
            driver.emit(id="x", **wrong)
    driver.cancel(run)
    with pytest.raises(IllegalMove) as refusal:
        driver.emit(id="x", run=run)
    assert refusal.value.status is Status.CANCELLED
    assert driver.emit(id="x") == Emitted(0, duplicate=False)


@pytest.mark.spec("EVENT-8")
def test_topics_and_payloads_are_kept_exactly(driver):
    """Topics may have any characters except NUL; payloads are JSON text that no store changes."""
    topic = "påket/'\"%_ 🎁\u2028" + "x" * 480
    payload = '{"a":[],"b":{},"c":1e16,"d":-0.0,"e":12345678901234567890123,"f":"\\u00e9"}'
    run = _waiter(driver, topic)
    assert driver.emit(topic, payload).woken == 1
    output = driver.step(run, "wait").output
    assert payload in output
    assert msgspec.json.decode(output)["topic"] == topic
    assert driver.run(driver.store.waiting_on(topic, "default")) == []


@pytest.mark.spec("EVENT-9", "EVENT-1", "PAUSE-2", "PAUSE-4")
def test_events_that_fall_in_a_pause_are_kept_and_not_counted(driver):
    """A paused run gets the event but is not counted; the event is there right after resume."""
    run = _waiter(driver)
    driver.pause(run)
    assert driver.emit("parcel", "5") == Emitted(0, duplicate=False)
    assert (driver.status(run), _payload(driver, run)) == (Status.PAUSED, 5)
    driver.clock.turn(9)
    assert driver.resume(run).status is Status.PENDING
    assert driver.take(run).steps[-1].key == "wait"
    driver.assert_replayed(run)


@pytest.mark.spec("EVENT-4", "REW-1")
def test_an_event_that_only_forgotten_steps_consumed_is_available_again(driver):
    """Only a rewind frees a taken event."""
    claim = driver.held()
    driver.checkpoint(claim)
    driver.emit("parcel", '"again"')
    driver.park(claim, listen(), known=1)
    driver.rewind(claim.id, "wait")
    claim = driver.take(claim.id)
    verdict = driver.park(claim, listen(), known=1)
    assert (verdict.status, _payload(driver, claim.id)) == (Status.LEASED, "again")


def test_a_leased_run_with_an_open_wait_is_reached_and_counted(driver):
    """The run stays leased and learns of the event at its next commit."""
    claim = driver.held()
    driver.checkpoint(claim, listen(), sleep())
    assert driver.emit("parcel").woken == 1
    assert driver.checkpoint(claim, done("a"), known=2).settled[0].key == "wait"
    assert driver.status(claim.id) is Status.LEASED


@pytest.mark.spec("EVENT-8")
def test_an_event_of_a_holder_may_have_a_long_id(driver):
    """The engine makes the id from the step's key and the key from the topic, so it may be long."""
    topic = "t" * 512
    waiter = _waiter(driver, topic)
    claim = driver.held()
    event = NewEvent(topic=topic, id=f"{claim.id}:1:emit:\x1f{topic}")
    assert driver.checkpoint(claim, events=(event,)).answer == "applied"
    driver.deliver()
    assert driver.status(waiter) is Status.PENDING


@pytest.mark.spec("EVENT-8")
def test_the_longest_tenant_and_the_longest_topic_go_together(driver):
    """With four bytes a character both must fit into the index of a store."""
    tenant, topic = "\U0001f680" * 128, "\U0001f34e" * 512
    run = driver.start(tenant=tenant)
    claim = driver.take(run)
    driver.park(claim, listen(topic=topic), known=0)
    assert driver.emit(topic, tenant=tenant).woken == 1
    assert driver.status(run) == "pending"
