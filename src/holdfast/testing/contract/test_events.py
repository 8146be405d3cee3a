"""Events: durable when emit returns, each reaching everyone it is for, once."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.errors import IllegalMove, UnknownRun
from holdfast.lifecycle import Status, StepStatus
from holdfast.records import Emitted, NewEvent

from .hand import done, listen, sleep


def _waiter(hand, topic="parcel", tenant="default", **fields):
    claim = hand.held(tenant=tenant)
    hand.park(claim, listen("wait", topic, **fields), known=0)
    return claim.id


def _payload(hand, run, key="wait"):
    return msgspec.json.decode(hand.step(run, key).output)["payload"]


@pytest.mark.spec("EVENT-1", "EVENT-3")
def test_an_event_wakes_everyone_who_waits_and_counts_them(hand):
    """Each waiting run is woken, with the event; no worker needs to be up."""
    runs = [_waiter(hand) for _ in range(3)]
    other = _waiter(hand, "elsewhere")
    assert hand.emit("parcel", '{"n":1}') == Emitted(3, duplicate=False)
    for run in runs:
        assert hand.status(run) is Status.PENDING
        assert _payload(hand, run) == {"n": 1}
        hand.assert_replayed(run)
    assert hand.status(other) is Status.WAITING


@pytest.mark.spec("EVENT-1")
def test_an_event_reaches_only_its_tenant(hand):
    """Same topic, other tenant: neither woken nor counted."""
    mine, theirs = _waiter(hand), _waiter(hand, tenant="acme")
    assert hand.emit("parcel", tenant="acme").woken == 1
    assert (hand.status(mine), hand.status(theirs)) == (Status.WAITING, Status.PENDING)


@pytest.mark.spec("EVENT-1", "MOVE-8")
def test_a_park_that_looks_sees_only_its_own_tenants_events(hand):
    """What another tenant said on the same topic is not there."""
    claim = hand.held()
    hand.emit("parcel", '"theirs"', tenant="acme")
    assert hand.park(claim, listen(), known=0).status is Status.WAITING


@pytest.mark.spec("MOVE-8")
def test_a_park_that_names_nothing_known_is_not_held_up_by_what_was_settled_before(hand):
    """A holder without open waits has seen all that was settled: it parks, or would never."""
    claim = hand.held()
    hand.emit("parcel")
    assert hand.park(claim, listen("first"), known=0).status is Status.LEASED
    verdict = hand.park(claim, listen("second"))
    assert (verdict.status, verdict.settled, verdict.seq) == (Status.WAITING, (), 0)


@pytest.mark.spec("EVENT-2")
def test_the_same_id_twice_is_one_event_with_the_first_answer(hand):
    """One effect, the first number, duplicate=True; another tenant's id is another event."""
    _waiter(hand)
    late = _waiter(hand, "other")
    assert hand.emit(id="x") == Emitted(1, duplicate=False)
    before = hand.everything()
    assert hand.emit("other", "9", id="x") == Emitted(1, duplicate=True)
    assert hand.everything() == before
    assert hand.status(late) is Status.WAITING
    assert hand.emit(id="x", tenant="acme") == Emitted(0, duplicate=False)


@pytest.mark.spec("EVENT-2", "EVENT-7")
def test_a_duplicate_is_looked_at_before_the_address(hand):
    """The first answer comes back also when the addressed run has ended since."""
    run = _waiter(hand)
    assert hand.emit(id="x", run=run) == Emitted(1, duplicate=False)
    hand.cancel(run)
    assert hand.emit(id="x", run=run) == Emitted(1, duplicate=True)


@pytest.mark.spec("EVENT-3")
def test_waiters_are_woken_in_slices_and_a_keeper_does_the_rest(hand):
    """Recorded in a commit whose caller dies: the next tick delivers it, however small its slices."""
    runs = [_waiter(hand) for _ in range(5)]
    emitter = hand.held()
    hand.complete(emitter, events=(NewEvent(topic="parcel", id="x", payload="7"),))
    assert {hand.status(run) for run in runs} == {Status.WAITING}
    assert hand.due().chore_at <= hand.clock.now
    hand.tick(limit=2)
    assert {hand.status(run) for run in runs} == {Status.PENDING}
    assert hand.emit("parcel", id="x") == Emitted(5, duplicate=True)
    assert hand.tick().total == 0


@pytest.mark.spec("EVENT-3")
def test_a_duplicate_emit_helps_the_delivery_to_its_end(hand):
    """Whoever asks again gets the final number."""
    run = _waiter(hand)
    hand.complete(hand.held(), events=(NewEvent(topic="parcel", id="x"),))
    assert hand.emit("parcel", id="x") == Emitted(1, duplicate=True)
    assert (hand.status(run), hand.stats().undelivered) == (Status.PENDING, 0)


@pytest.mark.spec("EVENT-3")
def test_delivery_in_slices_may_be_repeated(hand):
    """Deliver answers the number of runs woken; again, there is nothing left."""
    for _ in range(5):
        _waiter(hand)
    hand.complete(hand.held(), events=(NewEvent(topic="parcel", id="x"), NewEvent(topic="none", id="y")))
    assert (hand.deliver(limit=2), hand.deliver(limit=2)) == (5, 0)
    assert hand.stats().undelivered == 0


@pytest.mark.spec("EVENT-4")
def test_a_run_sees_the_events_since_its_start_oldest_first_each_once(hand):
    """Nothing is lost between start and wait; what came before the start is not for it."""
    hand.emit("parcel", '"before"')
    claim = hand.held()
    for payload in ('"one"', '"two"'):
        hand.emit("parcel", payload)
    for key in ("a", "b"):
        known = max((step.seq for step in hand.steps(claim.id)), default=0)
        assert hand.park(claim, listen(key), known=known).status is Status.LEASED
    assert [_payload(hand, claim.id, key) for key in ("a", "b")] == ["one", "two"]
    assert hand.park(claim, listen("c"), known=4).status is Status.WAITING


@pytest.mark.spec("EVENT-4")
def test_an_event_of_the_same_instant_counts_by_order_and_not_by_time(hand):
    """The clock stands still: recorded before the start is before, after is after."""
    hand.emit("parcel", '"before"')
    claim = hand.held()
    hand.emit("parcel", '"after"')
    hand.park(claim, listen(), known=0)
    assert _payload(hand, claim.id) == "after"


@pytest.mark.spec("EVENT-4")
def test_since_now_takes_only_what_comes_after_the_wait_began(hand):
    """An event wait that does not look back."""
    claim = hand.held()
    hand.emit("parcel", '"old"')
    assert hand.park(claim, listen(since_now=True), known=0).status is Status.WAITING
    hand.emit("parcel", '"new"')
    assert _payload(hand, claim.id) == "new"


@pytest.mark.spec("EVENT-4")
def test_two_waits_of_a_run_on_one_topic_take_two_events(hand):
    """A receipt of the run for an event: no other wait of it takes the same."""
    claim = hand.held()
    hand.park(claim, listen("a"), listen("b"), known=0)
    assert hand.emit("parcel", "1").woken == 1
    assert [s.status for s in hand.steps(claim.id)] == [StepStatus.WAITING, StepStatus.SUCCEEDED]
    assert hand.emit("parcel", "2").woken == 1
    assert [_payload(hand, claim.id, key) for key in ("a", "b")] == [1, 2]


@pytest.mark.spec("EVENT-5")
def test_an_event_at_the_deadline_wins_even_if_it_is_handled_later(hand):
    """Stored at or before the deadline: it wins, whoever notices first and when."""
    run = _waiter(hand, delay_seconds=10.0)
    emitter = hand.held()
    hand.clock.turn(10)
    hand.complete(emitter, events=(NewEvent(topic="parcel", id="x", payload="1"),))
    hand.clock.turn(5)
    hand.tick()
    assert (hand.step(run, "wait").status, _payload(hand, run)) == (StepStatus.SUCCEEDED, 1)
    assert hand.told(run)[-1] == "woken"
    assert hand.stats().undelivered == 0


@pytest.mark.spec("EVENT-5", "FLOW-5")
def test_an_event_after_the_deadline_loses_even_if_no_keeper_has_noticed(hand):
    """The wait lapses instead, with kind timeout; the event is for no one."""
    run = _waiter(hand, delay_seconds=10.0)
    hand.clock.turn(10.000001)
    assert hand.emit("parcel").woken == 0
    step = hand.step(run, "wait")
    assert (step.status, msgspec.json.decode(step.error)["kind"]) == (StepStatus.FAILED, "timeout")
    assert hand.status(run) is Status.PENDING
    told = hand.last(run, "timed_out")
    assert (told["step"], told["status"]) == ("wait", "pending")
    assert hand.tick().total == 0
    hand.assert_replayed(run)


@pytest.mark.spec("EVENT-5", "MOVE-8")
def test_a_park_past_its_deadline_takes_only_an_event_that_was_in_time(hand):
    """The same law where the holder himself looks."""
    claim = hand.held()
    deadline = hand.clock.now + 5_000_000
    hand.clock.turn(6)
    hand.emit("parcel", "1")
    verdict = hand.park(claim, listen(due_at=deadline), known=0)
    assert [(s.key, s.status) for s in verdict.settled] == [("wait", StepStatus.FAILED)]


@pytest.mark.spec("EVENT-2", "MOVE-4")
def test_a_duplicate_helps_its_own_event_to_its_end_and_no_other(hand):
    """The next one in the inbox that is not delivered yet is left to its own emit, or to a keeper."""
    claim = hand.held()
    hand.checkpoint(claim, events=(NewEvent(topic="t", id="a"), NewEvent(topic="t", id="b")))
    assert hand.emit("t", id="a").duplicate
    assert hand.stats().undelivered == 1


@pytest.mark.spec("EVENT-6")
def test_an_event_for_no_one_is_kept_and_changes_no_run(hand):
    """It is there for the run that asks later."""
    claim = hand.held()
    before = hand.snapshot(claim.id)
    assert hand.emit("parcel", '"kept"') == Emitted(0, duplicate=False)
    assert hand.snapshot(claim.id) == before
    hand.clock.turn(20)
    hand.park(claim, listen(), known=0)
    assert _payload(hand, claim.id) == "kept"


@pytest.mark.spec("EVENT-7")
def test_an_addressed_event_is_seen_by_that_run_only(hand):
    """Also when it was recorded before the run asked."""
    mine, other = _waiter(hand), _waiter(hand)
    assert hand.emit("parcel", run=mine).woken == 1
    assert (hand.status(mine), hand.status(other)) == (Status.PENDING, Status.WAITING)
    assert hand.emit("parcel", run=other).woken == 1


@pytest.mark.spec("EVENT-7")
def test_an_address_that_is_unknown_foreign_or_ended_is_refused(hand):
    """Unknown: not found; ended: conflict with the true status; nothing is recorded."""
    run = _waiter(hand)
    for wrong in ({"run": hand.id()}, {"run": run, "tenant": "acme"}):
        with pytest.raises(UnknownRun):
            hand.emit(id="x", **wrong)
    hand.cancel(run)
    with pytest.raises(IllegalMove) as refusal:
        hand.emit(id="x", run=run)
    assert refusal.value.status is Status.CANCELLED
    assert hand.emit(id="x") == Emitted(0, duplicate=False)


@pytest.mark.spec("EVENT-8")
def test_topics_and_payloads_are_kept_exactly(hand):
    """Any characters but NUL; payloads are JSON text that no store looks into."""
    topic = "påket/'\"%_ 🎁\u2028" + "x" * 480
    payload = '{"a":[],"b":{},"c":1e16,"d":-0.0,"e":12345678901234567890123,"f":"\\u00e9"}'
    run = _waiter(hand, topic)
    assert hand.emit(topic, payload).woken == 1
    output = hand.step(run, "wait").output
    assert payload in output
    assert msgspec.json.decode(output)["topic"] == topic
    assert hand.run(hand.store.waiting_on(topic, "default")) == []


@pytest.mark.spec("EVENT-9", "EVENT-1", "PAUSE-2", "PAUSE-4")
def test_events_that_fall_in_a_pause_are_kept_and_not_counted(hand):
    """Paused waiters get it but are not counted; it is there right after resume."""
    run = _waiter(hand)
    hand.pause(run)
    assert hand.emit("parcel", "5") == Emitted(0, duplicate=False)
    assert (hand.status(run), _payload(hand, run)) == (Status.PAUSED, 5)
    hand.clock.turn(9)
    assert hand.resume(run).status is Status.PENDING
    assert hand.take(run).steps[-1].key == "wait"
    hand.assert_replayed(run)


@pytest.mark.spec("EVENT-4", "REW-1")
def test_an_event_that_only_forgotten_steps_consumed_is_available_again(hand):
    """The receipt goes only by rewind."""
    claim = hand.held()
    hand.checkpoint(claim)
    hand.emit("parcel", '"again"')
    hand.park(claim, listen(), known=1)
    hand.rewind(claim.id, "wait")
    claim = hand.take(claim.id)
    verdict = hand.park(claim, listen(), known=1)
    assert (verdict.status, _payload(hand, claim.id)) == (Status.LEASED, "again")


def test_a_leased_run_with_an_open_wait_is_reached_and_counted(hand):
    """It stays leased and learns it at its next boundary."""
    claim = hand.held()
    hand.checkpoint(claim, listen(), sleep())
    assert hand.emit("parcel").woken == 1
    assert hand.checkpoint(claim, done("a"), known=2).settled[0].key == "wait"
    assert hand.status(claim.id) is Status.LEASED


@pytest.mark.spec("EVENT-8")
def test_what_a_holder_emits_is_taken_whatever_its_id_is_like(hand):
    """The engine makes the id from the step's key, and the key from the topic: it may be long."""
    topic = "t" * 512
    waiter = _waiter(hand, topic)
    claim = hand.held()
    event = NewEvent(topic=topic, id=f"{claim.id}:1:emit:\x1f{topic}")
    assert hand.checkpoint(claim, events=(event,)).answer == "applied"
    hand.deliver()
    assert hand.status(waiter) is Status.PENDING


@pytest.mark.spec("EVENT-8")
def test_the_longest_tenant_and_the_longest_topic_go_together(hand):
    """Four bytes a character: what a store looks for has to fit into its index."""
    tenant, topic = "\U0001f680" * 128, "\U0001f34e" * 512
    run = hand.start(tenant=tenant)
    claim = hand.take(run)
    hand.park(claim, listen(topic=topic), known=0)
    assert hand.emit(topic, tenant=tenant).woken == 1
    assert hand.status(run) == "pending"
