"""pause, resume, cancel, rewind, retry_run: verbs of people, and how a worker learns of them."""

from __future__ import annotations

import pytest

from holdfast.errors import IllegalMove, UnknownRun, UnknownStep
from holdfast.lifecycle import Status, StepStatus
from holdfast.records import ANY, moment

from .driver import backing_off, broken, done, listen, sleep

VERBS = ("cancel", "pause", "resume", "retry_run")


@pytest.mark.parametrize("verb", [*VERBS, "rewind"])
def test_an_unknown_or_foreign_run_is_refused_alike(driver, verb):
    """A run of another tenant is answered exactly like a missing one."""
    run = driver.start()
    more = ("first",) if verb == "rewind" else ()
    before = driver.snapshot(run)
    for asked, tenant in ((driver.id(), ANY), (run, "acme")):
        with pytest.raises(UnknownRun, match=str(asked)):
            getattr(driver, verb)(asked, *more, tenant=tenant)
    assert driver.snapshot(run) == before
    assert driver.get(run, tenant="acme") is None
    with pytest.raises(UnknownRun):
        driver.steps(run, tenant="acme")


@pytest.mark.spec("PAUSE-1", "TRAIL-1")
def test_a_pending_and_a_waiting_run_are_paused_at_once(driver):
    """They are not claimed while paused; resumed, they have their former status."""
    waiting = driver.held()
    driver.park(waiting, listen(), known=0)
    later = driver.start(delay_seconds=60.0)
    run_at = driver.get(later).run_at
    for run in (waiting.id, later):
        assert driver.pause(run, by="ann").status is Status.PAUSED
        assert driver.last(run, "paused") == {"by": "ann"}
    driver.clock.turn(100)
    assert driver.claim() == []
    assert driver.resume(waiting.id, by="bob").status is Status.WAITING
    assert driver.last(waiting.id, "resumed") == {"by": "bob", "status": "waiting"}
    resumed = driver.resume(later)
    assert (resumed.status, resumed.run_at) == (Status.PENDING, run_at)
    for run in (waiting.id, later):
        driver.assert_replayed(run)


@pytest.mark.spec("PAUSE-1", "PAUSE-3")
def test_a_leased_run_is_paused_at_its_next_boundary_with_the_steps_result_kept(driver):
    """The finished step's result is kept and committed with the pause."""
    claim = driver.held()
    driver.pause(claim.id, by="ann")
    asked = driver.pause(claim.id, by="bob")
    assert (asked.status, asked.pause_asked_by) == (Status.LEASED, "ann")
    assert driver.told(claim.id) == ["created", "leased"]
    assert driver.renew(claim).held[0].pause_asked is True
    verdict = driver.checkpoint(claim, done("a", "7"))
    assert (verdict.answer, verdict.status) == ("paused", Status.PAUSED)
    assert driver.step(claim.id, "a").output == "7"
    seen = driver.get(claim.id)
    assert (seen.status, seen.leased_by, seen.attempt) == (Status.PAUSED, None, 0)
    assert driver.told(claim.id)[2:] == ["step_succeeded", "paused"]
    assert driver.last(claim.id, "paused") == {"by": "ann"}
    assert driver.checkpoint(claim, done("b")).answer == "lost"
    assert driver.resume(claim.id).status is Status.PENDING
    assert driver.take(claim.id).attempt == 1
    driver.assert_replayed(claim.id)


@pytest.mark.spec("PAUSE-3")
@pytest.mark.parametrize(
    ("leaving", "told", "resumed"),
    [
        ("park", ["waiting", "paused"], Status.WAITING),
        ("retry", ["retried", "paused"], Status.PENDING),
        ("retry in place", ["retried", "paused"], Status.PENDING),
        ("release", ["released", "paused"], Status.PENDING),
        ("expire", ["lease_expired", "paused"], Status.PENDING),
    ],
)
def test_a_pause_asked_of_a_leased_run_is_kept_however_the_run_is_left(driver, leaving, told, resumed):
    """Park, retry, release and expiry then end in paused."""
    claim = driver.held()
    driver.pause(claim.id, by="ann")
    match leaving:
        case "park":
            assert driver.park(claim, known=0).answer == "paused"
        case "retry":
            assert driver.retry(claim).answer == "paused"
        case "retry in place":
            assert driver.retry(claim, in_place=True, delay=0.5).answer == "paused"
        case "release":
            assert driver.release(claim).answer == "paused"
        case "expire":
            driver.clock.turn(31)
            assert driver.tick().expired == 1
    seen = driver.get(claim.id)
    assert (seen.status, seen.leased_by, seen.lease_until) == (Status.PAUSED, None, None)
    assert driver.told(claim.id, 2) == told
    driver.assert_replayed(claim.id)
    assert driver.resume(claim.id).status is resumed
    driver.assert_replayed(claim.id)


@pytest.mark.spec("PAUSE-3")
def test_complete_and_fail_win_over_a_pause(driver):
    """An ended run needs no pause."""
    for end, status in ((driver.complete, Status.SUCCEEDED), (driver.fail, Status.FAILED)):
        claim = driver.held()
        driver.pause(claim.id)
        verdict = end(claim)
        assert (verdict.answer, verdict.status) == ("applied", status)
        assert "paused" not in driver.told(claim.id)
        assert driver.get(claim.id).pause_asked_by is None


@pytest.mark.spec("PAUSE-2", "PAUSE-3")
def test_resume_before_the_boundary_withdraws_the_pause(driver):
    """The trail says who withdrew it; a resume without a pause is refused."""
    claim = driver.held()
    driver.pause(claim.id)
    assert driver.resume(claim.id, by="ann").pause_asked_by is None
    assert driver.last(claim.id, "resumed") == {"by": "ann", "status": "leased"}
    assert driver.checkpoint(claim).answer == "applied"
    assert "paused" not in driver.told(claim.id)
    driver.assert_replayed(claim.id)
    with pytest.raises(IllegalMove) as refusal:
        driver.resume(claim.id)
    assert refusal.value.status is Status.LEASED


@pytest.mark.spec("PAUSE-3")
def test_a_pause_of_a_paused_run_changes_nothing(driver):
    """The call succeeds."""
    run = driver.start()
    driver.pause(run, by="ann")
    before = driver.snapshot(run)
    assert driver.pause(run, by="bob").status is Status.PAUSED
    assert driver.snapshot(run) == before


@pytest.mark.spec("PAUSE-2", "PAUSE-4")
def test_timers_go_on_while_paused(driver):
    """A timer that came due takes effect at resume: pending since its time, the earliest first."""
    claim = driver.held()
    driver.park(claim, sleep("late", 20.0), sleep("soon", 10.0), known=0)
    driver.pause(claim.id)
    driver.clock.turn(30)
    assert driver.tick().lapsed == 2
    assert driver.status(claim.id) is Status.PAUSED
    assert "status" not in driver.last(claim.id, "woken")
    came_at = moment(driver.clock.now)
    driver.clock.turn(5)
    resumed = driver.resume(claim.id)
    assert (resumed.status, resumed.run_at) == (Status.PENDING, came_at)
    assert [step.key for step in driver.take(claim.id).steps] == ["soon", "late"]
    driver.assert_replayed(claim.id)


@pytest.mark.spec("PAUSE-4", "MOVE-8")
def test_a_park_into_a_pause_that_finds_something_resumes_to_pending(driver):
    """It resumes to waiting, or to pending when a wait was settled."""
    claim = driver.held()
    driver.emit("parcel")
    driver.clock.turn(3)
    driver.pause(claim.id)
    assert driver.park(claim, known=0).answer == "paused"
    assert driver.step(claim.id, "wait").status is StepStatus.SUCCEEDED
    resumed = driver.resume(claim.id)
    assert (resumed.status, resumed.run_at) == (Status.PENDING, moment(driver.clock.now))


@pytest.mark.spec("CANC-1")
@pytest.mark.parametrize("status", ["pending", "leased", "waiting", "paused"])
def test_cancel_ends_an_open_run_in_one_commit(driver, status):
    """Run and open steps are cancelled, waits are gone, fence + 1; finished steps keep their results."""
    claim = driver.held(ttl_seconds=9.0)
    driver.checkpoint(claim, done("a", "1"), broken("b"), sleep("nap"))
    match status:
        case "pending":
            driver.retry(claim, backing_off("c"), refund=True)
        case "waiting":
            driver.park(claim, listen(), known=3)
        case "paused":
            driver.release(claim)
            driver.pause(claim.id)
    fence = driver.get(claim.id).fence
    seen = driver.cancel(claim.id, by="ann")
    assert (seen.status, seen.fence, seen.waiting_on) == (Status.CANCELLED, fence + 1, ())
    assert (seen.leased_by, seen.lease_until) == (None, None)
    assert seen.finished_at == moment(driver.clock.now)
    assert seen.expires_at == moment(driver.clock.now + 9_000_000)
    steps = {step.key: step.status for step in driver.steps(claim.id)}
    assert (steps.pop("a"), steps.pop("b")) == (StepStatus.SUCCEEDED, StepStatus.FAILED)
    assert set(steps.values()) == {StepStatus.CANCELLED}
    assert driver.step(claim.id, "a").output == "1"
    assert driver.last(claim.id, "cancelled") == {"by": "ann"}
    driver.clock.turn(1000)
    assert (driver.tick().total, driver.emit().woken, driver.claim()) == (0, 0, [])
    driver.assert_replayed(claim.id)


@pytest.mark.spec("CANC-2")
def test_whatever_the_worker_writes_after_a_cancel_changes_nothing(driver):
    """The worker learns of the cancel by renewal or at its next commit."""
    claim = driver.held()
    driver.cancel(claim.id)
    before = driver.snapshot(claim.id)
    assert driver.renew(claim).held[0].answer == "cancelled"
    for write in (driver.checkpoint, driver.park, driver.complete, driver.fail, driver.retry, driver.release):
        assert write(claim).answer == "cancelled"
    assert driver.snapshot(claim.id) == before


@pytest.mark.spec("CANC-3")
def test_cancel_again_is_success_and_changes_nothing(driver):
    """A cancel of a succeeded or failed run is refused with the true status."""
    run = driver.start()
    driver.cancel(run, by="ann")
    before = driver.snapshot(run)
    assert driver.cancel(run, by="bob") == before[0]
    assert driver.snapshot(run) == before
    claim = driver.held()
    driver.complete(claim)
    with pytest.raises(IllegalMove) as refusal:
        driver.cancel(claim.id)
    assert refusal.value.status is Status.SUCCEEDED


@pytest.mark.spec("REW-1")
def test_rewind_forgets_that_step_and_all_later_ones(driver):
    """Earlier steps stay; the run is pending now, with new counts and timeout, no result, and its old
    cost.
    """
    claim = driver.held(timeout_seconds=100.0, ttl_seconds=9.0)
    driver.checkpoint(claim, done("a", cost=1))
    driver.checkpoint(claim, done("b", cost=2))
    driver.checkpoint(claim, done("c"))
    driver.complete(claim, listen("w"))
    driver.clock.turn(50)
    seen = driver.rewind(claim.id, "b", by="ann")
    assert (seen.status, seen.attempt, seen.crashes, seen.fence) == (Status.PENDING, 0, 0, claim.fence + 1)
    assert (seen.result_json, seen.finished_at, seen.expires_at, seen.cost_units) == (None, None, None, 3)
    assert (seen.run_at, seen.timeout_at) == (
        moment(driver.clock.now),
        moment(driver.clock.now + 100_000_000),
    )
    assert [step.key for step in driver.steps(claim.id)] == ["a"]
    told = driver.last(claim.id, "rewound")
    assert (told["step"], sorted(told["forgotten"]), told["by"]) == ("b", ["b", "c", "w"], "ann")
    assert told["status"] == "pending"
    assert [step.key for step in driver.take(claim.id).steps] == ["a"]
    driver.assert_replayed(claim.id)


@pytest.mark.spec("REW-1")
def test_later_means_by_the_order_in_which_outcomes_became_known(driver):
    """A wait that was opened first and settled last is later."""
    claim = driver.held()
    driver.checkpoint(claim, listen("w"), done("a"))
    driver.emit()
    driver.rewind(claim.id, "a")
    assert driver.steps(claim.id) == []


@pytest.mark.spec("REW-1", "MOVE-5")
@pytest.mark.parametrize("steps", [0, 2])
@pytest.mark.parametrize("status", ["pending", "cancelled", "failed", "paused"])
def test_rewind_to_no_step_begins_the_run_anew(driver, steps, status):
    """This holds also for a run that was cancelled before any step."""
    claim = driver.held()
    for n in range(steps):
        driver.checkpoint(claim, done(f"s{n}"))
    match status:
        case "failed":
            driver.fail(claim)
        case "cancelled":
            driver.cancel(claim.id)
        case _:
            driver.release(claim)
            if status == "paused":
                driver.pause(claim.id)
    seen = driver.rewind(claim.id, None, by="ann")
    assert (seen.status, seen.attempt, seen.error_json) == (
        Status.PAUSED if status == "paused" else Status.PENDING, 0, None,
    )  # fmt: skip
    assert driver.steps(claim.id) == []
    told = driver.last(claim.id, "rewound")
    assert (told["step"], len(told["forgotten"]), told["by"]) == (None, steps, "ann")
    driver.assert_replayed(claim.id)
    if status == "paused":
        driver.resume(claim.id)
    assert driver.complete(driver.take(claim.id)).status is Status.SUCCEEDED


@pytest.mark.spec("REW-1")
def test_rewind_fences_off_the_worker_and_withdraws_a_pause(driver):
    """A worker that holds the run is fenced off."""
    claim = driver.held()
    driver.checkpoint(claim)
    driver.pause(claim.id)
    seen = driver.rewind(claim.id, "first")
    assert (seen.status, seen.pause_asked_by, seen.leased_by) == (Status.PENDING, None, None)
    assert driver.checkpoint(claim, done("x")).answer == "lost"
    assert driver.renew(claim).held[0].answer == "lost"


@pytest.mark.spec("REW-1")
def test_a_paused_run_stays_paused_when_rewound(driver):
    """It resumes to pending, whatever it waited for before."""
    claim = driver.held()
    driver.park(claim, done("a"), sleep(), known=0)
    driver.pause(claim.id)
    assert driver.rewind(claim.id, "a").status is Status.PAUSED
    assert driver.last(claim.id, "rewound")["status"] == "paused"
    driver.assert_replayed(claim.id)
    assert driver.resume(claim.id).status is Status.PENDING
    driver.assert_replayed(claim.id)


@pytest.mark.spec("REW-1")
def test_rewind_to_a_step_that_is_not_there_names_those_that_are(driver):
    """The call is refused, and nothing changes."""
    claim = driver.held()
    driver.checkpoint(claim, done("alpha"), done("beta"))
    before = driver.snapshot(claim.id)
    with pytest.raises(UnknownStep, match=r"(?s)gamma.*alpha.*beta"):
        driver.rewind(claim.id, "gamma")
    assert driver.snapshot(claim.id) == before


@pytest.mark.spec("REW-2")
def test_retry_run_goes_on_at_the_failed_step_with_fresh_attempts(driver):
    """The step that the error names is forgotten; finished steps stay."""
    claim = driver.held(timeout_seconds=50.0)
    driver.checkpoint(claim, done("a"), broken("b"), done("c"), sleep("nap"))
    driver.fail(claim, step="b", kind="exhausted")
    driver.clock.turn(40)
    seen = driver.retry_run(claim.id, by="ann")
    assert (seen.status, seen.attempt, seen.crashes, seen.fence) == (Status.PENDING, 0, 0, claim.fence + 1)
    assert (seen.error_json, seen.last_error, seen.finished_at) == (None, None, None)
    assert (seen.run_at, seen.timeout_at) == (moment(driver.clock.now), moment(driver.clock.now + 50_000_000))
    assert [step.key for step in driver.steps(claim.id)] == ["a", "c"]
    told = driver.last(claim.id, "retried")
    assert (told["by"], told["status"], sorted(told["forgotten"])) == ("ann", "pending", ["b", "nap"])
    driver.assert_replayed(claim.id)


@pytest.mark.spec("REW-2")
def test_a_timed_out_wait_waits_anew_after_retry_run(driver):
    """The row is forgotten, so the next execution opens it again."""
    claim = driver.held()
    driver.park(claim, listen(delay_seconds=10.0), known=0)
    driver.clock.turn(10)
    driver.tick()
    claim = driver.take(claim.id)
    driver.fail(claim, step="wait", kind="timeout")
    driver.retry_run(claim.id)
    claim = driver.take(claim.id)
    assert claim.steps == ()
    assert driver.park(claim, listen(delay_seconds=10.0), known=0).status is Status.WAITING
    assert driver.get(claim.id).waiting_on[0].due_at == driver.clock.now + 10_000_000


@pytest.mark.spec("REW-2", "LEASE-6")
def test_a_run_that_failed_by_its_crashes_or_timeout_can_be_retried(driver):
    """Crashes and timeout count anew."""
    run = driver.start(timeout_seconds=5.0)
    driver.clock.turn(5)
    assert driver.tick().timed_out == 1
    assert driver.retry_run(run).timeout_at == moment(driver.clock.now + 5_000_000)
    assert driver.tick().total == 0
    driver.assert_replayed(run)
