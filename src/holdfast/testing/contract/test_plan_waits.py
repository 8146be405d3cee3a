"""Waits of plans: tasks that wait and are called again, events, sleeps."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.lifecycle import Move, Status, StepKind, StepStatus
from holdfast.records import StepWrite, moment

from .driver import done, gate, hear, listen, nap

decode = msgspec.json.decode


def waits(key="A", topic="parcel", **fields):
    """Return the step of a task whose handler waits."""
    return StepWrite(key=key, status=StepStatus.WAITING, topic=topic, **fields)


def _waiting(driver, *following, **fields):
    claim = driver.begun("A", *following)
    driver.park(claim, waits(**fields))
    return claim


def _wake(driver, run, key="A"):
    wake = driver.step(run, key).wake
    return None if wake is None else decode(wake)


@pytest.mark.spec("PLAN-6", "MOVE-7")
def test_a_task_that_waits_holds_nothing_and_says_what_for(driver):
    """The row waits, the lease is cleared, the attempt is refunded, and the wait is counted on the row."""
    claim = driver.begun("A", "B")
    verdict = driver.park(claim, waits(delay_seconds=60.0))
    assert (verdict.answer, verdict.status, verdict.settled) == ("applied", Status.WAITING, ())
    seen = driver.get(claim.id)
    assert (seen.status, seen.leased_by, seen.attempt) == (Status.WAITING, None, 0)
    (wait,) = seen.waiting_on
    assert (wait.key, wait.kind, wait.topic, wait.waits) == ("A", StepKind.TASK, "parcel", 1)
    assert wait.due_at == driver.clock.now + 60_000_000
    assert driver.shape(claim.id) == [("A", "waiting"), ("B", "pending")]
    assert driver.last(claim.id, "waiting") == {"step": "A", "kind": "task", "status": "waiting"}
    assert driver.run(driver.store.waiting_on("parcel", "default")) == [claim.id]
    driver.assert_replayed(claim.id)


@pytest.mark.spec("PLAN-6", "EVENT-3")
def test_an_event_calls_the_same_step_again_and_tells_why(driver):
    """The run is pending at once, with fresh counts; the claim has the event in the row."""
    run = _waiting(driver, "B").id
    driver.clock.turn(5)
    assert driver.emit("parcel", '{"n":1}', id="e").woken == 1
    seen = driver.get(run)
    assert (seen.status, seen.run_at, seen.attempt) == (Status.PENDING, moment(driver.clock.now), 0)
    came = {"id": "e", "topic": "parcel", "at": driver.clock.now, "payload": {"n": 1}}
    assert _wake(driver, run) == {"reason": "event", "event": came}
    assert driver.shape(run) == [("A", "ready"), ("B", "pending")]
    told = driver.last(run, "woken")
    assert (told["step"], told["event"], told["status"]) == ("A", "e", "pending")
    driver.assert_replayed(run)
    claim = driver.take(run)
    assert (decode(claim.steps[0].wake)["reason"], claim.steps[0].seq) == ("event", 0)
    driver.advance(claim, "A", in_place=True)
    assert driver.shape(run) == [("A", "succeeded"), ("B", "running")]
    driver.assert_replayed(run)


@pytest.mark.spec("PLAN-6", "MOVE-8")
def test_a_park_of_a_task_that_finds_its_event_stays_leased(driver):
    """No event is lost between the question and the park; the attempt is refunded only by leaving."""
    claim = driver.begun("A", "B")
    driver.emit("parcel", "7", id="e")
    verdict = driver.park(claim, waits())
    assert (verdict.answer, verdict.status) == ("applied", Status.LEASED)
    (row,) = verdict.settled
    assert (row.key, row.status, row.waits) == ("A", StepStatus.PENDING, 1)
    assert decode(row.wake)["event"]["payload"] == 7
    assert (driver.get(claim.id).attempt, driver.get(claim.id).waiting_on) == (1, ())
    assert driver.told(claim.id)[-2:] == ["waiting", "woken"]
    assert driver.shape(claim.id)[0] == ("A", "running")
    driver.assert_replayed(claim.id)
    assert driver.advance(claim, "A", in_place=True).status is Status.LEASED


@pytest.mark.spec("PLAN-6", "EVENT-5")
@pytest.mark.parametrize("topic", ["parcel", None])
def test_a_deadline_calls_the_step_again_and_tells_why(driver, topic):
    """With a topic or without one, the step does not fail: its handler decides."""
    run = _waiting(driver, topic=topic, delay_seconds=10.0).id
    driver.clock.turn(9.999999)
    assert driver.tick().total == 0
    driver.clock.turn(0.000001)
    assert driver.tick().lapsed == 1
    assert (driver.status(run), _wake(driver, run)) == (Status.PENDING, {"reason": "timeout"})
    assert driver.shape(run) == [("A", "ready")]
    told = driver.last(run, "timed_out")
    assert (told["step"], told["status"]) == ("A", "pending")
    assert driver.emit("parcel").woken == 0
    driver.assert_replayed(run)


@pytest.mark.spec("PLAN-6", "EVENT-5")
def test_an_event_after_a_tasks_deadline_is_too_late(driver):
    """An event after the deadline is too late, though no keeper has noticed."""
    run = _waiting(driver, delay_seconds=10.0).id
    driver.clock.turn(10.000001)
    assert driver.emit("parcel").woken == 0
    assert _wake(driver, run) == {"reason": "timeout"}
    driver.assert_replayed(run)


@pytest.mark.spec("PLAN-6")
def test_the_reason_of_a_call_stays_over_crashes_and_retries(driver):
    """It stays until the step succeeds, fails or waits again: a crash must not lose the event."""
    run = _waiting(driver).id
    driver.emit("parcel", "7")
    why = _wake(driver, run)
    driver.take(run)
    driver.clock.turn(31)
    driver.tick()
    assert _wake(driver, run) == why
    claim = driver.take(run)
    driver.retry(claim, delay=1.0)
    driver.clock.turn(1)
    claim = driver.take(run)
    assert decode(claim.steps[0].wake) == why
    driver.retry(claim, delay=0.1, in_place=True)
    driver.release(claim)
    claim = driver.take(run)
    assert decode(claim.steps[0].wake) == why
    driver.park(claim, waits(delay_seconds=5.0))
    assert _wake(driver, run) is None
    driver.assert_replayed(run)


@pytest.mark.spec("PLAN-6", "EVENT-4")
def test_a_step_that_waits_again_is_not_given_the_same_event(driver):
    """It gets each event once, oldest first; the waits are counted."""
    run = _waiting(driver).id
    for payload in ("1", "2"):
        driver.emit("parcel", payload)
    claim = driver.take(run)
    assert decode(claim.steps[0].wake)["event"]["payload"] == 1
    assert driver.park(claim, waits()).status is Status.LEASED
    assert _wake(driver, run)["event"]["payload"] == 2
    assert driver.park(claim, waits()).status is Status.WAITING
    assert driver.step(run, "A").waits == 3
    driver.assert_replayed(run)


@pytest.mark.spec("PLAN-6", "LEASE-14")
@pytest.mark.parametrize("there", [True, False])
def test_a_tasks_wait_sent_again_changes_nothing(driver, there):
    """It is not counted twice, and gets no second event."""
    claim = driver.begun("A")
    for number in (1, 2) if there else ():
        driver.emit("parcel", str(number))
    item = driver.item(claim, Move.PARK, waits())
    first = driver.send(item)
    before = driver.snapshot(claim.id)
    assert driver.send(item) == first
    assert driver.snapshot(claim.id) == before


@pytest.mark.spec("PLAN-6", "PLAN-3")
def test_only_the_current_task_may_wait(driver):
    """An item for any other step of the plan is lost, and nothing changes."""
    claim = driver.begun("A", "B")
    before = driver.snapshot(claim.id)
    for key in ("B", "nowhere"):
        assert driver.park(claim, waits(key)).answer == "lost"
    assert driver.snapshot(claim.id) == before


@pytest.mark.spec("PAUSE-2", "PAUSE-4", "EVENT-9")
@pytest.mark.parametrize("what", ["event", "timeout"])
def test_an_event_for_a_paused_plans_task_is_there_at_resume(driver, what):
    """It is recorded when it comes; the run goes on when it is resumed."""
    run = _waiting(driver, delay_seconds=10.0).id
    driver.pause(run)
    if what == "event":
        assert driver.emit("parcel").woken == 0
    else:
        driver.clock.turn(10)
        assert driver.tick().lapsed == 1
    assert (driver.status(run), driver.claim()) == (Status.PAUSED, [])
    driver.assert_replayed(run)
    assert driver.resume(run).status is Status.PENDING
    assert decode(driver.take(run).steps[0].wake)["reason"] == what
    driver.assert_replayed(run)


@pytest.mark.spec("PAUSE-3", "MOVE-8")
@pytest.mark.parametrize(("there", "resumed"), [(True, Status.PENDING), (False, Status.WAITING)])
def test_a_tasks_park_into_a_pause_looks_first_as_well(driver, there, resumed):
    """The run is paused either way; it resumes to waiting, or to pending when an event had come."""
    claim = driver.begun("A")
    if there:
        driver.emit("parcel")
    driver.pause(claim.id)
    assert driver.park(claim, waits()).answer == "paused"
    driver.assert_replayed(claim.id)
    assert driver.resume(claim.id).status is resumed
    assert (_wake(driver, claim.id) is not None) == there
    driver.assert_replayed(claim.id)


@pytest.mark.spec("PLAN-1", "PLAN-5", "MOVE-2")
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("wait", [hear("W"), nap("W", 10.0)])
def test_a_plans_wait_opens_when_it_is_its_turn_and_the_next_step_follows(driver, wait, first):
    """No worker executes it: the commit before it opens it, and it is settled without a worker."""
    if first:
        run = driver.plan(wait, "B")
    else:
        claim = driver.begun("A", wait, "B")
        run = claim.id
        assert driver.advance(claim, "A", in_place=True).status is Status.WAITING
    seen = driver.get(run)
    assert (seen.status, seen.leased_by, seen.attempt) == (Status.WAITING, None, 0)
    assert [open_wait.key for open_wait in seen.waiting_on] == ["W"]
    told = driver.last(run, "waiting")
    assert (told["step"], told["kind"], told["status"]) == ("W", wait.kind, "waiting")
    driver.assert_replayed(run)
    driver.clock.turn(10)
    if wait.kind is StepKind.SLEEP:
        assert driver.tick().lapsed == 1
    else:
        assert driver.emit("parcel", "7").woken == 1
    assert (driver.status(run), driver.get(run).run_at) == (Status.PENDING, moment(driver.clock.now))
    assert driver.shape(run)[-2:] == [("W", "succeeded"), ("B", "ready")]
    output = decode(driver.step(run, "W").output)
    assert output is None if wait.kind is StepKind.SLEEP else output["payload"] == 7
    driver.assert_replayed(run)
    assert driver.advance(driver.take(run), "B").status is Status.SUCCEEDED
    assert [step.seq for step in driver.steps(run)] == list(range(2 if first else 3))


@pytest.mark.spec("MOVE-8", "PLAN-5", "EVENT-4")
@pytest.mark.parametrize("in_place", [True, False])
def test_waits_that_can_be_settled_at_once_hold_nobody_up(driver, in_place):
    """An event or a time that is there already makes the next step current in the same commit."""
    claim = driver.begun("A", hear("first"), nap("S", 0.0), hear("second"), "B")
    for payload in ("1", "2"):
        driver.emit("parcel", payload)
    verdict = driver.advance(claim, "A", in_place=in_place)
    assert verdict.status is (Status.LEASED if in_place else Status.PENDING)
    assert [step.key for step in verdict.settled] == (["B"] if in_place else [])
    assert [status for _, status in driver.shape(claim.id)[:4]] == ["succeeded"] * 4
    assert [decode(driver.step(claim.id, key).output)["payload"] for key in ("first", "second")] == [1, 2]
    driver.assert_replayed(claim.id)


@pytest.mark.spec("PLAN-5", "MOVE-5")
def test_a_plan_may_end_with_a_wait(driver):
    """The commit that settles the wait ends the run."""
    claim = driver.begun("A", hear("W"))
    driver.advance(claim, "A")
    driver.emit("parcel")
    assert (driver.status(claim.id), driver.told(claim.id)[-1]) == (Status.SUCCEEDED, "succeeded")
    assert driver.get(claim.id).finished_at == moment(driver.clock.now)
    driver.assert_replayed(claim.id)


@pytest.mark.spec("START-3", "MOVE-5")
@pytest.mark.parametrize("paused", [False, True])
def test_the_end_of_its_first_wait_does_not_make_a_delayed_plan_due(driver, paused):
    """The time of the start holds for the first task."""
    run_at = moment(driver.clock.now + 60_000_000)
    run = driver.plan(hear("W"), "B", delay_seconds=60.0)
    if paused:
        driver.pause(run)
    driver.emit("parcel")
    if paused:
        driver.resume(run)
    assert (driver.status(run), driver.get(run).run_at, driver.claim()) == (Status.PENDING, run_at, [])
    driver.assert_replayed(run)
    driver.clock.turn(60)
    assert driver.take(run).id == run


@pytest.mark.spec("EVENT-5", "REW-2", "PLAN-9")
@pytest.mark.parametrize("paused", [False, True])
def test_an_awaited_event_that_does_not_come_fails_the_plan(driver, paused):
    """The kind is timeout; later steps stay pending; a retry waits anew."""
    run = driver.plan(hear("W", seconds=10.0), "B")
    if paused:
        driver.pause(run)
    driver.clock.turn(10)
    assert driver.tick().lapsed == 1
    driver.assert_replayed(run)
    if paused:
        assert (driver.status(run), driver.resume(run).status) == (Status.PAUSED, Status.FAILED)
    assert (driver.status(run), driver.get(run).error.kind) == (Status.FAILED, "timeout")
    assert driver.shape(run) == [("W", "failed"), ("B", "pending")]
    assert driver.step(run, "W").error.kind == "timeout"
    assert driver.told(run)[-1] == "failed"
    driver.assert_replayed(run)
    driver.clock.turn(5)
    assert driver.retry_run(run).status is Status.WAITING
    assert driver.step(run, "W").due_at == driver.clock.now + 10_000_000
    driver.assert_replayed(run)
    driver.emit("parcel")
    assert driver.shape(run) == [("W", "succeeded"), ("B", "ready")]


@pytest.mark.spec("PLAN-7")
def test_a_keeper_may_leave_the_deadlines_of_plans_alone(driver):
    """It leaves out those of tasks and events, and settles gates, sleeps and code."""
    waiting = _waiting(driver, delay_seconds=10.0).id
    plans = {"shop.e.v1": hear("W", "t", 10.0), "shop.s.v1": nap("W", 10.0), "shop.g.v1": gate("W", 10.0)}
    for plan, step in plans.items():
        driver.publish(step, type=plan)
    heard, slept, asked = map(driver.start, plans)
    code = driver.take(driver.start("shop.code.v1"), types=("shop.code.v1",))
    driver.park(code, listen("w", "t", delay_seconds=10.0))
    driver.clock.turn(10)
    assert driver.tick(wait_timeouts=False).lapsed == 3
    assert [driver.status(run).value for run in (waiting, heard, slept, asked, code.id)] == [
        "waiting", "waiting", "succeeded", "failed", "pending",
    ]  # fmt: skip
    assert driver.due(wait_timeouts=False).chore_at is None
    assert driver.due().chore_at <= driver.clock.now
    assert driver.tick(wait_timeouts=False).total == 0
    assert driver.tick().lapsed == 2


@pytest.mark.spec("REW-1", "EVENT-4")
def test_a_rewound_plan_may_take_its_events_again(driver):
    """This holds for events that only forgotten steps had taken; their counts of waits begin anew."""
    claim = driver.begun("A", hear("W"), "B")
    driver.emit("parcel", "1")
    driver.emit("parcel", "2")
    driver.park(claim, waits())
    driver.advance(claim, "A")
    assert decode(driver.step(claim.id, "W").output)["payload"] == 2
    driver.rewind(claim.id, "A")
    step = driver.step(claim.id, "A")
    assert (step.waits, step.wake, step.topic, step.due_at) == (0, None, None, None)
    assert driver.step(claim.id, "W").output is None
    driver.assert_replayed(claim.id)
    claim = driver.take(claim.id)
    driver.advance(claim, done("A"), in_place=True)
    assert decode(driver.step(claim.id, "W").output)["payload"] == 1
