"""commit: the effects of a holder's moves on the run, its steps and its trail."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.errors import HoldfastError, UsageError
from holdfast.lifecycle import Move, Status, StepKind, StepStatus
from holdfast.records import Answer, NewRun, StepWrite, TrailWrite, moment

from .driver import TYPE, backing_off, broken, done, error, listen, sleep


@pytest.mark.spec("MOVE-2", "TRAIL-1")
def test_a_checkpoint_records_its_steps_and_nothing_else_of_the_run(driver):
    """The run stays leased; each outcome is a step row and a trail row."""
    claim = driver.held()
    verdict = driver.checkpoint(claim, done("a", '{"x":1}', started_at=7), broken("b", attempts=3))
    assert (verdict.answer, verdict.status, verdict.kept, verdict.settled) == ("applied", "leased", (), ())
    a, b = driver.steps(claim.id)
    assert (a.seq, a.key, a.kind, a.status, a.output) == (1, "a", StepKind.TASK, "succeeded", '{"x":1}')
    assert (a.attempts, a.fence, a.started_at, a.finished_at) == (1, claim.fence, 7, driver.clock.now)
    assert (b.seq, b.status, b.attempts, b.error_json) == (2, StepStatus.FAILED, 3, error())
    assert driver.told(claim.id) == ["created", "leased", "step_succeeded", "step_failed"]
    assert driver.last(claim.id, "step_succeeded") == {"step": "a"}
    assert driver.last(claim.id, "step_failed")["step"] == "b"
    assert driver.last(claim.id, "step_failed")["error"]["kind"] == "boom"
    assert driver.get(claim.id).cursor == "b"
    driver.assert_replayed(claim.id)


@pytest.mark.spec("LEASE-14")
def test_a_recorded_step_keeps_its_first_value(driver):
    """A checkpoint of a recorded key changes nothing and returns the first value."""
    claim = driver.held()
    driver.checkpoint(claim, done("a", "1", cost=5))
    told = driver.told(claim.id)
    verdict = driver.checkpoint(claim, done("a", "2", cost=7), done("b", "3"))
    assert verdict.kept == (("a", "1"),)
    assert [(step.key, step.output) for step in driver.steps(claim.id)] == [("a", "1"), ("b", "3")]
    assert driver.told(claim.id, len(told)) == ["step_succeeded"]
    assert driver.get(claim.id).cost_units == 5


@pytest.mark.spec("LEASE-4")
def test_a_checkpoint_from_before_a_wait_is_lost_after_it(driver):
    """Only the fence differs between the two holders: neither has crashed, and both have attempt 1."""
    before, other = driver.held(), driver.held()
    driver.park(before, sleep(seconds=5))
    driver.clock.turn(5)
    driver.tick()
    after = driver.take()
    assert (after.id, after.attempt, after.crashes) == (before.id, 1, 0)
    assert driver.checkpoint(before, done("late")).answer == "lost"
    late, good = (
        driver.item(before, Move.CHECKPOINT, done("late")),
        driver.item(other, Move.CHECKPOINT, done("a")),
    )
    assert [verdict.answer for verdict in driver.send(late, good)] == ["lost", "applied"]
    assert "late" not in [step.key for step in driver.steps(before.id)]


def test_a_failed_step_keeps_its_failure(driver):
    """A step without attempts left is recorded as failed for good."""
    claim = driver.held()
    driver.checkpoint(claim, broken("a"))
    assert driver.checkpoint(claim, done("a", "2")).kept == (("a", None),)
    assert driver.step(claim.id, "a").status is StepStatus.FAILED


@pytest.mark.spec("COST-1")
def test_costs_add_up_and_a_zombie_adds_nothing(driver):
    """The run's cost is the sum of its steps; a late or repeated execution adds nothing."""
    zombie = driver.held()
    driver.checkpoint(zombie, done("a", cost=100))
    driver.retry(zombie, backing_off("b", cost=20), refund=True, in_place=True)
    driver.clock.turn(31)
    driver.tick()
    claim = driver.take(zombie.id)
    assert driver.checkpoint(zombie, done("c", cost=1000)).answer == "lost"
    driver.checkpoint(claim, done("a", cost=3000), done("b", cost=4))
    assert (driver.get(claim.id).cost_units, driver.get(claim.id).cost) == (124, 0.000124)
    assert [step.cost for step in driver.steps(claim.id)] == [100, 24]


@pytest.mark.spec("RETRY-1")
def test_a_step_that_backs_off_takes_its_outcome_later_and_the_next_seq(driver):
    """A `ready` row takes its outcome later, with the next number."""
    claim = driver.held()
    verdict = driver.retry(claim, backing_off("a", due_at=9), in_place=True, refund=True, delay=0.5)
    assert (verdict.answer, verdict.status) == ("applied", Status.LEASED)
    ready = driver.step(claim.id, "a")
    assert (ready.status, ready.seq, ready.due_at) == (StepStatus.READY, 1, 9)
    assert driver.get(claim.id).attempt == 1
    driver.assert_replayed(claim.id)
    driver.checkpoint(claim, done("b"))
    driver.checkpoint(claim, done("a", "5", attempts=2))
    assert [(s.key, s.seq, s.status, s.attempts) for s in driver.steps(claim.id)] == [
        ("b", 2, "succeeded", 1), ("a", 3, "succeeded", 2),
    ]  # fmt: skip
    assert driver.last(claim.id, "retried")["step"] == "a"
    driver.assert_replayed(claim.id)


@pytest.mark.spec("MOVE-2")
def test_complete_ends_the_run_and_its_open_steps(driver):
    """The run has result, finished_at and expires_at, no lease and no error; open steps are cancelled."""
    claim = driver.held(ttl_seconds=60.0)
    driver.retry(claim, backing_off("r"), in_place=True, refund=True, delay=0.1)
    driver.checkpoint(claim, done("a"), listen("w", "t"))
    assert driver.complete(claim, result='{"x":1}').status is Status.SUCCEEDED
    seen = driver.get(claim.id)
    assert (seen.result, seen.error, seen.last_error) == ({"x": 1}, None, None)
    assert seen.finished_at == moment(driver.clock.now)
    assert seen.expires_at == moment(driver.clock.now + 60_000_000)
    assert (seen.leased_by, seen.lease_until, seen.waiting_on) == (None, None, ())
    by_key = {step.key: step.status for step in driver.steps(claim.id)}
    assert by_key == {"a": "succeeded", "w": "cancelled", "r": "cancelled"}
    assert driver.told(claim.id)[-1] == "succeeded"
    assert driver.emit("t").woken == 0
    driver.assert_replayed(claim.id)


def test_fail_keeps_the_error_and_its_kind(driver):
    """The run has error and last_error; the trail has kind and message."""
    claim = driver.held()
    driver.park(claim, sleep())
    driver.clock.turn(60)
    driver.tick()
    claim = driver.take(claim.id)
    assert driver.fail(claim, broken("x"), kind="fatal").status is Status.FAILED
    seen = driver.get(claim.id)
    assert (seen.error.kind, seen.last_error, seen.result) == ("fatal", "it broke", None)
    assert seen.finished_at == moment(driver.clock.now)
    assert driver.last(claim.id, "failed") == {
        "kind": "fatal", "message": "it broke", "attempt": 1, "max_attempts": 3,
    }  # fmt: skip
    assert driver.told(claim.id)[-2:] == ["step_failed", "failed"]


@pytest.mark.spec("RETRY-1", "TRAIL-1")
def test_a_retry_goes_back_to_the_queue_until_its_time(driver):
    """The error and the next time are stored; the attempt stays counted."""
    claim = driver.held()
    assert driver.retry(claim, delay=60.0).status is Status.PENDING
    seen = driver.get(claim.id)
    assert (seen.attempt, seen.run_at) == (1, moment(driver.clock.now + 60_000_000))
    assert (seen.error.kind, seen.last_error, seen.leased_by) == ("boom", "it broke", None)
    told = driver.last(claim.id, "retried")
    assert (told["attempt"], told["delay"], told["status"]) == (1, 60.0, "pending")
    assert driver.claim() == []
    driver.clock.turn(60)
    assert driver.take(claim.id).attempt == 2
    driver.assert_replayed(claim.id)


@pytest.mark.spec("RETRY-1")
def test_a_retry_in_place_is_leased_still_and_counted(driver):
    """The retry is committed before it begins: attempt + 1, and the lease as in a checkpoint."""
    claim = driver.held()
    driver.clock.turn(11)
    verdict = driver.retry(claim, in_place=True, delay=0.5)
    assert verdict.status is Status.LEASED
    assert driver.get(claim.id).lease_until == moment(driver.clock.now + 30_000_000)
    assert (driver.get(claim.id).attempt, driver.get(claim.id).fence) == (2, claim.fence)
    assert "status" not in driver.last(claim.id, "retried")
    driver.assert_replayed(claim.id)


@pytest.mark.spec("RETRY-1")
@pytest.mark.parametrize("leaving", ["park", "release", "refund", "pause"])
def test_parking_pausing_release_and_the_backoff_of_a_step_use_up_no_attempt(driver, leaving):
    """Each takes back the attempt that its claim counted, but never below zero."""
    claim = driver.held()
    driver.retry(claim, delay=0.0)
    claim = driver.take(claim.id)
    match leaving:
        case "park":
            driver.park(claim, sleep())
        case "release":
            driver.release(claim)
        case "refund":
            driver.retry(claim, backing_off("a"), refund=True)
        case "pause":
            driver.pause(claim.id)
            driver.release(claim)
    assert driver.get(claim.id).attempt == 1


@pytest.mark.spec("RETRY-1")
def test_progress_starts_the_attempts_anew(driver):
    """The count is 1 while the holder goes on, and 0 once it has left the run."""
    claim = driver.held()
    driver.retry(claim, delay=0.0)
    claim = driver.take(claim.id)
    assert claim.attempt == 2
    driver.checkpoint(claim, done("a"))
    assert driver.get(claim.id).attempt == 1
    driver.checkpoint(claim, done("a"))
    driver.park(claim, done("b"), sleep())
    assert driver.get(claim.id).attempt == 0


@pytest.mark.spec("TRAIL-1")
def test_release_gives_the_run_back_now(driver):
    """The run is pending and due now, its attempt is refunded, and it has no error."""
    claim = driver.held()
    driver.clock.turn(5)
    assert driver.release(claim).status is Status.PENDING
    seen = driver.get(claim.id)
    assert (seen.attempt, seen.run_at, seen.error_json) == (0, moment(driver.clock.now), None)
    assert (driver.told(claim.id)[-1], driver.last(claim.id, "released")) == ("released", {})
    assert driver.take(claim.id).attempt == 1


@pytest.mark.spec("MOVE-2")
def test_a_commit_carries_log_rows_events_and_starts(driver):
    """The order is trail, steps, events, starts, move; an existing event or run is left as it is."""
    from holdfast.records import NewEvent

    claim = driver.held(key="taken", digest="d")
    listener = driver.held(worker="w2")
    driver.park(listener, listen(topic="news"))
    next_run = NewRun(id=driver.id(), type=TYPE, key="next", digest="d")
    verdict = driver.complete(
        claim, done("a"),
        trail=(TrailWrite("log", '{"message":"m"}'),),
        events=(NewEvent(topic="news", id="n1"), NewEvent(topic="news", id="n1", payload="2")),
        starts=(next_run, NewRun(id=driver.id(), type=TYPE, key="taken", digest="other"), next_run),
        progress='{"done":9}',
    )  # fmt: skip
    assert verdict.answer is Answer.APPLIED
    assert driver.told(claim.id)[-3:] == ["log", "step_succeeded", "succeeded"]
    assert (driver.status(next_run.id), driver.told(next_run.id)) == (Status.PENDING, ["created"])
    assert sum(driver.stats().by_status.values()) == 3
    assert driver.stats().undelivered == 1
    assert driver.due().chore_at <= driver.clock.now
    assert (driver.deliver(), driver.status(listener.id)) == (1, Status.PENDING)
    assert driver.stats().undelivered == 0
    assert driver.get(claim.id).progress == {"done": 9}


LOGS = tuple(TrailWrite("log", f'{{"message":"m{n}"}}') for n in range(3))
LOGGED = {
    "checkpoint": (Move.CHECKPOINT, (done("a"),), ["step_succeeded"]),
    "complete": (Move.COMPLETE, (), ["succeeded"]),
    "complete with all steps": (
        Move.COMPLETE, (done("a"), done("b")), ["step_succeeded", "step_succeeded", "succeeded"],
    ),
    "advance": (Move.ADVANCE, (done("a"),), ["step_succeeded"]),
    "the last advance": (Move.ADVANCE, (done("a"),), ["step_succeeded", "succeeded"]),
}  # fmt: skip


@pytest.mark.spec("MOVE-2", "TRAIL-1", "LEASE-14")
@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("name", LOGGED)
def test_log_rows_stand_before_the_steps_that_they_came_with(driver, name, alone):
    """They come after `started`, in their order, once; each run of a batch has its own."""
    move, steps, then = LOGGED[name]
    plan = {"advance": ("a", "b"), "the last advance": ("a",)}.get(name)
    claims = [driver.held() if plan is None else driver.begun(*plan) for _ in range(2)]
    fields = {"in_place": True} if plan else {}
    items = [
        driver.item(claims[0], move, *steps, trail=LOGS, started_at=driver.clock.now, **fields),
        driver.item(claims[1], move, *steps, trail=LOGS[:1], **fields),
    ]
    for _ in range(2):  # the second time is a repeat, and writes nothing
        for batch in [[item] for item in items] if alone else [items]:
            assert {verdict.answer for verdict in driver.send(*batch)} == {"applied"}
        assert driver.told(claims[0].id, 2) == ["started", "log", "log", "log", *then]
        assert driver.told(claims[1].id, 2) == ["log", *then]
    said = [entry.data["message"] for entry in driver.trail(claims[0].id) if entry.type == "log"]
    assert said == ["m0", "m1", "m2"]


@pytest.mark.spec("MOVE-6", "STORE-4")
def test_an_unknown_step_status_is_refused_and_changes_nothing(driver):
    """The store rejects it whoever sends it."""
    claim = driver.held()
    before = driver.snapshot(claim.id), driver.everything()
    for bad in (StepWrite(key="x", status="done"), StepWrite(key="x", kind="nonsense")):
        item = driver.item(claim, Move.CHECKPOINT, done("a"), bad)
        with pytest.raises(HoldfastError):
            driver.send(item)
        assert (driver.snapshot(claim.id), driver.everything()) == before


@pytest.mark.spec("MOVE-6")
def test_a_move_that_is_no_holders_is_refused(driver):
    """Commit takes only moves of holders: cancel and rewind are other verbs."""
    claim = driver.held()
    before = driver.snapshot(claim.id)
    for move in (Move.CANCEL, Move.CHECKPOINT, "cancel", None):
        item = msgspec.structs.replace(driver.item(claim, Move.COMPLETE), move=move)
        with pytest.raises(UsageError, match="no move of a holder"):
            driver.send(item)
    assert driver.snapshot(claim.id) == before


@pytest.mark.spec("MOVE-6")
def test_one_key_and_one_seq_have_one_row_and_ends_have_a_time(driver):
    """Exactly the leased runs have a holder and a lease; exactly the final runs have finished_at."""
    claim = driver.held()
    driver.checkpoint(claim, *(done(f"s{n}") for n in range(20)), listen("w", "t"))
    driver.emit("t")
    driver.checkpoint(claim, done("s3"), done("x"))
    steps = driver.steps(claim.id)
    assert [step.seq for step in steps] == sorted({step.seq for step in steps})
    assert len({step.key for step in steps}) == len(steps) == 22
    assert driver.get(claim.id).lease_until is not None
    driver.complete(claim)
    seen = driver.get(claim.id)
    assert (seen.lease_until, seen.leased_by, seen.finished_at is None) == (None, None, False)


@pytest.mark.spec("RETRY-9", "TRAIL-1")
def test_a_run_past_its_timeout_is_failed_by_a_keeper(driver):
    """The kind is timeout, due at equality, in any status of the run; its holder is fenced off."""
    pending, held, waiting, paused = (driver.start(timeout_seconds=60.0) for _ in range(4))
    claims = {claim.id: claim for claim in driver.claim()}
    driver.release(claims[pending])
    driver.park(claims[waiting])
    driver.pause(paused)
    driver.release(claims[paused])
    driver.clock.turn(29)
    driver.renew(claims[held])
    driver.clock.turn(29)
    driver.renew(claims[held])
    driver.clock.turn(1.999999)
    assert driver.tick().timed_out == 0
    driver.clock.turn(0.000001)
    assert driver.tick().timed_out == 4
    for run in (pending, held, waiting, paused):
        seen = driver.get(run)
        assert (seen.status, seen.error.kind, seen.waiting_on) == (Status.FAILED, "timeout", ())
        assert driver.told(run)[-2:] == ["timed_out", "failed"]
        assert "step" not in driver.last(run, "timed_out")
        assert driver.last(run, "failed")["kind"] == "timeout"
        driver.assert_replayed(run)
    assert driver.get(held).fence == claims[held].fence + 1
    assert driver.complete(claims[held]).answer == "lost"


@pytest.mark.spec("RETRY-1")
def test_a_failed_execution_counts_even_when_it_recorded_something_with_its_failure(driver):
    """Progress sets the counts to 1, for the failed execution: with 0 there would be one attempt too many."""
    claim = driver.held()
    driver.retry(claim, done("now"), delay=0.0)
    assert driver.get(claim.id).attempt == 1
    assert driver.take(claim.id).attempt == 2


@pytest.mark.spec("MOVE-5", "TRAIL-1")
def test_every_step_that_backs_off_has_its_row_and_only_a_retry_may_write_one(driver):
    """A status that is not in the trail could not be rebuilt from it."""
    claim = driver.held()
    with pytest.raises(UsageError, match="only a retry may say so"):
        driver.checkpoint(claim, backing_off("a"))
    driver.retry(claim, backing_off("a"), backing_off("b"), refund=True)
    assert [entry.data["step"] for entry in driver.trail(claim.id, types=("retried",))] == ["a", "b"]
    driver.assert_replayed(claim.id)


@pytest.mark.spec("LEASE-18", "LEASE-4")
def test_an_item_that_cannot_be_applied_holds_up_none_of_its_neighbours(driver):
    """Lost, cancelled and unknown items are answered alone; the other items of the batch are applied."""
    good, lost, cancelled = driver.held(), driver.held(), driver.held()
    driver.release(lost)
    driver.take(lost.id)
    driver.cancel(cancelled.id)
    batch = [driver.item(claim, Move.CHECKPOINT, done("a")) for claim in (lost, good, cancelled)]
    answers = [verdict.answer for verdict in driver.send(*batch)]
    assert answers == ["lost", "applied", "cancelled"]
    assert [step.key for step in driver.steps(good.id)] == ["a"]
    assert driver.steps(lost.id) == []


@pytest.mark.spec("TRAIL-1", "LEASE-19")
@pytest.mark.parametrize("odd", ["[1,2]", '"text"', '{"log_no":"3"}', '{"log_no":1e999}'])
def test_a_run_with_a_log_row_of_any_shape_can_be_claimed(driver, odd):
    claim = driver.held()
    driver.checkpoint(claim, done("a"), trail=(TrailWrite("log", odd),))
    driver.release(claim)
    assert driver.take(claim.id).logs == 0
