"""commit: what a holder's moves do to the run, its steps and its trail."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.errors import HoldfastError, UsageError
from holdfast.lifecycle import Move, Status, StepKind, StepStatus
from holdfast.records import Answer, NewRun, StepWrite, TrailWrite, moment

from .hand import TYPE, backing_off, broken, done, error, listen, sleep


@pytest.mark.spec("MOVE-2", "TRAIL-1")
def test_a_checkpoint_records_its_steps_and_nothing_else_of_the_run(hand):
    """The run is leased still; each outcome is a step row and a trail row."""
    claim = hand.held()
    verdict = hand.checkpoint(claim, done("a", '{"x":1}', started_at=7), broken("b", attempts=3))
    assert (verdict.answer, verdict.status, verdict.kept, verdict.settled) == ("applied", "leased", (), ())
    a, b = hand.steps(claim.id)
    assert (a.seq, a.key, a.kind, a.status, a.output) == (1, "a", StepKind.TASK, "succeeded", '{"x":1}')
    assert (a.attempts, a.fence, a.started_at, a.finished_at) == (1, claim.fence, 7, hand.clock.now)
    assert (b.seq, b.status, b.attempts, b.error) == (2, StepStatus.FAILED, 3, error())
    assert hand.told(claim.id) == ["created", "leased", "step_succeeded", "step_failed"]
    assert hand.last(claim.id, "step_succeeded") == {"step": "a"}
    assert hand.last(claim.id, "step_failed")["step"] == "b"
    assert hand.last(claim.id, "step_failed")["error"]["kind"] == "boom"
    assert hand.get(claim.id).cursor == "b"
    hand.assert_replayed(claim.id)


@pytest.mark.spec("LEASE-14")
def test_what_was_recorded_keeps_its_first_value(hand):
    """A checkpoint of a key that exists keeps the first value and returns it."""
    claim = hand.held()
    hand.checkpoint(claim, done("a", "1", cost=5))
    told = hand.told(claim.id)
    verdict = hand.checkpoint(claim, done("a", "2", cost=7), done("b", "3"))
    assert verdict.kept == (("a", "1"),)
    assert [(step.key, step.output) for step in hand.steps(claim.id)] == [("a", "1"), ("b", "3")]
    assert hand.told(claim.id, len(told)) == ["step_succeeded"]
    assert hand.get(claim.id).cost_units == 5


@pytest.mark.spec("LEASE-4")
def test_a_checkpoint_from_before_a_wait_is_lost_after_it(hand):
    """Nothing but the fence tells the two holders apart: neither has crashed, both are the first to try."""
    before, other = hand.held(), hand.held()
    hand.park(before, sleep(seconds=5))
    hand.clock.turn(5)
    hand.tick()
    after = hand.take()
    assert (after.id, after.attempt, after.crashes) == (before.id, 1, 0)
    assert hand.checkpoint(before, done("late")).answer == "lost"
    late, good = (
        hand.item(before, Move.CHECKPOINT, done("late")),
        hand.item(other, Move.CHECKPOINT, done("a")),
    )
    assert [verdict.answer for verdict in hand.send(late, good)] == ["lost", "applied"]
    assert "late" not in [step.key for step in hand.steps(before.id)]


def test_a_failed_step_keeps_its_failure(hand):
    """A step whose tries are used up is recorded as failed, for good."""
    claim = hand.held()
    hand.checkpoint(claim, broken("a"))
    assert hand.checkpoint(claim, done("a", "2")).kept == (("a", None),)
    assert hand.step(claim.id, "a").status is StepStatus.FAILED


@pytest.mark.spec("COST-1")
def test_costs_add_up_and_a_zombie_adds_nothing(hand):
    """The run's cost is the sum of its steps'; a late or duplicate execution adds nothing."""
    zombie = hand.held()
    hand.checkpoint(zombie, done("a", cost=100))
    hand.retry(zombie, backing_off("b", cost=20), refund=True, in_place=True)
    hand.clock.turn(31)
    hand.tick()
    claim = hand.take(zombie.id)
    assert hand.checkpoint(zombie, done("c", cost=1000)).answer == "lost"
    hand.checkpoint(claim, done("a", cost=3000), done("b", cost=4))
    assert (hand.get(claim.id).cost_units, hand.get(claim.id).cost) == (124, 0.000124)
    assert [step.cost for step in hand.steps(claim.id)] == [100, 24]


@pytest.mark.spec("RETRY-1")
def test_a_step_that_backs_off_takes_its_outcome_later_and_the_next_seq(hand):
    """A row that is `ready` takes the new outcome, in the order in which it became known."""
    claim = hand.held()
    verdict = hand.retry(claim, backing_off("a", due_at=9), in_place=True, refund=True, delay=0.5)
    assert (verdict.answer, verdict.status) == ("applied", Status.LEASED)
    ready = hand.step(claim.id, "a")
    assert (ready.status, ready.seq, ready.due_at) == (StepStatus.READY, 1, 9)
    assert hand.get(claim.id).attempt == 1
    hand.assert_replayed(claim.id)
    hand.checkpoint(claim, done("b"))
    hand.checkpoint(claim, done("a", "5", attempts=2))
    assert [(s.key, s.seq, s.status, s.attempts) for s in hand.steps(claim.id)] == [
        ("b", 2, "succeeded", 1), ("a", 3, "succeeded", 2),
    ]  # fmt: skip
    assert hand.last(claim.id, "retried")["step"] == "a"
    hand.assert_replayed(claim.id)


@pytest.mark.spec("MOVE-2")
def test_complete_ends_the_run_and_whatever_was_open(hand):
    """Succeeded, result, finished_at, expires_at by ttl, no lease, open steps cancelled, no error."""
    claim = hand.held(ttl_seconds=60.0)
    hand.retry(claim, backing_off("r"), in_place=True, refund=True, delay=0.1)
    hand.checkpoint(claim, done("a"), listen("w", "t"))
    assert hand.complete(claim, result='{"x":1}').status is Status.SUCCEEDED
    seen = hand.get(claim.id)
    assert (seen.result, seen.error, seen.last_error) == ({"x": 1}, None, None)
    assert seen.finished_at == moment(hand.clock.now)
    assert seen.expires_at == moment(hand.clock.now + 60_000_000)
    assert (seen.leased_by, seen.lease_until, seen.waiting_on) == (None, None, ())
    by_key = {step.key: step.status for step in hand.steps(claim.id)}
    assert by_key == {"a": "succeeded", "w": "cancelled", "r": "cancelled"}
    assert hand.told(claim.id)[-1] == "succeeded"
    assert hand.emit("t").woken == 0
    hand.assert_replayed(claim.id)


def test_fail_keeps_the_error_and_its_kind(hand):
    """Failed with error and last_error; the trail has kind and message."""
    claim = hand.held()
    hand.park(claim, sleep())
    hand.clock.turn(60)
    hand.tick()
    claim = hand.take(claim.id)
    assert hand.fail(claim, broken("x"), kind="fatal").status is Status.FAILED
    seen = hand.get(claim.id)
    assert (seen.error.kind, seen.last_error, seen.result) == ("fatal", "it broke", None)
    assert seen.finished_at == moment(hand.clock.now)
    assert hand.last(claim.id, "failed") == {
        "kind": "fatal", "message": "it broke", "attempt": 1, "max_attempts": 3,
    }  # fmt: skip
    assert hand.told(claim.id)[-2:] == ["step_failed", "failed"]


@pytest.mark.spec("RETRY-1", "TRAIL-1")
def test_a_retry_goes_back_to_the_queue_until_its_time(hand):
    """Error and the next time are stored; the attempt stays counted, so a restart forgets nothing."""
    claim = hand.held()
    assert hand.retry(claim, delay=60.0).status is Status.PENDING
    seen = hand.get(claim.id)
    assert (seen.attempt, seen.run_at) == (1, moment(hand.clock.now + 60_000_000))
    assert (seen.error.kind, seen.last_error, seen.leased_by) == ("boom", "it broke", None)
    told = hand.last(claim.id, "retried")
    assert (told["attempt"], told["delay"], told["status"]) == (1, 60.0, "pending")
    assert hand.claim() == []
    hand.clock.turn(60)
    assert hand.take(claim.id).attempt == 2
    hand.assert_replayed(claim.id)


@pytest.mark.spec("RETRY-1")
def test_a_retry_in_place_is_leased_still_and_counted(hand):
    """Committed before it begins: attempt + 1, and the lease as in a checkpoint."""
    claim = hand.held()
    hand.clock.turn(11)
    verdict = hand.retry(claim, in_place=True, delay=0.5)
    assert verdict.status is Status.LEASED
    assert hand.get(claim.id).lease_until == moment(hand.clock.now + 30_000_000)
    assert (hand.get(claim.id).attempt, hand.get(claim.id).fence) == (2, claim.fence)
    assert "status" not in hand.last(claim.id, "retried")
    hand.assert_replayed(claim.id)


@pytest.mark.spec("RETRY-1")
@pytest.mark.parametrize("leaving", ["park", "release", "refund", "pause"])
def test_parking_pausing_release_and_the_backoff_of_a_step_use_up_no_attempt(hand, leaving):
    """Each takes back the attempt that its claim counted; below zero it never goes."""
    claim = hand.held()
    hand.retry(claim, delay=0.0)
    claim = hand.take(claim.id)
    match leaving:
        case "park":
            hand.park(claim, sleep())
        case "release":
            hand.release(claim)
        case "refund":
            hand.retry(claim, backing_off("a"), refund=True)
        case "pause":
            hand.pause(claim.id)
            hand.release(claim)
    assert hand.get(claim.id).attempt == 1


@pytest.mark.spec("RETRY-1")
def test_progress_starts_the_attempts_anew(hand):
    """1 while the holder goes on, 0 once he has left."""
    claim = hand.held()
    hand.retry(claim, delay=0.0)
    claim = hand.take(claim.id)
    assert claim.attempt == 2
    hand.checkpoint(claim, done("a"))
    assert hand.get(claim.id).attempt == 1
    hand.checkpoint(claim, done("a"))
    hand.park(claim, done("b"), sleep())
    assert hand.get(claim.id).attempt == 0


@pytest.mark.spec("TRAIL-1")
def test_release_gives_the_run_back_now(hand):
    """Pending, run_at now, attempt refunded, no error."""
    claim = hand.held()
    hand.clock.turn(5)
    assert hand.release(claim).status is Status.PENDING
    seen = hand.get(claim.id)
    assert (seen.attempt, seen.run_at, seen.error_json) == (0, moment(hand.clock.now), None)
    assert (hand.told(claim.id)[-1], hand.last(claim.id, "released")) == ("released", {})
    assert hand.take(claim.id).attempt == 1


@pytest.mark.spec("MOVE-2")
def test_a_commit_carries_log_rows_events_and_starts(hand):
    """In this order: trail, steps, events, starts, the move; what is there is left alone."""
    from holdfast.records import NewEvent

    claim = hand.held(key="taken", digest="d")
    listener = hand.held(worker="w2")
    hand.park(listener, listen(topic="news"))
    next_run = NewRun(id=hand.id(), type=TYPE, key="next", digest="d")
    verdict = hand.complete(
        claim, done("a"),
        trail=(TrailWrite("log", '{"message":"m"}'),),
        events=(NewEvent(topic="news", id="n1"), NewEvent(topic="news", id="n1", payload="2")),
        starts=(next_run, NewRun(id=hand.id(), type=TYPE, key="taken", digest="other"), next_run),
        progress='{"done":9}',
    )  # fmt: skip
    assert verdict.answer is Answer.APPLIED
    assert hand.told(claim.id)[-3:] == ["log", "step_succeeded", "succeeded"]
    assert (hand.status(next_run.id), hand.told(next_run.id)) == (Status.PENDING, ["created"])
    assert sum(hand.stats().by_status.values()) == 3
    assert hand.stats().undelivered == 1
    assert hand.due().chore_at <= hand.clock.now
    assert (hand.deliver(), hand.status(listener.id)) == (1, Status.PENDING)
    assert hand.stats().undelivered == 0
    assert hand.get(claim.id).progress == {"done": 9}


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
def test_log_rows_stand_before_the_steps_that_they_came_with(hand, name, alone):
    """After `started`, in their order, once; beside other runs, of which each has its own."""
    move, steps, then = LOGGED[name]
    plan = {"advance": ("a", "b"), "the last advance": ("a",)}.get(name)
    claims = [hand.held() if plan is None else hand.begun(*plan) for _ in range(2)]
    fields = {"in_place": True} if plan else {}
    items = [
        hand.item(claims[0], move, *steps, trail=LOGS, started_at=hand.clock.now, **fields),
        hand.item(claims[1], move, *steps, trail=LOGS[:1], **fields),
    ]
    for _ in range(2):  # the second time is a repeat, and writes nothing
        for batch in [[item] for item in items] if alone else [items]:
            assert {verdict.answer for verdict in hand.send(*batch)} == {"applied"}
        assert hand.told(claims[0].id, 2) == ["started", "log", "log", "log", *then]
        assert hand.told(claims[1].id, 2) == ["log", *then]
    said = [entry.data["message"] for entry in hand.trail(claims[0].id) if entry.type == "log"]
    assert said == ["m0", "m1", "m2"]


@pytest.mark.spec("MOVE-6", "STORE-4")
def test_what_no_step_may_be_is_refused_and_changes_nothing(hand):
    """The store rejects an unknown step status, whoever sends it."""
    claim = hand.held()
    before = hand.snapshot(claim.id), hand.everything()
    for bad in (StepWrite(key="x", status="done"), StepWrite(key="x", kind="nonsense")):
        item = hand.item(claim, Move.CHECKPOINT, done("a"), bad)
        with pytest.raises(HoldfastError):
            hand.send(item)
        assert (hand.snapshot(claim.id), hand.everything()) == before


@pytest.mark.spec("MOVE-6")
def test_a_move_that_is_no_holders_is_refused(hand):
    """Commit is the door of holders: cancel or rewind do not come through it."""
    claim = hand.held()
    before = hand.snapshot(claim.id)
    for move in (Move.CANCEL, Move.CHECKPOINT, "cancel", None):
        item = msgspec.structs.replace(hand.item(claim, Move.COMPLETE), move=move)
        with pytest.raises(UsageError, match="no move of a holder"):
            hand.send(item)
    assert hand.snapshot(claim.id) == before


@pytest.mark.spec("MOVE-6")
def test_one_key_and_one_seq_have_one_row_and_ends_have_a_time(hand):
    """A leased run has holder and lease, no other has; a final one has finished_at."""
    claim = hand.held()
    hand.checkpoint(claim, *(done(f"s{n}") for n in range(20)), listen("w", "t"))
    hand.emit("t")
    hand.checkpoint(claim, done("s3"), done("x"))
    steps = hand.steps(claim.id)
    assert [step.seq for step in steps] == sorted({step.seq for step in steps})
    assert len({step.key for step in steps}) == len(steps) == 22
    assert hand.get(claim.id).lease_until is not None
    hand.complete(claim)
    seen = hand.get(claim.id)
    assert (seen.lease_until, seen.leased_by, seen.finished_at is None) == (None, None, False)


@pytest.mark.spec("RETRY-9", "TRAIL-1")
def test_a_run_past_its_timeout_is_failed_by_a_keeper(hand):
    """Kind timeout, due at equality, whatever the run does at the time; whoever held it is fenced off."""
    pending, held, waiting, paused = (hand.start(timeout_seconds=60.0) for _ in range(4))
    claims = {claim.id: claim for claim in hand.claim()}
    hand.release(claims[pending])
    hand.park(claims[waiting])
    hand.pause(paused)
    hand.release(claims[paused])
    hand.clock.turn(29)
    hand.renew(claims[held])
    hand.clock.turn(29)
    hand.renew(claims[held])
    hand.clock.turn(1.999999)
    assert hand.tick().timed_out == 0
    hand.clock.turn(0.000001)
    assert hand.tick().timed_out == 4
    for run in (pending, held, waiting, paused):
        seen = hand.get(run)
        assert (seen.status, seen.error.kind, seen.waiting_on) == (Status.FAILED, "timeout", ())
        assert hand.told(run)[-2:] == ["timed_out", "failed"]
        assert "step" not in hand.last(run, "timed_out")
        assert hand.last(run, "failed")["kind"] == "timeout"
        hand.assert_replayed(run)
    assert hand.get(held).fence == claims[held].fence + 1
    assert hand.complete(claims[held]).answer == "lost"


@pytest.mark.spec("RETRY-1")
def test_a_failed_execution_counts_even_when_it_recorded_something_with_its_failure(hand):
    """Progress starts the counts anew at 1, the execution that failed: at 0 there would be one too many."""
    claim = hand.held()
    hand.retry(claim, done("now"), delay=0.0)
    assert hand.get(claim.id).attempt == 1
    assert hand.take(claim.id).attempt == 2


@pytest.mark.spec("MOVE-5", "TRAIL-1")
def test_every_step_that_backs_off_has_its_row_and_only_a_retry_may_write_one(hand):
    """What the trail does not tell cannot be rebuilt from it."""
    claim = hand.held()
    with pytest.raises(UsageError, match="only a retry may say so"):
        hand.checkpoint(claim, backing_off("a"))
    hand.retry(claim, backing_off("a"), backing_off("b"), refund=True)
    assert [entry.data["step"] for entry in hand.trail(claim.id, types=("retried",))] == ["a", "b"]
    hand.assert_replayed(claim.id)


@pytest.mark.spec("LEASE-18", "LEASE-4")
def test_an_item_that_cannot_be_applied_holds_up_none_of_its_neighbours(hand):
    """Lost, cancelled and unknown ones are answered alone; the others of the batch go through."""
    good, lost, cancelled = hand.held(), hand.held(), hand.held()
    hand.release(lost)
    hand.take(lost.id)
    hand.cancel(cancelled.id)
    batch = [hand.item(claim, Move.CHECKPOINT, done("a")) for claim in (lost, good, cancelled)]
    answers = [verdict.answer for verdict in hand.send(*batch)]
    assert answers == ["lost", "applied", "cancelled"]
    assert [step.key for step in hand.steps(good.id)] == ["a"]
    assert hand.steps(lost.id) == []


@pytest.mark.spec("TRAIL-1", "LEASE-19")
@pytest.mark.parametrize("odd", ["[1,2]", '"text"', '{"log_no":"3"}', '{"log_no":1e999}'])
def test_a_log_row_of_any_shape_keeps_no_claim_from_its_run(hand, odd):
    claim = hand.held()
    hand.checkpoint(claim, done("a"), trail=(TrailWrite("log", odd),))
    hand.release(claim)
    assert hand.take(claim.id).logs == 0
