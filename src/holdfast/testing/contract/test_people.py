"""pause, resume, cancel, rewind, retry_run: what people do, and what a worker learns of it."""

from __future__ import annotations

import pytest

from holdfast.errors import IllegalMove, UnknownRun, UnknownStep
from holdfast.lifecycle import Status, StepStatus
from holdfast.records import ANY, moment

from .hand import backing_off, broken, done, listen, sleep

VERBS = ("cancel", "pause", "resume", "retry_run")


@pytest.mark.parametrize("verb", [*VERBS, "rewind"])
def test_an_unknown_or_foreign_run_is_refused_alike(hand, verb):
    """A foreign run answers exactly as a missing one."""
    run = hand.start()
    more = ("first",) if verb == "rewind" else ()
    before = hand.snapshot(run)
    for asked, tenant in ((hand.id(), ANY), (run, "acme")):
        with pytest.raises(UnknownRun, match=str(asked)):
            getattr(hand, verb)(asked, *more, tenant=tenant)
    assert hand.snapshot(run) == before
    assert hand.get(run, tenant="acme") is None
    with pytest.raises(UnknownRun):
        hand.steps(run, tenant="acme")


@pytest.mark.spec("PAUSE-1", "TRAIL-1")
def test_a_pending_and_a_waiting_run_are_paused_at_once(hand):
    """And never claimed while they are; resumed, they are what they were."""
    waiting = hand.held()
    hand.park(waiting, listen(), known=0)
    later = hand.start(delay_seconds=60.0)
    run_at = hand.get(later).run_at
    for run in (waiting.id, later):
        assert hand.pause(run, by="ann").status is Status.PAUSED
        assert hand.last(run, "paused") == {"by": "ann"}
    hand.clock.turn(100)
    assert hand.claim() == []
    assert hand.resume(waiting.id, by="bob").status is Status.WAITING
    assert hand.last(waiting.id, "resumed") == {"by": "bob", "status": "waiting"}
    resumed = hand.resume(later)
    assert (resumed.status, resumed.run_at) == (Status.PENDING, run_at)
    for run in (waiting.id, later):
        hand.assert_replayed(run)


@pytest.mark.spec("PAUSE-1", "PAUSE-3")
def test_a_leased_run_is_paused_at_its_next_boundary_with_the_steps_result_kept(hand):
    """The finished step's result is kept and committed with the pause."""
    claim = hand.held()
    hand.pause(claim.id, by="ann")
    asked = hand.pause(claim.id, by="bob")
    assert (asked.status, asked.pause_asked_by) == (Status.LEASED, "ann")
    assert hand.told(claim.id) == ["created", "leased"]
    assert hand.renew(claim).held[0].pause_asked is True
    verdict = hand.checkpoint(claim, done("a", "7"))
    assert (verdict.answer, verdict.status) == ("paused", Status.PAUSED)
    assert hand.step(claim.id, "a").output == "7"
    seen = hand.get(claim.id)
    assert (seen.status, seen.leased_by, seen.attempt) == (Status.PAUSED, None, 0)
    assert hand.told(claim.id)[2:] == ["step_succeeded", "paused"]
    assert hand.last(claim.id, "paused") == {"by": "ann"}
    assert hand.checkpoint(claim, done("b")).answer == "lost"
    assert hand.resume(claim.id).status is Status.PENDING
    assert hand.take(claim.id).attempt == 1
    hand.assert_replayed(claim.id)


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
def test_a_pause_asked_of_a_leased_run_is_kept_however_the_run_is_left(hand, leaving, told, resumed):
    """Park, retry, release and expiry then end in paused."""
    claim = hand.held()
    hand.pause(claim.id, by="ann")
    match leaving:
        case "park":
            assert hand.park(claim, known=0).answer == "paused"
        case "retry":
            assert hand.retry(claim).answer == "paused"
        case "retry in place":
            assert hand.retry(claim, in_place=True, delay=0.5).answer == "paused"
        case "release":
            assert hand.release(claim).answer == "paused"
        case "expire":
            hand.clock.turn(31)
            assert hand.tick().expired == 1
    seen = hand.get(claim.id)
    assert (seen.status, seen.leased_by, seen.lease_until) == (Status.PAUSED, None, None)
    assert hand.told(claim.id, 2) == told
    hand.assert_replayed(claim.id)
    assert hand.resume(claim.id).status is resumed
    hand.assert_replayed(claim.id)


@pytest.mark.spec("PAUSE-3")
def test_complete_and_fail_win_over_a_pause(hand):
    """An end needs no pause any more."""
    for end, status in ((hand.complete, Status.SUCCEEDED), (hand.fail, Status.FAILED)):
        claim = hand.held()
        hand.pause(claim.id)
        verdict = end(claim)
        assert (verdict.answer, verdict.status) == ("applied", status)
        assert "paused" not in hand.told(claim.id)
        assert hand.get(claim.id).pause_asked_by is None


@pytest.mark.spec("PAUSE-2", "PAUSE-3")
def test_resume_before_the_boundary_withdraws_the_pause(hand):
    """And leaves no trace; without a pause asked it is refused."""
    claim = hand.held()
    hand.pause(claim.id)
    assert hand.resume(claim.id).pause_asked_by is None
    assert hand.checkpoint(claim).answer == "applied"
    assert not {"paused", "resumed"} & set(hand.told(claim.id))
    with pytest.raises(IllegalMove) as refusal:
        hand.resume(claim.id)
    assert refusal.value.status is Status.LEASED


@pytest.mark.spec("PAUSE-3")
def test_a_pause_of_a_paused_run_changes_nothing(hand):
    """Success, unchanged."""
    run = hand.start()
    hand.pause(run, by="ann")
    before = hand.snapshot(run)
    assert hand.pause(run, by="bob").status is Status.PAUSED
    assert hand.snapshot(run) == before


@pytest.mark.spec("PAUSE-2", "PAUSE-4")
def test_timers_go_on_while_paused(hand):
    """What came due is there right after resume: pending since it came, the earliest first."""
    claim = hand.held()
    hand.park(claim, sleep("late", 20.0), sleep("soon", 10.0), known=0)
    hand.pause(claim.id)
    hand.clock.turn(30)
    assert hand.tick().lapsed == 2
    assert hand.status(claim.id) is Status.PAUSED
    assert "status" not in hand.last(claim.id, "woken")
    came_at = moment(hand.clock.now)
    hand.clock.turn(5)
    resumed = hand.resume(claim.id)
    assert (resumed.status, resumed.run_at) == (Status.PENDING, came_at)
    assert [step.key for step in hand.take(claim.id).steps] == ["soon", "late"]
    hand.assert_replayed(claim.id)


@pytest.mark.spec("PAUSE-4", "MOVE-8")
def test_a_park_into_a_pause_that_finds_something_resumes_to_pending(hand):
    """Waiting, or pending when something was settled."""
    claim = hand.held()
    hand.emit("parcel")
    hand.clock.turn(3)
    hand.pause(claim.id)
    assert hand.park(claim, known=0).answer == "paused"
    assert hand.step(claim.id, "wait").status is StepStatus.SUCCEEDED
    resumed = hand.resume(claim.id)
    assert (resumed.status, resumed.run_at) == (Status.PENDING, moment(hand.clock.now))


@pytest.mark.spec("CANC-1")
@pytest.mark.parametrize("status", ["pending", "leased", "waiting", "paused"])
def test_cancel_ends_an_open_run_in_one_commit(hand, status):
    """Run and open steps cancelled, waits gone, fence + 1; finished steps keep their results."""
    claim = hand.held(ttl_seconds=9.0)
    hand.checkpoint(claim, done("a", "1"), broken("b"), sleep("nap"))
    match status:
        case "pending":
            hand.retry(claim, backing_off("c"), refund=True)
        case "waiting":
            hand.park(claim, listen(), known=3)
        case "paused":
            hand.release(claim)
            hand.pause(claim.id)
    fence = hand.get(claim.id).fence
    seen = hand.cancel(claim.id, by="ann")
    assert (seen.status, seen.fence, seen.waiting_on) == (Status.CANCELLED, fence + 1, ())
    assert (seen.leased_by, seen.lease_until) == (None, None)
    assert seen.finished_at == moment(hand.clock.now)
    assert seen.expires_at == moment(hand.clock.now + 9_000_000)
    steps = {step.key: step.status for step in hand.steps(claim.id)}
    assert (steps.pop("a"), steps.pop("b")) == (StepStatus.SUCCEEDED, StepStatus.FAILED)
    assert set(steps.values()) == {StepStatus.CANCELLED}
    assert hand.step(claim.id, "a").output == "1"
    assert hand.last(claim.id, "cancelled") == {"by": "ann"}
    hand.clock.turn(1000)
    assert (hand.tick().total, hand.emit().woken, hand.claim()) == (0, 0, [])
    hand.assert_replayed(claim.id)


@pytest.mark.spec("CANC-2")
def test_whatever_the_worker_writes_after_a_cancel_changes_nothing(hand):
    """It learns it by renewal or at its next commit."""
    claim = hand.held()
    hand.cancel(claim.id)
    before = hand.snapshot(claim.id)
    assert hand.renew(claim).held[0].answer == "cancelled"
    for write in (hand.checkpoint, hand.park, hand.complete, hand.fail, hand.retry, hand.release):
        assert write(claim).answer == "cancelled"
    assert hand.snapshot(claim.id) == before


@pytest.mark.spec("CANC-3")
def test_cancel_again_is_success_and_changes_nothing(hand):
    """Of a succeeded or failed run it is refused with the true status."""
    run = hand.start()
    hand.cancel(run, by="ann")
    before = hand.snapshot(run)
    assert hand.cancel(run, by="bob") == before[0]
    assert hand.snapshot(run) == before
    claim = hand.held()
    hand.complete(claim)
    with pytest.raises(IllegalMove) as refusal:
        hand.cancel(claim.id)
    assert refusal.value.status is Status.SUCCEEDED


@pytest.mark.spec("REW-1")
def test_rewind_forgets_that_step_and_all_later_ones(hand):
    """Earlier ones stay; pending now, counts anew, result cleared, timeout counted anew, cost kept."""
    claim = hand.held(timeout_seconds=100.0, ttl_seconds=9.0)
    hand.checkpoint(claim, done("a", cost=1))
    hand.checkpoint(claim, done("b", cost=2))
    hand.checkpoint(claim, done("c"))
    hand.complete(claim, listen("w"))
    hand.clock.turn(50)
    seen = hand.rewind(claim.id, "b", by="ann")
    assert (seen.status, seen.attempt, seen.crashes, seen.fence) == (Status.PENDING, 0, 0, claim.fence + 1)
    assert (seen.result_json, seen.finished_at, seen.expires_at, seen.cost_units) == (None, None, None, 3)
    assert (seen.run_at, seen.timeout_at) == (moment(hand.clock.now), moment(hand.clock.now + 100_000_000))
    assert [step.key for step in hand.steps(claim.id)] == ["a"]
    told = hand.last(claim.id, "rewound")
    assert (told["step"], sorted(told["forgotten"]), told["by"]) == ("b", ["b", "c", "w"], "ann")
    assert told["status"] == "pending"
    assert [step.key for step in hand.take(claim.id).steps] == ["a"]
    hand.assert_replayed(claim.id)


@pytest.mark.spec("REW-1")
def test_later_means_by_the_order_in_which_outcomes_became_known(hand):
    """A wait that was opened first and settled last is later."""
    claim = hand.held()
    hand.checkpoint(claim, listen("w"), done("a"))
    hand.emit()
    hand.rewind(claim.id, "a")
    assert hand.steps(claim.id) == []


@pytest.mark.spec("REW-1", "MOVE-5")
@pytest.mark.parametrize("steps", [0, 2])
@pytest.mark.parametrize("status", ["pending", "cancelled", "failed", "paused"])
def test_rewind_to_no_step_begins_the_run_anew(hand, steps, status):
    """Also one that was cancelled before any step, which has none to go back to."""
    claim = hand.held()
    for n in range(steps):
        hand.checkpoint(claim, done(f"s{n}"))
    match status:
        case "failed":
            hand.fail(claim)
        case "cancelled":
            hand.cancel(claim.id)
        case _:
            hand.release(claim)
            if status == "paused":
                hand.pause(claim.id)
    seen = hand.rewind(claim.id, None, by="ann")
    assert (seen.status, seen.attempt, seen.error_json) == (
        Status.PAUSED if status == "paused" else Status.PENDING, 0, None,
    )  # fmt: skip
    assert hand.steps(claim.id) == []
    told = hand.last(claim.id, "rewound")
    assert (told["step"], len(told["forgotten"]), told["by"]) == (None, steps, "ann")
    hand.assert_replayed(claim.id)
    if status == "paused":
        hand.resume(claim.id)
    assert hand.complete(hand.take(claim.id)).status is Status.SUCCEEDED


@pytest.mark.spec("REW-1")
def test_rewind_fences_off_the_worker_and_withdraws_a_pause(hand):
    """A worker still at it is fenced off."""
    claim = hand.held()
    hand.checkpoint(claim)
    hand.pause(claim.id)
    seen = hand.rewind(claim.id, "first")
    assert (seen.status, seen.pause_asked_by, seen.leased_by) == (Status.PENDING, None, None)
    assert hand.checkpoint(claim, done("x")).answer == "lost"
    assert hand.renew(claim).held[0].answer == "lost"


@pytest.mark.spec("REW-1")
def test_a_paused_run_stays_paused_when_rewound(hand):
    """And resumes to pending, whatever it waited for before."""
    claim = hand.held()
    hand.park(claim, done("a"), sleep(), known=0)
    hand.pause(claim.id)
    assert hand.rewind(claim.id, "a").status is Status.PAUSED
    assert hand.last(claim.id, "rewound")["status"] == "paused"
    hand.assert_replayed(claim.id)
    assert hand.resume(claim.id).status is Status.PENDING
    hand.assert_replayed(claim.id)


@pytest.mark.spec("REW-1")
def test_rewind_to_a_step_that_is_not_there_names_those_that_are(hand):
    """Unknown step: refused, nothing changed."""
    claim = hand.held()
    hand.checkpoint(claim, done("alpha"), done("beta"))
    before = hand.snapshot(claim.id)
    with pytest.raises(UnknownStep, match=r"(?s)gamma.*alpha.*beta"):
        hand.rewind(claim.id, "gamma")
    assert hand.snapshot(claim.id) == before


@pytest.mark.spec("REW-2")
def test_retry_run_goes_on_at_the_failed_step_with_fresh_attempts(hand):
    """The step that the error names is forgotten; the finished ones stay."""
    claim = hand.held(timeout_seconds=50.0)
    hand.checkpoint(claim, done("a"), broken("b"), done("c"), sleep("nap"))
    hand.fail(claim, step="b", kind="exhausted")
    hand.clock.turn(40)
    seen = hand.retry_run(claim.id, by="ann")
    assert (seen.status, seen.attempt, seen.crashes, seen.fence) == (Status.PENDING, 0, 0, claim.fence + 1)
    assert (seen.error_json, seen.last_error, seen.finished_at) == (None, None, None)
    assert (seen.run_at, seen.timeout_at) == (moment(hand.clock.now), moment(hand.clock.now + 50_000_000))
    assert [step.key for step in hand.steps(claim.id)] == ["a", "c"]
    told = hand.last(claim.id, "retried")
    assert (told["by"], told["status"], sorted(told["forgotten"])) == ("ann", "pending", ["b", "nap"])
    hand.assert_replayed(claim.id)


@pytest.mark.spec("REW-2")
def test_a_timed_out_wait_waits_anew_after_retry_run(hand):
    """Its row is forgotten, so the next execution opens it again."""
    claim = hand.held()
    hand.park(claim, listen(delay_seconds=10.0), known=0)
    hand.clock.turn(10)
    hand.tick()
    claim = hand.take(claim.id)
    hand.fail(claim, step="wait", kind="timeout")
    hand.retry_run(claim.id)
    claim = hand.take(claim.id)
    assert claim.steps == ()
    assert hand.park(claim, listen(delay_seconds=10.0), known=0).status is Status.WAITING
    assert hand.get(claim.id).waiting_on[0].due_at == hand.clock.now + 10_000_000


@pytest.mark.spec("REW-2", "LEASE-6")
def test_a_run_that_failed_by_its_crashes_or_timeout_can_be_retried(hand):
    """The crash cap and the timeout count anew."""
    run = hand.start(timeout_seconds=5.0)
    hand.clock.turn(5)
    assert hand.tick().timed_out == 1
    assert hand.retry_run(run).timeout_at == moment(hand.clock.now + 5_000_000)
    assert hand.tick().total == 0
    hand.assert_replayed(run)
