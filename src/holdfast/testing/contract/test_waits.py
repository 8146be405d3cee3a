"""Waits: parked without anyone held up, settled once, in the order in which their outcomes became known."""

from __future__ import annotations

import pytest

from holdfast.lifecycle import Status, StepKind, StepStatus
from holdfast.records import SECOND, Chore, StepWrite, moment

from .hand import TYPE, backing_off, done, listen, sleep


@pytest.mark.spec("MOVE-2", "TRAIL-1")
def test_a_parked_run_holds_nothing_and_says_what_it_waits_for(hand):
    """Waiting, lease cleared, attempt refunded, the wait on its own step row."""
    claim = hand.held()
    verdict = hand.park(claim, listen("w", "parcel", delay_seconds=60.0), known=0)
    assert (verdict.answer, verdict.status, verdict.settled, verdict.seq) == ("applied", "waiting", (), 1)
    seen = hand.get(claim.id)
    assert (seen.status, seen.leased_by, seen.attempt) == (Status.WAITING, None, 0)
    (wait,) = seen.waiting_on
    assert (wait.key, wait.kind, wait.topic) == ("w", StepKind.EVENT, "parcel")
    assert wait.due_at == hand.clock.now + 60_000_000
    assert hand.last(claim.id, "waiting") == {"step": "w", "kind": "event", "status": "waiting"}
    assert hand.run(hand.store.waiting_on("parcel", "default")) == [claim.id]
    assert hand.run(hand.store.waiting_on("parcel", "acme")) == []
    hand.assert_replayed(claim.id)


@pytest.mark.spec("START-3", "MOVE-8")
def test_a_sleep_ends_at_its_instant_and_never_early(hand):
    """Timers are due at equality; the run is pending at once, with fresh counts."""
    claim = hand.held()
    hand.park(claim, sleep(seconds=60.0))
    hand.clock.turn(59.999999)
    assert hand.tick().total == 0
    hand.clock.turn(0.000001)
    assert hand.tick().lapsed == 1
    seen, nap = hand.get(claim.id), hand.step(claim.id, "nap")
    assert (seen.status, seen.run_at, seen.attempt) == (Status.PENDING, moment(hand.clock.now), 0)
    assert (nap.status, nap.output, nap.finished_at) == (StepStatus.SUCCEEDED, "null", hand.clock.now)
    told = hand.last(claim.id, "woken")
    assert (told["step"], told["status"]) == ("nap", "pending")
    hand.assert_replayed(claim.id)


@pytest.mark.spec("MOVE-8")
def test_a_park_whose_time_has_come_is_answered_at_once(hand):
    """Park looks first: what is already there is the commit's answer, and the run stays leased."""
    claim = hand.held()
    verdict = hand.park(claim, sleep(due_at=hand.clock.now, delay_seconds=None), known=0)
    assert (verdict.answer, verdict.status) == ("applied", Status.LEASED)
    assert [(step.key, step.status) for step in verdict.settled] == [("nap", "succeeded")]
    assert hand.get(claim.id).lease_until is not None
    assert hand.told(claim.id)[-2:] == ["waiting", "woken"]
    assert "status" not in hand.last(claim.id, "woken")
    hand.assert_replayed(claim.id)


@pytest.mark.spec("MOVE-8")
def test_a_park_that_finds_its_event_is_answered_with_it(hand):
    """Nothing falls between asking and parking."""
    claim = hand.held()
    hand.emit("parcel", '{"at":"door"}', id="evt-9")
    verdict = hand.park(claim, listen(), known=0)
    (step,) = verdict.settled
    assert (verdict.status, step.seq, step.status) == (Status.LEASED, 2, "succeeded")
    at = hand.clock.now
    assert hand.step(claim.id, "wait").output == (
        f'{{"id":"evt-9","topic":"parcel","at":{at},"payload":{{"at":"door"}}}}'
    )
    assert hand.last(claim.id, "woken") == {"step": "wait", "event": "evt-9"}


@pytest.mark.spec("MOVE-8", "FLOW-9")
def test_a_park_is_answered_with_what_was_settled_while_the_holder_ran(hand):
    """If any wait has been settled with seq > known, the run stays leased."""
    claim = hand.held()
    hand.checkpoint(claim, listen("a", "t"), known=0)
    hand.emit("t")
    assert hand.status(claim.id) is Status.LEASED
    verdict = hand.park(claim, sleep(), known=1)
    assert (verdict.status, [s.key for s in verdict.settled], verdict.seq) == (Status.LEASED, ["a"], 3)
    verdict = hand.park(claim, sleep(), known=3)
    assert (verdict.status, verdict.settled) == (Status.WAITING, ())
    hand.assert_replayed(claim.id)


@pytest.mark.spec("FLOW-9")
def test_a_run_may_have_several_waits_open_and_wakes_at_the_first(hand):
    """The others stay open while it runs; `waiting_on` lists all, first due first; its end removes them."""
    claim = hand.held()
    hand.park(claim, listen("e", "t"), sleep("long", 100.0), sleep("short", 10.0), known=0)
    assert [wait.key for wait in hand.get(claim.id).waiting_on] == ["short", "long", "e"]
    hand.clock.turn(10)
    assert hand.tick().lapsed == 1
    again = hand.take(claim.id)
    assert [wait.key for wait in hand.get(claim.id).waiting_on] == ["long", "e"]
    assert [(step.key, step.seq, step.status) for step in again.steps] == [
        ("e", 1, "waiting"), ("long", 2, "waiting"), ("short", 4, "succeeded"),
    ]  # fmt: skip
    hand.complete(again)
    assert hand.get(claim.id).waiting_on == ()
    assert hand.run(hand.store.waiting_on("t", "default")) == []
    hand.clock.turn(100)
    assert hand.tick().total == 0
    hand.assert_replayed(claim.id)


@pytest.mark.spec("FLOW-9", "PAUSE-4")
def test_outcomes_are_numbered_in_the_order_in_which_they_became_known(hand):
    """A settled wait takes the next seq; of several that came due, the earliest first."""
    claim = hand.held()
    hand.park(claim, sleep("late", 20.0), sleep("soon", 10.0), listen("e", "t"), known=0)
    hand.emit("t")
    hand.clock.turn(30)
    hand.tick()
    assert [(step.key, step.seq) for step in hand.steps(claim.id)] == [("e", 4), ("soon", 5), ("late", 6)]


def test_an_open_wait_written_again_stays_as_it_is(hand):
    """The first due_at is kept: an execution again sleeps on to the first wake time."""
    claim = hand.held()
    hand.park(claim, sleep(seconds=60.0), listen("e", "t"), known=0)
    hand.emit("t")
    claim = hand.take(claim.id)
    hand.clock.turn(5)
    verdict = hand.park(claim, sleep(seconds=60.0), known=4)
    assert (verdict.status, verdict.kept) == (Status.WAITING, ())
    assert hand.step(claim.id, "nap").due_at == hand.clock.now + 55_000_000
    assert hand.told(claim.id)[-1] == "waiting"
    hand.assert_replayed(claim.id)


def test_a_wait_opened_by_a_checkpoint_waits_while_the_run_goes_on(hand):
    """A run that is leased learns of it at its next boundary, with `known`."""
    claim = hand.held()
    assert hand.checkpoint(claim, sleep(seconds=5.0), known=0).seq == 1
    hand.clock.turn(5)
    assert hand.tick().lapsed == 1
    assert hand.status(claim.id) is Status.LEASED
    verdict = hand.checkpoint(claim, done("a"), known=1)
    assert ([step.key for step in verdict.settled], verdict.seq) == (["nap"], 3)
    assert hand.checkpoint(claim, done("b"), known=3).settled == ()
    assert hand.checkpoint(claim, done("c")).settled == ()


def test_a_run_that_backs_off_is_woken_by_its_wait(hand):
    """A pending one that backs off gets run_at now; a retry that finds news is due at once."""
    claim = hand.held()
    hand.retry(claim, backing_off("a"), listen("e", "t"), refund=True, delay=600.0, known=0)
    assert hand.claim() == []
    hand.emit("t")
    claim = hand.take(claim.id)
    hand.checkpoint(claim, listen("f", "u"), known=3)
    hand.emit("u")
    hand.retry(claim, delay=600.0, known=4)
    assert hand.take(claim.id).id == claim.id
    hand.assert_replayed(claim.id)


def test_a_park_with_nothing_left_to_wait_for_stays_leased(hand):
    """A run that waits for nothing would never be woken: what was asked for stands in `kept`."""
    claim = hand.held()
    hand.park(claim, sleep(seconds=1.0), known=0)
    hand.clock.turn(1)
    hand.tick()
    again = hand.take(claim.id)
    verdict = hand.park(again, sleep(seconds=1.0), known=2)
    assert (verdict.answer, verdict.status, verdict.kept) == ("applied", Status.LEASED, (("nap", "null"),))


@pytest.mark.spec("MOVE-7")
def test_an_open_run_always_has_a_way_on(hand):
    """Due knows of an instant, or an event can come, for every open run."""
    claim = hand.held()
    hand.park(claim, sleep(seconds=60.0), known=0)
    assert hand.due().chore_at == hand.clock.now + 60_000_000
    hand.clock.turn(60)
    hand.tick()
    assert hand.due((TYPE,)).claim_at == hand.clock.now


def test_lapses_are_swept_in_slices(hand):
    """A tick with a small limit still settles all that is due."""
    for _ in range(5):
        hand.park(hand.held(), sleep(seconds=1.0), known=0)
    hand.clock.turn(1)
    assert hand.tick(limit=2).lapsed == 5
    assert hand.stats().by_status[Status.PENDING] == 5


@pytest.mark.spec("MOVE-8")
def test_a_wait_opened_while_another_branch_works_is_answered_at_once_if_it_can_be(hand):
    """Opening looks first, whatever the move: an event that is there, a time that has come."""
    claim = hand.held()
    hand.emit("parcel", '"here"')
    verdict = hand.checkpoint(claim, listen("w", "parcel"), sleep("nap", seconds=0.0), known=0)
    assert (verdict.status, [step.key for step in verdict.settled]) == (Status.LEASED, ["nap", "w"])
    assert verdict.seq == max(step.seq for step in hand.steps(claim.id))
    assert hand.get(claim.id).waiting_on == ()
    hand.assert_replayed(claim.id)


@pytest.mark.spec("RETRY-1", "LEASE-6")
def test_a_run_that_was_woken_has_fresh_attempts_and_crashes(hand):
    """A wait that came to its end is progress."""
    run = hand.start()
    hand.take(run)
    hand.clock.turn(31)
    hand.tick()
    claim = hand.take(run)
    hand.park(claim, listen("w", "t"), known=0)
    assert (hand.get(run).attempt, hand.get(run).crashes) == (1, 1)
    hand.emit("t")
    assert (hand.get(run).attempt, hand.get(run).crashes) == (0, 0)


@pytest.mark.spec("EVENT-4", "MOVE-5")
def test_a_wait_that_is_given_up_frees_its_event_for_the_next(hand):
    """Open, it is closed; settled and unread, what it took is undone; unknown, nothing happens."""
    claim = hand.held()
    hand.checkpoint(claim, listen("open", "a"), listen("took", "b"))
    hand.emit("b", '"here"')
    given_up = [
        StepWrite(key=key, kind=StepKind.EVENT, status=StepStatus.CANCELLED) for key in ("open", "took")
    ]
    never = StepWrite(key="never", kind=StepKind.EVENT, status=StepStatus.CANCELLED)
    verdict = hand.checkpoint(claim, *given_up, never, listen("next", "b"), known=0)
    assert [step.key for step in verdict.settled] == ["next"]
    assert {step.key: step.status.value for step in hand.steps(claim.id)} == {
        "open": "cancelled", "took": "cancelled", "next": "succeeded",
    }  # fmt: skip
    assert hand.emit("a").woken == 0
    hand.assert_replayed(claim.id)


@pytest.mark.spec("EVENT-4", "MOVE-5")
@pytest.mark.parametrize("at_once", [True, False])
def test_a_wait_that_was_given_up_may_be_opened_anew(hand, at_once):
    """It takes what it may, also what came before it was given up; an outcome does not take its place."""
    claim = hand.held()
    hand.checkpoint(claim, listen("w", "t"))
    hand.emit("t", '"here"')
    given_up = StepWrite(key="w", kind=StepKind.EVENT, status=StepStatus.CANCELLED)
    if at_once:
        verdict = hand.checkpoint(claim, given_up, listen("w", "t"), known=2)
    else:
        hand.checkpoint(claim, given_up)
        late = StepWrite(key="w", kind=StepKind.EVENT, output="1")
        assert hand.checkpoint(claim, late).kept == (("w", None),)
        verdict = hand.checkpoint(claim, listen("w", "t"), known=3)
    assert [(step.key, step.status) for step in verdict.settled] == [("w", StepStatus.SUCCEEDED)]
    assert [step.key for step in hand.steps(claim.id)] == ["w"]
    hand.assert_replayed(claim.id)


@pytest.mark.spec("OPS-1")
def test_the_look_says_which_chore_is_due(hand):
    """Each by itself: a lease, a timeout, a wait, what is owed; and none of them before its time."""
    now = hand.clock.now
    assert [hand.due().is_due(chore) for chore in Chore] == [False] * 4
    leased = hand.held(timeout_seconds=50.0)
    asleep = hand.held()
    hand.park(asleep, sleep(delay_seconds=20.0))
    due = hand.due()
    assert (due.lapse_at, due.time_out_at, due.deliver_at) == (now + 20 * SECOND, now + 50 * SECOND, None)
    assert due.expire_at in {leased.lease_until, leased.lease_until + 1}
    found = []
    for seconds in (20, 31, 50):
        hand.clock.now = now + seconds * SECOND
        found.append([str(chore) for chore in Chore if hand.due().is_due(chore)])
        hand.tick()
    assert found == [["lapse"], ["expire"], ["time_out"]]
    assert [hand.due().is_due(chore) for chore in Chore] == [False] * 4
