"""Waits of plans: tasks that wait and are called again, awaited events, sleeps."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.lifecycle import Move, Status, StepKind, StepStatus
from holdfast.records import StepWrite, moment

from .hand import done, gate, hear, listen, nap

decode = msgspec.json.decode


def waits(key="A", topic="parcel", **fields):
    """What a task's handler says that waits."""
    return StepWrite(key=key, status=StepStatus.WAITING, topic=topic, **fields)


def _waiting(hand, *following, **fields):
    claim = hand.begun("A", *following)
    hand.park(claim, waits(**fields))
    return claim


def _wake(hand, run, key="A"):
    wake = hand.step(run, key).wake
    return None if wake is None else decode(wake)


@pytest.mark.spec("PLAN-6", "MOVE-7")
def test_a_task_that_waits_holds_nothing_and_says_what_for(hand):
    """Waiting on its own row, lease cleared, the attempt given back, counted on the row."""
    claim = hand.begun("A", "B")
    verdict = hand.park(claim, waits(delay_seconds=60.0))
    assert (verdict.answer, verdict.status, verdict.settled) == ("applied", Status.WAITING, ())
    seen = hand.get(claim.id)
    assert (seen.status, seen.leased_by, seen.attempt) == (Status.WAITING, None, 0)
    (wait,) = seen.waiting_on
    assert (wait.key, wait.kind, wait.topic, wait.waits) == ("A", StepKind.TASK, "parcel", 1)
    assert wait.due_at == hand.clock.now + 60_000_000
    assert hand.shape(claim.id) == [("A", "waiting"), ("B", "pending")]
    assert hand.last(claim.id, "waiting") == {"step": "A", "kind": "task", "status": "waiting"}
    assert hand.run(hand.store.waiting_on("parcel", "default")) == [claim.id]
    hand.assert_replayed(claim.id)


@pytest.mark.spec("PLAN-6", "EVENT-3")
def test_an_event_calls_the_same_step_again_and_tells_why(hand):
    """Pending at once, with fresh counts; the claim brings the event with the row."""
    run = _waiting(hand, "B").id
    hand.clock.turn(5)
    assert hand.emit("parcel", '{"n":1}', id="e").woken == 1
    seen = hand.get(run)
    assert (seen.status, seen.run_at, seen.attempt) == (Status.PENDING, moment(hand.clock.now), 0)
    came = {"id": "e", "topic": "parcel", "at": hand.clock.now, "payload": {"n": 1}}
    assert _wake(hand, run) == {"reason": "event", "event": came}
    assert hand.shape(run) == [("A", "ready"), ("B", "pending")]
    told = hand.last(run, "woken")
    assert (told["step"], told["event"], told["status"]) == ("A", "e", "pending")
    hand.assert_replayed(run)
    claim = hand.take(run)
    assert (decode(claim.steps[0].wake)["reason"], claim.steps[0].seq) == ("event", 0)
    hand.advance(claim, "A", in_place=True)
    assert hand.shape(run) == [("A", "succeeded"), ("B", "running")]
    hand.assert_replayed(run)


@pytest.mark.spec("PLAN-6", "MOVE-8")
def test_a_park_of_a_task_that_finds_its_event_stays_leased(hand):
    """Nothing falls between asking and parking; the attempt is given back only by leaving."""
    claim = hand.begun("A", "B")
    hand.emit("parcel", "7", id="e")
    verdict = hand.park(claim, waits())
    assert (verdict.answer, verdict.status) == ("applied", Status.LEASED)
    (row,) = verdict.settled
    assert (row.key, row.status, row.waits) == ("A", StepStatus.PENDING, 1)
    assert decode(row.wake)["event"]["payload"] == 7
    assert (hand.get(claim.id).attempt, hand.get(claim.id).waiting_on) == (1, ())
    assert hand.told(claim.id)[-2:] == ["waiting", "woken"]
    assert hand.shape(claim.id)[0] == ("A", "running")
    hand.assert_replayed(claim.id)
    assert hand.advance(claim, "A", in_place=True).status is Status.LEASED


@pytest.mark.spec("PLAN-6", "EVENT-5")
@pytest.mark.parametrize("topic", ["parcel", None])
def test_a_deadline_calls_the_step_again_and_tells_why(hand, topic):
    """With a topic or without one: no failure of the step, which decides itself."""
    run = _waiting(hand, topic=topic, delay_seconds=10.0).id
    hand.clock.turn(9.999999)
    assert hand.tick().total == 0
    hand.clock.turn(0.000001)
    assert hand.tick().lapsed == 1
    assert (hand.status(run), _wake(hand, run)) == (Status.PENDING, {"reason": "timeout"})
    assert hand.shape(run) == [("A", "ready")]
    told = hand.last(run, "timed_out")
    assert (told["step"], told["status"]) == ("A", "pending")
    assert hand.emit("parcel").woken == 0
    hand.assert_replayed(run)


@pytest.mark.spec("PLAN-6", "EVENT-5")
def test_of_a_tasks_event_and_deadline_one_wins(hand):
    """Stored after the deadline, an event is too late, though no keeper has noticed."""
    run = _waiting(hand, delay_seconds=10.0).id
    hand.clock.turn(10.000001)
    assert hand.emit("parcel").woken == 0
    assert _wake(hand, run) == {"reason": "timeout"}
    hand.assert_replayed(run)


@pytest.mark.spec("PLAN-6")
def test_why_a_step_is_called_again_stays_over_crashes_and_retries(hand):
    """Until it succeeds, fails or waits again: a crash before its end must not lose the event."""
    run = _waiting(hand).id
    hand.emit("parcel", "7")
    why = _wake(hand, run)
    hand.take(run)
    hand.clock.turn(31)
    hand.tick()
    assert _wake(hand, run) == why
    claim = hand.take(run)
    hand.retry(claim, delay=1.0)
    hand.clock.turn(1)
    claim = hand.take(run)
    assert decode(claim.steps[0].wake) == why
    hand.retry(claim, delay=0.1, in_place=True)
    hand.release(claim)
    claim = hand.take(run)
    assert decode(claim.steps[0].wake) == why
    hand.park(claim, waits(delay_seconds=5.0))
    assert _wake(hand, run) is None
    hand.assert_replayed(run)


@pytest.mark.spec("PLAN-6", "EVENT-4")
def test_a_step_that_waits_again_is_not_given_the_same_event(hand):
    """Each once, oldest first; the waits are counted."""
    run = _waiting(hand).id
    for payload in ("1", "2"):
        hand.emit("parcel", payload)
    claim = hand.take(run)
    assert decode(claim.steps[0].wake)["event"]["payload"] == 1
    assert hand.park(claim, waits()).status is Status.LEASED
    assert _wake(hand, run)["event"]["payload"] == 2
    assert hand.park(claim, waits()).status is Status.WAITING
    assert hand.step(run, "A").waits == 3
    hand.assert_replayed(run)


@pytest.mark.spec("PLAN-6", "LEASE-14")
@pytest.mark.parametrize("there", [True, False])
def test_a_tasks_wait_sent_again_changes_nothing(hand, there):
    """Neither counted twice nor given a second event."""
    claim = hand.begun("A")
    for number in (1, 2) if there else ():
        hand.emit("parcel", str(number))
    item = hand.item(claim, Move.PARK, waits())
    first = hand.send(item)
    before = hand.snapshot(claim.id)
    assert hand.send(item) == first
    assert hand.snapshot(claim.id) == before


@pytest.mark.spec("PLAN-6", "PLAN-3")
def test_only_the_current_task_may_wait(hand):
    """Any other step of the plan is lost, and nothing changes."""
    claim = hand.begun("A", "B")
    before = hand.snapshot(claim.id)
    for key in ("B", "nowhere"):
        assert hand.park(claim, waits(key)).answer == "lost"
    assert hand.snapshot(claim.id) == before


@pytest.mark.spec("PAUSE-2", "PAUSE-4", "EVENT-9")
@pytest.mark.parametrize("what", ["event", "timeout"])
def test_what_a_paused_plans_task_waited_for_is_there_at_resume(hand, what):
    """Recorded when it came; the run goes on when it is resumed."""
    run = _waiting(hand, delay_seconds=10.0).id
    hand.pause(run)
    if what == "event":
        assert hand.emit("parcel").woken == 0
    else:
        hand.clock.turn(10)
        assert hand.tick().lapsed == 1
    assert (hand.status(run), hand.claim()) == (Status.PAUSED, [])
    hand.assert_replayed(run)
    assert hand.resume(run).status is Status.PENDING
    assert decode(hand.take(run).steps[0].wake)["reason"] == what
    hand.assert_replayed(run)


@pytest.mark.spec("PAUSE-3", "MOVE-8")
@pytest.mark.parametrize(("there", "resumed"), [(True, Status.PENDING), (False, Status.WAITING)])
def test_a_tasks_park_into_a_pause_looks_first_as_well(hand, there, resumed):
    """Paused either way; it resumes to waiting, or to pending when something had come."""
    claim = hand.begun("A")
    if there:
        hand.emit("parcel")
    hand.pause(claim.id)
    assert hand.park(claim, waits()).answer == "paused"
    hand.assert_replayed(claim.id)
    assert hand.resume(claim.id).status is resumed
    assert (_wake(hand, claim.id) is not None) == there
    hand.assert_replayed(claim.id)


@pytest.mark.spec("PLAN-1", "PLAN-5", "MOVE-2")
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("wait", [hear("W"), nap("W", 10.0)])
def test_a_plans_wait_opens_when_it_is_its_turn_and_the_next_step_follows(hand, wait, first):
    """No worker executes it: opened with the commit before it, settled without anyone at it."""
    if first:
        run = hand.plan(wait, "B")
    else:
        claim = hand.begun("A", wait, "B")
        run = claim.id
        assert hand.advance(claim, "A", in_place=True).status is Status.WAITING
    seen = hand.get(run)
    assert (seen.status, seen.leased_by, seen.attempt) == (Status.WAITING, None, 0)
    assert [open_wait.key for open_wait in seen.waiting_on] == ["W"]
    told = hand.last(run, "waiting")
    assert (told["step"], told["kind"], told["status"]) == ("W", wait.kind, "waiting")
    hand.assert_replayed(run)
    hand.clock.turn(10)
    if wait.kind is StepKind.SLEEP:
        assert hand.tick().lapsed == 1
    else:
        assert hand.emit("parcel", "7").woken == 1
    assert (hand.status(run), hand.get(run).run_at) == (Status.PENDING, moment(hand.clock.now))
    assert hand.shape(run)[-2:] == [("W", "succeeded"), ("B", "ready")]
    output = decode(hand.step(run, "W").output)
    assert output is None if wait.kind is StepKind.SLEEP else output["payload"] == 7
    hand.assert_replayed(run)
    assert hand.advance(hand.take(run), "B").status is Status.SUCCEEDED
    assert [step.seq for step in hand.steps(run)] == list(range(2 if first else 3))


@pytest.mark.spec("MOVE-8", "PLAN-5", "EVENT-4")
@pytest.mark.parametrize("in_place", [True, False])
def test_waits_that_can_be_settled_at_once_hold_nobody_up(hand, in_place):
    """An event that is there, a time that has come: the step behind them is current in the same commit."""
    claim = hand.begun("A", hear("first"), nap("S", 0.0), hear("second"), "B")
    for payload in ("1", "2"):
        hand.emit("parcel", payload)
    verdict = hand.advance(claim, "A", in_place=in_place)
    assert verdict.status is (Status.LEASED if in_place else Status.PENDING)
    assert [step.key for step in verdict.settled] == (["B"] if in_place else [])
    assert [status for _, status in hand.shape(claim.id)[:4]] == ["succeeded"] * 4
    assert [decode(hand.step(claim.id, key).output)["payload"] for key in ("first", "second")] == [1, 2]
    hand.assert_replayed(claim.id)


@pytest.mark.spec("PLAN-5", "MOVE-5")
def test_a_plan_may_end_with_a_wait(hand):
    """Its end is the end of the run, in the commit that settles it."""
    claim = hand.begun("A", hear("W"))
    hand.advance(claim, "A")
    hand.emit("parcel")
    assert (hand.status(claim.id), hand.told(claim.id)[-1]) == (Status.SUCCEEDED, "succeeded")
    assert hand.get(claim.id).finished_at == moment(hand.clock.now)
    hand.assert_replayed(claim.id)


@pytest.mark.spec("START-3", "MOVE-5")
@pytest.mark.parametrize("paused", [False, True])
def test_a_plan_that_is_due_later_is_so_also_when_its_first_wait_is_over(hand, paused):
    """What the start said of its time holds for the first task."""
    run_at = moment(hand.clock.now + 60_000_000)
    run = hand.plan(hear("W"), "B", delay_seconds=60.0)
    if paused:
        hand.pause(run)
    hand.emit("parcel")
    if paused:
        hand.resume(run)
    assert (hand.status(run), hand.get(run).run_at, hand.claim()) == (Status.PENDING, run_at, [])
    hand.assert_replayed(run)
    hand.clock.turn(60)
    assert hand.take(run).id == run


@pytest.mark.spec("EVENT-5", "REW-2", "PLAN-9")
@pytest.mark.parametrize("paused", [False, True])
def test_an_awaited_event_that_does_not_come_fails_the_plan(hand, paused):
    """Kind timeout; later steps stay pending; retried, it waits anew."""
    run = hand.plan(hear("W", seconds=10.0), "B")
    if paused:
        hand.pause(run)
    hand.clock.turn(10)
    assert hand.tick().lapsed == 1
    hand.assert_replayed(run)
    if paused:
        assert (hand.status(run), hand.resume(run).status) == (Status.PAUSED, Status.FAILED)
    assert (hand.status(run), hand.get(run).error.kind) == (Status.FAILED, "timeout")
    assert hand.shape(run) == [("W", "failed"), ("B", "pending")]
    assert decode(hand.step(run, "W").error)["kind"] == "timeout"
    assert hand.told(run)[-1] == "failed"
    hand.assert_replayed(run)
    hand.clock.turn(5)
    assert hand.retry_run(run).status is Status.WAITING
    assert hand.step(run, "W").due_at == hand.clock.now + 10_000_000
    hand.assert_replayed(run)
    hand.emit("parcel")
    assert hand.shape(run) == [("W", "succeeded"), ("B", "ready")]


@pytest.mark.spec("PLAN-7")
def test_a_keeper_may_leave_the_deadlines_of_plans_alone(hand):
    """Those of tasks and awaited events; gates and sleeps, and code, it keeps."""
    waiting = _waiting(hand, delay_seconds=10.0).id
    plans = {"shop.e.v1": hear("W", "t", 10.0), "shop.s.v1": nap("W", 10.0), "shop.g.v1": gate("W", 10.0)}
    for plan, step in plans.items():
        hand.publish(step, type=plan)
    heard, slept, asked = map(hand.start, plans)
    code = hand.take(hand.start("shop.code.v1"), types=("shop.code.v1",))
    hand.park(code, listen("w", "t", delay_seconds=10.0))
    hand.clock.turn(10)
    assert hand.tick(wait_timeouts=False).lapsed == 3
    assert [hand.status(run).value for run in (waiting, heard, slept, asked, code.id)] == [
        "waiting", "waiting", "succeeded", "failed", "pending",
    ]  # fmt: skip
    assert hand.due(wait_timeouts=False).chore_at is None
    assert hand.due().chore_at <= hand.clock.now
    assert hand.tick(wait_timeouts=False).total == 0
    assert hand.tick().lapsed == 2


@pytest.mark.spec("REW-1", "EVENT-4")
def test_a_rewound_plan_may_take_its_events_again(hand):
    """Those that only forgotten steps had taken, tasks and awaited ones alike; the counts of waits too."""
    claim = hand.begun("A", hear("W"), "B")
    hand.emit("parcel", "1")
    hand.emit("parcel", "2")
    hand.park(claim, waits())
    hand.advance(claim, "A")
    assert decode(hand.step(claim.id, "W").output)["payload"] == 2
    hand.rewind(claim.id, "A")
    step = hand.step(claim.id, "A")
    assert (step.waits, step.wake, step.topic, step.due_at) == (0, None, None, None)
    assert hand.step(claim.id, "W").output is None
    hand.assert_replayed(claim.id)
    claim = hand.take(claim.id)
    hand.advance(claim, done("A"), in_place=True)
    assert decode(hand.step(claim.id, "W").output)["payload"] == 1
