"""Plans that do not simply go on: tried again, failed, paused, cancelled, rewound."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.errors import UnknownStep
from holdfast.lifecycle import Status, StepKind, StepStatus
from holdfast.records import MAX_CRASHES, StepWrite, moment

from .hand import backing_off, broken, done, error, gate, hear

NAMES = ("B", "A", "10", "9")


def _at(hand, name, *steps, **fields):
    """A plan at one of its steps: held, unless that is a gate."""
    steps = steps or NAMES
    claim = hand.begun(*steps, **fields)
    names = [step if isinstance(step, str) else step.name for step in steps]
    for before in names[: names.index(name)]:
        hand.advance(claim, done(before, f'"{before}"', cost=1), in_place=True)
    return claim


@pytest.mark.spec("PLAN-8", "PLAN-10", "RETRY-1")
def test_a_plans_step_is_tried_again_with_the_runs_attempt_and_error(hand):
    """The current step takes its live status, attempt and error from the run."""
    claim = _at(hand, "A")
    hand.retry(claim, delay=60.0)
    step = hand.step(claim.id, "A")
    assert (step.status, step.attempts, step.error) == (StepStatus.READY, 1, error())
    assert hand.get(claim.id).run_at == moment(hand.clock.now + 60_000_000)
    hand.assert_replayed(claim.id)
    hand.clock.turn(60)
    claim = hand.take(claim.id)
    assert claim.attempt == 2
    assert (hand.step(claim.id, "A").status, hand.step(claim.id, "A").attempts) == (StepStatus.RUNNING, 2)
    hand.advance(claim, done("A", attempts=2), in_place=True)
    assert (hand.step(claim.id, "A").attempts, hand.get(claim.id).attempt) == (2, 1)
    assert hand.step(claim.id, "10").attempts == 1
    hand.assert_replayed(claim.id)


@pytest.mark.spec("PLAN-6", "PLAN-8", "COST-1")
@pytest.mark.parametrize("in_place", [True, False])
def test_a_try_that_failed_keeps_its_cost_and_why_it_was_made(hand, in_place):
    claim = _at(hand, "A")
    hand.park(claim, StepWrite(key="A", status=StepStatus.WAITING, topic="parcel"))
    hand.emit("parcel", '"came"')
    claim = hand.take(claim.id)
    hand.retry(claim, backing_off("A", cost=7), delay=0.5, in_place=in_place)
    step, run = hand.step(claim.id, "A"), hand.get(claim.id)
    assert (step.status, step.cost, step.waits) == ("running" if in_place else "ready", 7, 1)
    assert '"came"' in step.wake
    assert run.cost_units == 1 + 7
    assert hand.last(claim.id, "retried")["step"] == "A"
    hand.assert_replayed(claim.id)
    if not in_place:
        hand.clock.turn(1)
        claim = hand.take(claim.id)
    assert hand.advance(claim, done("A", cost=2)).answer == "applied"
    assert (hand.step(claim.id, "A").cost, hand.get(claim.id).cost_units) == (9, 10)


@pytest.mark.spec("PLAN-9")
@pytest.mark.parametrize("brought", [True, False])
def test_a_dead_step_fails_its_run_and_later_ones_stay_pending(hand, brought):
    """One commit; told once, whether the holder brings the step's outcome or leaves it to the store."""
    claim = _at(hand, "A")
    steps = (broken("A", "fatal", attempts=3),) if brought else ()
    assert hand.fail(claim, *steps, kind="fatal", step="A").status is Status.FAILED
    assert hand.shape(claim.id) == [("B", "succeeded"), ("A", "failed"), ("10", "pending"), ("9", "pending")]
    assert msgspec.json.decode(hand.step(claim.id, "A").error)["kind"] == "fatal"
    assert hand.told(claim.id)[-2:] == ["step_failed", "failed"]
    assert hand.told(claim.id).count("step_failed") == 1
    assert hand.last(claim.id, "step_failed")["step"] == "A"
    hand.assert_replayed(claim.id)


@pytest.mark.spec("LEASE-6", "PLAN-9", "MOVE-5")
def test_the_crash_cap_fails_the_current_step(hand):
    """However a plan ends without success, its current step ends with it; later ones stay pending."""
    claim = _at(hand, "A")
    for _ in range(MAX_CRASHES):
        hand.clock.turn(4000)
        hand.tick()
        hand.clock.turn(4000)
        hand.claim()
    assert (hand.status(claim.id), hand.get(claim.id).error.kind) == (Status.FAILED, "lease_expired")
    assert hand.shape(claim.id)[1:3] == [("A", "failed"), ("10", "pending")]
    assert msgspec.json.decode(hand.step(claim.id, "A").error)["kind"] == "lease_expired"
    assert hand.told(claim.id)[-3:] == ["lease_expired", "step_failed", "failed"]
    hand.assert_replayed(claim.id)


@pytest.mark.spec("RETRY-9", "PLAN-9", "MOVE-5")
@pytest.mark.parametrize("status", ["pending", "leased", "waiting", "paused", "at a gate"])
def test_the_runs_timeout_fails_the_current_step(hand, status):
    """Whatever the run is at: a task in the queue or at work, a wait, a gate."""
    current = gate("A") if status == "at a gate" else "A"
    claim = _at(hand, "A", "B", current, "9", timeout_seconds=20.0)
    match status:
        case "pending":
            hand.release(claim)
        case "waiting":
            hand.park(claim, done("A", None, status=StepStatus.WAITING, topic="t"))
        case "paused":
            hand.release(claim)
            hand.pause(claim.id)
    hand.clock.turn(20)
    assert hand.tick().timed_out == 1
    assert (hand.status(claim.id), hand.get(claim.id).error.kind) == (Status.FAILED, "timeout")
    assert hand.shape(claim.id) == [("B", "succeeded"), ("A", "failed"), ("9", "pending")]
    assert hand.told(claim.id)[-3:] == ["timed_out", "step_failed", "failed"]
    assert hand.get(claim.id).waiting_on == ()
    assert hand.emit("t").woken == 0
    hand.assert_replayed(claim.id)


@pytest.mark.spec("CANC-1", "PLAN-9", "MOVE-5")
@pytest.mark.parametrize("current", ["A", gate("A")])
@pytest.mark.parametrize("later", ["9", gate("9"), hear("9")])
def test_a_cancelled_plan_cancels_its_current_step_and_all_later_ones(hand, current, later):
    """Finished ones keep their results."""
    claim = _at(hand, "A", "B", current, later, "10")
    assert hand.cancel(claim.id).waiting_on == ()
    assert hand.shape(claim.id) == [
        ("B", "succeeded"), ("A", "cancelled"), ("9", "cancelled"), ("10", "cancelled"),
    ]  # fmt: skip
    assert all(step.finished_at == hand.clock.now for step in hand.steps(claim.id)[1:])
    assert hand.step(claim.id, "B").output == '"B"'
    assert hand.advance(claim, "A").answer == "cancelled"
    assert (hand.emit("parcel").woken, hand.approvals()) == (0, [])
    hand.assert_replayed(claim.id)


@pytest.mark.spec("REW-1", "PLAN-9", "MOVE-5")
@pytest.mark.parametrize("current", ["A", gate("A")])
@pytest.mark.parametrize("to", ["A", "B", None])
def test_a_rewind_of_a_cancelled_plan_makes_its_later_steps_pending_again(hand, current, to):
    """Not only that step: the plan can be lived to its end."""
    claim = _at(hand, "A", "B", current, "9", "10")
    hand.cancel(claim.id)
    seen = hand.rewind(claim.id, to)
    assert seen.status is (Status.WAITING if to == "A" and current != "A" else Status.PENDING)
    behind = [("9", "pending"), ("10", "pending")]
    assert hand.shape(claim.id)[2:] == behind
    assert all(step.finished_at is None for step in hand.steps(claim.id)[2:])
    assert {"9", "10"} <= set(hand.last(claim.id, "rewound")["forgotten"])
    hand.assert_replayed(claim.id)
    if to != "A":
        claim = hand.take(claim.id)
        hand.advance(claim, "B", in_place=True)
    if current != "A":
        hand.approve(claim.id)
    names = ["9", "10"] if current != "A" else ["A", "9", "10"]
    if hand.status(claim.id) is Status.PENDING:
        claim = hand.take(claim.id)
    for name in names:
        verdict = hand.advance(claim, name, in_place=True)
    assert verdict.status is Status.SUCCEEDED
    hand.assert_replayed(claim.id)


@pytest.mark.spec("REW-1", "PLAN-9")
def test_a_plan_that_was_cancelled_is_not_rewound_to_a_step_that_had_not_begun(hand):
    claim = _at(hand, "A")
    hand.cancel(claim.id)
    before = hand.snapshot(claim.id)
    with pytest.raises(UnknownStep, match=r"it has: B, A$"):
        hand.rewind(claim.id, "10")
    assert hand.snapshot(claim.id) == before


@pytest.mark.spec("CANC-1", "PAUSE-2", "TRAIL-1")
@pytest.mark.parametrize("current", [gate("A", 5.0), hear("A", seconds=5.0)])
def test_a_step_that_failed_in_a_pause_stays_failed_when_its_run_is_cancelled(hand, current):
    """It has its outcome: cancelled is only what had none."""
    run = hand.plan(current, "9")
    hand.pause(run)
    if current.kind is StepKind.APPROVAL:
        hand.reject(run)
    else:
        hand.clock.turn(5)
        hand.tick()
    assert hand.cancel(run).status is Status.CANCELLED
    assert hand.shape(run) == [("A", "failed"), ("9", "cancelled")]
    hand.assert_replayed(run)


@pytest.mark.spec("PAUSE-1", "PAUSE-3")
@pytest.mark.parametrize(
    ("following", "resumed", "shown"),
    [("A", Status.PENDING, "ready"), (gate("A"), Status.WAITING, "waiting")],
)
@pytest.mark.parametrize("in_place", [True, False])
def test_a_pause_asked_of_a_plan_is_taken_when_its_step_succeeds(hand, following, resumed, shown, in_place):
    """The step's result is kept; what comes next is done at resume: until then no gate is open."""
    claim = hand.begun("B", following)
    hand.pause(claim.id, by="ann")
    verdict = hand.advance(claim, done("B", "7"), in_place=in_place)
    assert (verdict.answer, verdict.status) == ("paused", Status.PAUSED)
    assert hand.shape(claim.id) == [("B", "succeeded"), ("A", "pending")]
    assert hand.step(claim.id, "B").output == "7"
    assert (hand.approvals(), hand.claim()) == ([], [])
    assert hand.told(claim.id, 2) == ["step_succeeded", "paused"]
    hand.assert_replayed(claim.id)
    assert hand.resume(claim.id).status is resumed
    assert hand.step(claim.id, "A").status == shown
    hand.assert_replayed(claim.id)


@pytest.mark.spec("PAUSE-3")
def test_the_last_step_of_a_plan_wins_over_a_pause(hand):
    """An end needs no pause any more."""
    claim = hand.begun("B")
    hand.pause(claim.id)
    verdict = hand.advance(claim, "B")
    assert (verdict.answer, verdict.status) == ("applied", Status.SUCCEEDED)
    assert "paused" not in hand.told(claim.id)


@pytest.mark.spec("PAUSE-1", "PAUSE-2")
def test_a_paused_plan_goes_on_with_its_current_step(hand):
    """In the queue or asked for while leased: pending again with the time it had."""
    run = hand.plan("B", "A", delay_seconds=60.0)
    run_at = hand.get(run).run_at
    hand.pause(run)
    hand.assert_replayed(run)
    resumed = hand.resume(run)
    assert (resumed.status, resumed.run_at) == (Status.PENDING, run_at)
    assert hand.shape(run) == [("B", "ready"), ("A", "pending")]


@pytest.mark.spec("REW-1", "PLAN-3")
def test_a_plan_is_rewound_by_its_order_and_not_by_its_names(hand):
    """That row and all behind it are as they were at the start; what was spent stays in the cost."""
    claim = _at(hand, "9", timeout_seconds=100.0)
    hand.clock.turn(3)
    seen = hand.rewind(claim.id, "A", by="ann")
    assert (seen.status, seen.attempt, seen.crashes, seen.fence) == (Status.PENDING, 0, 0, claim.fence + 1)
    assert (seen.cost_units, seen.run_at) == (3, moment(hand.clock.now))
    assert hand.shape(claim.id) == [("B", "succeeded"), ("A", "ready"), ("10", "pending"), ("9", "pending")]
    assert [(step.seq, step.output) for step in hand.steps(claim.id)] == [
        (0, '"B"'), (1, None), (2, None), (3, None),
    ]  # fmt: skip
    assert [step.finished_at is None for step in hand.steps(claim.id)] == [False, True, True, True]
    told = hand.last(claim.id, "rewound")
    assert (told["step"], told["status"], told["by"]) == ("A", "pending", "ann")
    assert {"A", "10"} <= set(told["forgotten"])
    assert hand.advance(claim, "9").answer == "lost"
    hand.assert_replayed(claim.id)
    claim = hand.take(claim.id)
    for name in NAMES[1:]:
        verdict = hand.advance(claim, done(name, cost=1), in_place=True)
    assert (verdict.status, hand.get(claim.id).cost_units) == (Status.SUCCEEDED, 6)


@pytest.mark.spec("REW-1")
@pytest.mark.parametrize("status", ["leased", "waiting", "failed", "succeeded", "cancelled"])
def test_a_plan_may_be_rewound_wherever_it_is(hand, status):
    """Its first step is current again, and the plan is lived once more."""
    claim = _at(hand, "A", "B", "A")
    match status:
        case "waiting":
            hand.park(claim, done("A", None, status=StepStatus.WAITING, topic="t"))
        case "failed":
            hand.fail(claim)
        case "succeeded":
            hand.advance(claim, "A", result="1")
        case "cancelled":
            hand.cancel(claim.id)
    seen = hand.rewind(claim.id, "B")
    assert (seen.status, seen.result_json, seen.error_json) == (Status.PENDING, None, None)
    assert hand.shape(claim.id) == [("B", "ready"), ("A", "pending")]
    assert (hand.step(claim.id, "A").error, hand.emit("t").woken) == (None, 0)
    hand.assert_replayed(claim.id)
    claim = hand.take(claim.id)
    hand.advance(claim, "B", in_place=True)
    assert hand.advance(claim, "A").status is Status.SUCCEEDED


@pytest.mark.spec("REW-1")
@pytest.mark.parametrize("name", ["10", "9", "nowhere"])
def test_a_plan_is_not_rewound_to_a_step_that_has_not_begun(hand, name):
    """Refused, and nothing changes: that would skip what lies between."""
    claim = _at(hand, "A")
    before = hand.snapshot(claim.id)
    with pytest.raises(UnknownStep, match=r"(?s)B"):
        hand.rewind(claim.id, name)
    assert hand.snapshot(claim.id) == before


@pytest.mark.spec("REW-1")
def test_a_paused_plan_stays_paused_when_rewound(hand):
    """And goes on at that step when it is resumed."""
    claim = _at(hand, "A")
    hand.release(claim)
    hand.pause(claim.id)
    assert hand.rewind(claim.id, "B").status is Status.PAUSED
    hand.assert_replayed(claim.id)
    assert hand.resume(claim.id).status is Status.PENDING
    assert hand.shape(claim.id)[:2] == [("B", "ready"), ("A", "pending")]


@pytest.mark.spec("REW-2")
@pytest.mark.parametrize("how", ["dead", "timed out"])
def test_a_failed_plan_goes_on_at_the_step_that_failed(hand, how):
    """With fresh attempts; earlier results stay; also when its error names no step."""
    claim = _at(hand, "A", timeout_seconds=100.0)
    if how == "dead":
        hand.fail(claim, broken("A"), step="A", kind="exhausted")
    else:
        hand.clock.turn(100)
        hand.tick()
    seen = hand.retry_run(claim.id, by="ann")
    assert (seen.status, seen.attempt, seen.error_json) == (Status.PENDING, 0, None)
    assert hand.shape(claim.id) == [("B", "succeeded"), ("A", "ready"), ("10", "pending"), ("9", "pending")]
    assert (hand.step(claim.id, "A").error, hand.step(claim.id, "B").output) == (None, '"B"')
    hand.assert_replayed(claim.id)
    claim = hand.take(claim.id)
    assert claim.attempt == 1
    assert hand.advance(claim, "A", in_place=True).status is Status.LEASED
