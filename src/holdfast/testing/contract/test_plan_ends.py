"""Plans that are retried, failed, paused, cancelled or rewound."""

from __future__ import annotations

import pytest

from holdfast.errors import UnknownStep
from holdfast.lifecycle import Status, StepKind, StepStatus
from holdfast.records import MAX_CRASHES, StepWrite, moment

from .driver import backing_off, broken, done, error, gate, hear

NAMES = ("B", "A", "10", "9")


def _at(driver, name, *steps, **fields):
    """Return a plan at one of its steps: leased, unless the step is a gate."""
    steps = steps or NAMES
    claim = driver.begun(*steps, **fields)
    names = [step if isinstance(step, str) else step.name for step in steps]
    for before in names[: names.index(name)]:
        driver.advance(claim, done(before, f'"{before}"', cost=1), in_place=True)
    return claim


@pytest.mark.spec("PLAN-8", "PLAN-10", "RETRY-1")
def test_a_plans_step_is_retried_with_the_runs_attempt_and_error(driver):
    """The current step shows status, attempt and error of the run."""
    claim = _at(driver, "A")
    driver.retry(claim, delay=60.0)
    step = driver.step(claim.id, "A")
    assert (step.status, step.attempts, step.error_json) == (StepStatus.READY, 1, error())
    assert driver.get(claim.id).run_at == moment(driver.clock.now + 60_000_000)
    driver.assert_replayed(claim.id)
    driver.clock.turn(60)
    claim = driver.take(claim.id)
    assert claim.attempt == 2
    assert (driver.step(claim.id, "A").status, driver.step(claim.id, "A").attempts) == (StepStatus.RUNNING, 2)
    driver.advance(claim, done("A", attempts=2), in_place=True)
    assert (driver.step(claim.id, "A").attempts, driver.get(claim.id).attempt) == (2, 1)
    assert driver.step(claim.id, "10").attempts == 1
    driver.assert_replayed(claim.id)


@pytest.mark.spec("PLAN-6", "PLAN-8", "COST-1")
@pytest.mark.parametrize("in_place", [True, False])
def test_a_try_that_failed_keeps_its_cost_and_why_it_was_made(driver, in_place):
    claim = _at(driver, "A")
    driver.park(claim, StepWrite(key="A", status=StepStatus.WAITING, topic="parcel"))
    driver.emit("parcel", '"came"')
    claim = driver.take(claim.id)
    driver.retry(claim, backing_off("A", cost=7), delay=0.5, in_place=in_place)
    step, run = driver.step(claim.id, "A"), driver.get(claim.id)
    assert (step.status, step.cost, step.waits) == ("running" if in_place else "ready", 7, 1)
    assert '"came"' in step.wake
    assert run.cost_units == 1 + 7
    assert driver.last(claim.id, "retried")["step"] == "A"
    driver.assert_replayed(claim.id)
    if not in_place:
        driver.clock.turn(1)
        claim = driver.take(claim.id)
    assert driver.advance(claim, done("A", cost=2)).answer == "applied"
    assert (driver.step(claim.id, "A").cost, driver.get(claim.id).cost_units) == (9, 10)


@pytest.mark.spec("PLAN-9")
@pytest.mark.parametrize("brought", [True, False])
def test_a_failed_step_fails_its_run_and_later_ones_stay_pending(driver, brought):
    """It is one commit and one trail row, whether or not the item has the step's outcome."""
    claim = _at(driver, "A")
    steps = (broken("A", "fatal", attempts=3),) if brought else ()
    assert driver.fail(claim, *steps, kind="fatal", step="A").status is Status.FAILED
    assert driver.shape(claim.id) == [
        ("B", "succeeded"),
        ("A", "failed"),
        ("10", "pending"),
        ("9", "pending"),
    ]
    assert driver.step(claim.id, "A").error.kind == "fatal"
    assert driver.told(claim.id)[-2:] == ["step_failed", "failed"]
    assert driver.told(claim.id).count("step_failed") == 1
    assert driver.last(claim.id, "step_failed")["step"] == "A"
    driver.assert_replayed(claim.id)


@pytest.mark.spec("LEASE-6", "PLAN-9", "MOVE-5")
def test_the_crash_cap_fails_the_current_step(driver):
    """A plan that ends without success ends its current step; later steps stay pending."""
    claim = _at(driver, "A")
    for _ in range(MAX_CRASHES):
        driver.clock.turn(4000)
        driver.tick()
        driver.clock.turn(4000)
        driver.claim()
    assert (driver.status(claim.id), driver.get(claim.id).error.kind) == (Status.FAILED, "lease_expired")
    assert driver.shape(claim.id)[1:3] == [("A", "failed"), ("10", "pending")]
    assert driver.step(claim.id, "A").error.kind == "lease_expired"
    assert driver.told(claim.id)[-3:] == ["lease_expired", "step_failed", "failed"]
    driver.assert_replayed(claim.id)


@pytest.mark.spec("RETRY-9", "PLAN-9", "MOVE-5")
@pytest.mark.parametrize("status", ["pending", "leased", "waiting", "paused", "at a gate"])
def test_the_runs_timeout_fails_the_current_step(driver, status):
    """The step may be a task in the queue or leased, a wait, or a gate."""
    current = gate("A") if status == "at a gate" else "A"
    claim = _at(driver, "A", "B", current, "9", timeout_seconds=20.0)
    match status:
        case "pending":
            driver.release(claim)
        case "waiting":
            driver.park(claim, done("A", None, status=StepStatus.WAITING, topic="t"))
        case "paused":
            driver.release(claim)
            driver.pause(claim.id)
    driver.clock.turn(20)
    assert driver.tick().timed_out == 1
    assert (driver.status(claim.id), driver.get(claim.id).error.kind) == (Status.FAILED, "timeout")
    assert driver.shape(claim.id) == [("B", "succeeded"), ("A", "failed"), ("9", "pending")]
    assert driver.told(claim.id)[-3:] == ["timed_out", "step_failed", "failed"]
    assert driver.get(claim.id).waiting_on == ()
    assert driver.emit("t").woken == 0
    driver.assert_replayed(claim.id)


@pytest.mark.spec("CANC-1", "PLAN-9", "MOVE-5")
@pytest.mark.parametrize("current", ["A", gate("A")])
@pytest.mark.parametrize("later", ["9", gate("9"), hear("9")])
def test_a_cancelled_plan_cancels_its_current_step_and_all_later_ones(driver, current, later):
    """Finished steps keep their results."""
    claim = _at(driver, "A", "B", current, later, "10")
    assert driver.cancel(claim.id).waiting_on == ()
    assert driver.shape(claim.id) == [
        ("B", "succeeded"), ("A", "cancelled"), ("9", "cancelled"), ("10", "cancelled"),
    ]  # fmt: skip
    assert all(step.finished_at == driver.clock.now for step in driver.steps(claim.id)[1:])
    assert driver.step(claim.id, "B").output == '"B"'
    assert driver.advance(claim, "A").answer == "cancelled"
    assert (driver.emit("parcel").woken, driver.approvals()) == (0, [])
    driver.assert_replayed(claim.id)


@pytest.mark.spec("REW-1", "PLAN-9", "MOVE-5")
@pytest.mark.parametrize("current", ["A", gate("A")])
@pytest.mark.parametrize("to", ["A", "B", None])
def test_a_rewind_of_a_cancelled_plan_makes_its_later_steps_pending_again(driver, current, to):
    """All later steps are pending: the plan can run to its end."""
    claim = _at(driver, "A", "B", current, "9", "10")
    driver.cancel(claim.id)
    seen = driver.rewind(claim.id, to)
    assert seen.status is (Status.WAITING if to == "A" and current != "A" else Status.PENDING)
    behind = [("9", "pending"), ("10", "pending")]
    assert driver.shape(claim.id)[2:] == behind
    assert all(step.finished_at is None for step in driver.steps(claim.id)[2:])
    assert {"9", "10"} <= set(driver.last(claim.id, "rewound")["forgotten"])
    driver.assert_replayed(claim.id)
    if to != "A":
        claim = driver.take(claim.id)
        driver.advance(claim, "B", in_place=True)
    if current != "A":
        driver.approve(claim.id)
    names = ["9", "10"] if current != "A" else ["A", "9", "10"]
    if driver.status(claim.id) is Status.PENDING:
        claim = driver.take(claim.id)
    for name in names:
        verdict = driver.advance(claim, name, in_place=True)
    assert verdict.status is Status.SUCCEEDED
    driver.assert_replayed(claim.id)


@pytest.mark.spec("REW-1", "PLAN-9")
def test_a_plan_that_was_cancelled_is_not_rewound_to_a_step_that_had_not_begun(driver):
    claim = _at(driver, "A")
    driver.cancel(claim.id)
    before = driver.snapshot(claim.id)
    with pytest.raises(UnknownStep, match=r"it has: B, A$"):
        driver.rewind(claim.id, "10")
    assert driver.snapshot(claim.id) == before


@pytest.mark.spec("CANC-1", "PAUSE-2", "TRAIL-1")
@pytest.mark.parametrize("current", [gate("A", 5.0), hear("A", seconds=5.0)])
def test_a_step_that_failed_in_a_pause_stays_failed_when_its_run_is_cancelled(driver, current):
    """Only steps without an outcome are cancelled."""
    run = driver.plan(current, "9")
    driver.pause(run)
    if current.kind is StepKind.APPROVAL:
        driver.reject(run)
    else:
        driver.clock.turn(5)
        driver.tick()
    assert driver.cancel(run).status is Status.CANCELLED
    assert driver.shape(run) == [("A", "failed"), ("9", "cancelled")]
    driver.assert_replayed(run)


@pytest.mark.spec("PAUSE-1", "PAUSE-3")
@pytest.mark.parametrize(
    ("following", "resumed", "shown"),
    [("A", Status.PENDING, "ready"), (gate("A"), Status.WAITING, "waiting")],
)
@pytest.mark.parametrize("in_place", [True, False])
def test_a_pause_asked_of_a_plan_is_taken_when_its_step_succeeds(driver, following, resumed, shown, in_place):
    """The step's result is kept; the next step begins at resume: until then no gate is open."""
    claim = driver.begun("B", following)
    driver.pause(claim.id, by="ann")
    verdict = driver.advance(claim, done("B", "7"), in_place=in_place)
    assert (verdict.answer, verdict.status) == ("paused", Status.PAUSED)
    assert driver.shape(claim.id) == [("B", "succeeded"), ("A", "pending")]
    assert driver.step(claim.id, "B").output == "7"
    assert (driver.approvals(), driver.claim()) == ([], [])
    assert driver.told(claim.id, 2) == ["step_succeeded", "paused"]
    driver.assert_replayed(claim.id)
    assert driver.resume(claim.id).status is resumed
    assert driver.step(claim.id, "A").status == shown
    driver.assert_replayed(claim.id)


@pytest.mark.spec("PAUSE-3")
def test_the_last_step_of_a_plan_wins_over_a_pause(driver):
    """An ended run needs no pause."""
    claim = driver.begun("B")
    driver.pause(claim.id)
    verdict = driver.advance(claim, "B")
    assert (verdict.answer, verdict.status) == ("applied", Status.SUCCEEDED)
    assert "paused" not in driver.told(claim.id)


@pytest.mark.spec("PAUSE-1", "PAUSE-2")
def test_a_paused_plan_goes_on_with_its_current_step(driver):
    """It is pending again with its former time."""
    run = driver.plan("B", "A", delay_seconds=60.0)
    run_at = driver.get(run).run_at
    driver.pause(run)
    driver.assert_replayed(run)
    resumed = driver.resume(run)
    assert (resumed.status, resumed.run_at) == (Status.PENDING, run_at)
    assert driver.shape(run) == [("B", "ready"), ("A", "pending")]


@pytest.mark.spec("REW-1", "PLAN-3")
def test_a_plan_is_rewound_by_its_order_and_not_by_its_names(driver):
    """That row and all later ones are as at the start; the cost stays."""
    claim = _at(driver, "9", timeout_seconds=100.0)
    driver.clock.turn(3)
    seen = driver.rewind(claim.id, "A", by="ann")
    assert (seen.status, seen.attempt, seen.crashes, seen.fence) == (Status.PENDING, 0, 0, claim.fence + 1)
    assert (seen.cost_units, seen.run_at) == (3, moment(driver.clock.now))
    assert driver.shape(claim.id) == [("B", "succeeded"), ("A", "ready"), ("10", "pending"), ("9", "pending")]
    assert [(step.seq, step.output) for step in driver.steps(claim.id)] == [
        (0, '"B"'), (1, None), (2, None), (3, None),
    ]  # fmt: skip
    assert [step.finished_at is None for step in driver.steps(claim.id)] == [False, True, True, True]
    told = driver.last(claim.id, "rewound")
    assert (told["step"], told["status"], told["by"]) == ("A", "pending", "ann")
    assert {"A", "10"} <= set(told["forgotten"])
    assert driver.advance(claim, "9").answer == "lost"
    driver.assert_replayed(claim.id)
    claim = driver.take(claim.id)
    for name in NAMES[1:]:
        verdict = driver.advance(claim, done(name, cost=1), in_place=True)
    assert (verdict.status, driver.get(claim.id).cost_units) == (Status.SUCCEEDED, 6)


@pytest.mark.spec("REW-1")
@pytest.mark.parametrize("status", ["leased", "waiting", "failed", "succeeded", "cancelled"])
def test_a_plan_may_be_rewound_wherever_it_is(driver, status):
    """Its first step is current again, and the plan runs once more."""
    claim = _at(driver, "A", "B", "A")
    match status:
        case "waiting":
            driver.park(claim, done("A", None, status=StepStatus.WAITING, topic="t"))
        case "failed":
            driver.fail(claim)
        case "succeeded":
            driver.advance(claim, "A", result="1")
        case "cancelled":
            driver.cancel(claim.id)
    seen = driver.rewind(claim.id, "B")
    assert (seen.status, seen.result_json, seen.error_json) == (Status.PENDING, None, None)
    assert driver.shape(claim.id) == [("B", "ready"), ("A", "pending")]
    assert (driver.step(claim.id, "A").error, driver.emit("t").woken) == (None, 0)
    driver.assert_replayed(claim.id)
    claim = driver.take(claim.id)
    driver.advance(claim, "B", in_place=True)
    assert driver.advance(claim, "A").status is Status.SUCCEEDED


@pytest.mark.spec("REW-1")
@pytest.mark.parametrize("name", ["10", "9", "nowhere"])
def test_a_plan_is_not_rewound_to_a_step_that_has_not_begun(driver, name):
    """The call is refused and nothing changes: it would skip the steps between."""
    claim = _at(driver, "A")
    before = driver.snapshot(claim.id)
    with pytest.raises(UnknownStep, match=r"(?s)B"):
        driver.rewind(claim.id, name)
    assert driver.snapshot(claim.id) == before


@pytest.mark.spec("REW-1")
def test_a_paused_plan_stays_paused_when_rewound(driver):
    """It goes on at that step when it is resumed."""
    claim = _at(driver, "A")
    driver.release(claim)
    driver.pause(claim.id)
    assert driver.rewind(claim.id, "B").status is Status.PAUSED
    driver.assert_replayed(claim.id)
    assert driver.resume(claim.id).status is Status.PENDING
    assert driver.shape(claim.id)[:2] == [("B", "ready"), ("A", "pending")]


@pytest.mark.spec("REW-2")
@pytest.mark.parametrize("how", ["dead", "timed out"])
def test_a_failed_plan_goes_on_at_the_step_that_failed(driver, how):
    """It has fresh attempts and its earlier results, also when its error names no step."""
    claim = _at(driver, "A", timeout_seconds=100.0)
    if how == "dead":
        driver.fail(claim, broken("A"), step="A", kind="exhausted")
    else:
        driver.clock.turn(100)
        driver.tick()
    seen = driver.retry_run(claim.id, by="ann")
    assert (seen.status, seen.attempt, seen.error_json) == (Status.PENDING, 0, None)
    assert driver.shape(claim.id) == [("B", "succeeded"), ("A", "ready"), ("10", "pending"), ("9", "pending")]
    assert (driver.step(claim.id, "A").error, driver.step(claim.id, "B").output) == (None, '"B"')
    driver.assert_replayed(claim.id)
    claim = driver.take(claim.id)
    assert claim.attempt == 1
    assert driver.advance(claim, "A", in_place=True).status is Status.LEASED
