"""Leases and fences: a worker without the current lease changes nothing."""

from __future__ import annotations

import pytest

from holdfast.lifecycle import Move, Status, StepStatus
from holdfast.records import ANY, Lease, moment

from .driver import done, gate, listen, sleep

TOO_LATE = 30.000001


@pytest.mark.spec("LEASE-4", "LEASE-5")
def test_a_lease_counts_up_to_its_very_last_instant(driver):
    """Expired means lease_until < now; at equality it is valid, for the write and for the keeper."""
    claim = driver.held()
    driver.clock.turn(30)
    assert driver.tick().expired == 0
    assert driver.checkpoint(claim).answer == "applied"


@pytest.mark.spec("LEASE-4", "LEASE-7")
def test_a_write_after_the_lease_is_lost_even_before_a_keeper_noticed(driver):
    """A holder with an expired lease writes nothing; the expiry then takes effect, once."""
    claim = driver.held()
    driver.clock.turn(TOO_LATE)
    before = driver.snapshot(claim.id)
    assert driver.complete(claim).answer == "lost"
    assert driver.renew(claim).held[0].answer == "lost"
    assert driver.snapshot(claim.id) == before
    assert (driver.tick().expired, driver.tick().expired) == (1, 0)
    assert driver.status(claim.id) is Status.PENDING


@pytest.mark.spec("LEASE-4")
def test_the_same_worker_is_refused_with_its_old_fence(driver):
    """The fence differs between two claims of one worker."""
    old = driver.held()
    driver.clock.turn(TOO_LATE)
    driver.tick()
    new = driver.take(old.id)
    before = driver.snapshot(old.id)
    assert driver.complete(old).answer == "lost"
    assert driver.renew(old, new).held[0].answer == "lost"
    assert driver.snapshot(old.id)[1:] == before[1:]
    assert driver.complete(new).answer == "applied"


@pytest.mark.spec("LEASE-4")
def test_one_refused_item_does_not_touch_the_others(driver):
    """Each item of a batch has its own fence; answers come in order."""
    lost, fine, gone = driver.held(), driver.held(), driver.held()
    driver.cancel(gone.id)
    before = driver.snapshot(lost.id)
    items = [
        driver.item(lost, Move.COMPLETE, fence=99, result="1"),
        driver.item(fine, Move.COMPLETE, result="1"),
        driver.item(gone, Move.COMPLETE, result="1"),
        driver.item(fine, Move.COMPLETE, result="1", run=driver.id()),
    ]
    assert [verdict.answer for verdict in driver.send(*items)] == ["lost", "applied", "cancelled", "lost"]
    assert driver.snapshot(lost.id) == before
    assert driver.status(fine.id) is Status.SUCCEEDED


@pytest.mark.spec("LEASE-6", "RETRY-8")
def test_an_expired_run_becomes_claimable_and_fails_at_the_crash_cap(driver):
    """After the first expiry it is claimable at once, then after 2 and 4 s; at the fourth the run fails."""
    run = driver.start()
    for crashes, delay in ((1, 0), (2, 2), (3, 4)):
        claim = driver.take(run)
        driver.clock.turn(TOO_LATE)
        assert driver.tick().expired == 1
        seen = driver.get(run)
        assert (seen.status, seen.crashes, seen.fence) == (Status.PENDING, crashes, claim.fence + 1)
        assert seen.run_at == moment(driver.clock.now + delay * 1_000_000)
        assert (seen.error.kind, seen.leased_by, seen.lease_until) == ("lease_expired", None, None)
        assert "lease_expired" in seen.last_error
        driver.clock.turn(delay)
    driver.take(run)
    driver.clock.turn(TOO_LATE)
    driver.tick()
    seen = driver.get(run)
    assert (seen.status, seen.crashes, seen.error.kind) == (Status.FAILED, 4, "lease_expired")
    assert seen.finished_at == moment(driver.clock.now)
    assert driver.told(run)[-3:] == ["leased", "lease_expired", "failed"]
    assert driver.last(run, "lease_expired") == {"worker": "w1", "crashes": 4}
    assert driver.last(run, "failed")["kind"] == "lease_expired"
    driver.assert_replayed(run)


@pytest.mark.spec("LEASE-6", "RETRY-1")
def test_progress_starts_the_count_of_crashes_anew(driver):
    """Crashes are expired leases since the last progress of the run."""
    run = driver.start()
    for _ in range(2):
        driver.take(run)
        driver.clock.turn(TOO_LATE)
        driver.tick()
        driver.clock.turn(10)
    claim = driver.take(run)
    assert (claim.crashes, claim.attempt) == (2, 3)
    driver.checkpoint(claim)
    assert (driver.get(run).crashes, driver.get(run).attempt) == (0, 1)


def _crash(driver, run, times=1):
    for _ in range(times):
        driver.take(run)
        driver.clock.turn(TOO_LATE)
        driver.tick()
        driver.clock.turn(10)


@pytest.mark.spec("LEASE-6", "RETRY-1")
def test_a_run_that_survives_a_lease_time_is_forgiven_its_crashes_once(driver):
    """Failed executions stay counted. After that four crashes fail the run, however late they come."""
    run = driver.start()
    _crash(driver, run, 3)
    claim = driver.take(run)
    assert (claim.crashes, claim.attempt) == (3, 4)
    survived = Lease(run=run, fence=claim.fence, survived=True)
    for _ in range(2):  # the same again changes nothing
        assert driver.renew(survived).held[0].answer == "applied"
        assert (driver.get(run).crashes, driver.get(run).attempt) == (0, 1)
    driver.clock.turn(TOO_LATE)
    driver.tick()
    for crashes in (1, 2, 3):
        claim = driver.take(run)
        driver.renew(Lease(run=run, fence=claim.fence, survived=True))
        assert driver.get(run).crashes == crashes
        driver.clock.turn(TOO_LATE)
        driver.tick()
        driver.clock.turn(10)
    assert (driver.get(run).status, driver.get(run).error.kind) == (Status.FAILED, "lease_expired")


@pytest.mark.spec("LEASE-6")
@pytest.mark.parametrize("way", ["a step", "a retry", "a segment"])
def test_progress_lets_crashes_be_forgiven_again(driver, way):
    """This holds also when the progress does not change the run's row otherwise."""
    run = driver.start()
    _crash(driver, run)
    claim = driver.take(run)
    driver.renew(Lease(run=run, fence=claim.fence, survived=True))
    if way == "a retry":
        driver.send(driver.item(claim, Move.FAIL, error='{"kind":"fatal"}', last_error="x", kind="fatal"))
        driver.run(driver.store.retry_run(run, ANY))
    else:
        steps = [done("a")] if way == "a step" else [done("a"), done("b")]
        driver.send(driver.item(claim, Move.CHECKPOINT, steps=tuple(steps)))
        driver.clock.turn(TOO_LATE)
        driver.tick()
    _crash(driver, run)
    claim = driver.take(run)
    assert claim.crashes > 0
    driver.renew(Lease(run=run, fence=claim.fence, survived=True))
    assert driver.get(run).crashes == 0


def _forgiven(driver, run):
    """Let the run crash, claim it again, and let it survive a lease time."""
    _crash(driver, run)
    claim = driver.take(run)
    driver.renew(Lease(run=run, fence=claim.fence, survived=True))
    assert driver.get(run).crashes == 0
    return claim


@pytest.mark.spec("LEASE-6", "RETRY-1")
@pytest.mark.parametrize("way", ["an event", "a sleep", "a plan's task", "a plan's gate", "in a pause"])
def test_a_settled_wait_lets_crashes_be_forgiven_again(driver, way):
    """A settled wait is progress, like a step: attempt, crashes and forgiveness begin anew."""
    of_code = way in {"an event", "a sleep"}
    run = driver.start() if of_code else driver.plan("A", gate("ok"), "B")
    claim = _forgiven(driver, run)
    if of_code:
        driver.park(claim, listen() if way == "an event" else sleep(seconds=5.0))
    elif way == "a plan's gate":
        driver.advance(claim)
    else:
        driver.park(claim, done("A", None, status=StepStatus.WAITING, topic="parcel"))
    if way == "in a pause":
        driver.pause(run)
    driver.clock.turn(10)
    if way == "a plan's gate":
        driver.approve(run)
    elif way != "a sleep":
        driver.emit()
    driver.tick()
    if way == "in a pause":
        driver.resume(run)
    _forgiven(driver, run)


@pytest.mark.spec("LEASE-6", "LEASE-4")
def test_only_the_holder_says_that_a_run_has_survived(driver):
    run = driver.start()
    _crash(driver, run, 2)
    claim = driver.take(run)
    late = Lease(run=run, fence=claim.fence - 1, survived=True)
    assert driver.renew(late).held[0].answer == "lost"
    assert driver.get(run).crashes == 2
    driver.renew(claim)
    assert driver.get(run).crashes == 2


@pytest.mark.spec("LEASE-6")
def test_expiry_is_swept_in_slices_until_nothing_is_due(driver):
    """Each part of a tick works in commits of at most `limit` runs, until nothing is due."""
    for _ in range(7):
        driver.held()
    driver.clock.turn(TOO_LATE)
    assert driver.tick(limit=2).expired == 7
    assert driver.stats().by_status[Status.PENDING] == 7
    assert driver.tick(limit=2).total == 0


def test_renewal_extends_the_lease_from_now(driver):
    """The lease then ends lease_seconds after the renewal."""
    claim = driver.held()
    driver.clock.turn(20)
    renewal = driver.renew(claim)
    assert (renewal.held[0].answer, renewal.held[0].pause_asked, renewal.strays) == ("applied", False, ())
    assert renewal.held[0].renewed
    assert driver.get(claim.id).lease_until == moment(driver.clock.now + 30_000_000)
    driver.clock.turn(30)
    assert driver.tick().expired == 0


def test_renewal_tells_what_became_of_each_run(driver):
    """The answer says cancelled, rewound, lost or unknown, in the order of the call."""
    cancelled, rewound, paused, unknown = (driver.held() for _ in range(4))
    driver.checkpoint(rewound)
    driver.cancel(cancelled.id)
    driver.rewind(rewound.id, "first")
    driver.pause(paused.id)
    renewal = driver.renew(cancelled, rewound, paused, Lease(run=driver.id(), fence=1), unknown)
    assert [(one.answer, one.pause_asked) for one in renewal.held] == [
        ("cancelled", False), ("lost", False), ("applied", True), ("lost", False), ("applied", False),
    ]  # fmt: skip
    assert [one.renewed for one in renewal.held] == [one.answer == "applied" for one in renewal.held]


@pytest.mark.spec("LEASE-8")
def test_renewed_means_that_the_lease_ends_lease_seconds_from_now(driver):
    """This holds also for a lease that was longer before, and at the last instant of a lease."""
    claim = driver.held()
    for seconds, lease in ((30, 60.0), (1, 30.0), (30, 30.0)):
        driver.clock.turn(seconds)
        assert driver.renew(claim, lease=lease).held[0].renewed
        assert driver.get(claim.id).lease_until == moment(driver.clock.now + int(lease * 1_000_000))
    driver.clock.turn(TOO_LATE)
    assert not driver.renew(claim).held[0].renewed


def test_renewal_brings_waits_that_were_settled_since(driver):
    """Waits with seq > known are returned by seq; known ones are not."""
    claim = driver.held()
    driver.checkpoint(claim, listen("a", "t"), listen("b", "t"))
    driver.emit("t", '"hello"')
    renewal = driver.renew(Lease(run=claim.id, fence=claim.fence, known=2))
    assert [(step.key, step.seq) for step in renewal.held[0].settled] == [("a", 3)]
    assert driver.renew(Lease(run=claim.id, fence=claim.fence, known=3)).held[0].settled == ()
    assert driver.renew(claim).held[0].settled == ()


@pytest.mark.spec("LEASE-17")
def test_a_stray_is_named_and_not_changed(driver):
    """Renewal names runs that are leased to this worker and that it did not name, with their fences."""
    known, stray, other = driver.held(), driver.held(), driver.held(worker="w2")
    before = driver.snapshot(stray.id)
    assert driver.renew(known).strays == ((stray.id, stray.fence),)
    assert driver.renew(worker="w2").strays == ((other.id, other.fence),)
    assert driver.snapshot(stray.id) == before
    assert driver.commit(stray, Move.RELEASE).answer == "applied"
    assert (driver.get(stray.id).attempt, driver.renew(known).strays) == (0, ())


@pytest.mark.spec("LEASE-17")
def test_a_lease_of_another_worker_hides_no_stray(driver):
    """The fence decides about a renewal, and not the worker who sends it."""
    theirs, stray = driver.held("w1"), driver.held("w2")
    renewal = driver.renew(theirs, worker="w2")
    assert renewal.held[0].answer == "applied"
    assert renewal.strays == ((stray.id, stray.fence),)


@pytest.mark.spec("LEASE-17")
def test_a_run_named_under_an_old_fence_is_a_stray_under_its_new_one(driver):
    """The worker lost the run, claimed it again, and the reply was lost: it knows only the old lease."""
    old = driver.held()
    driver.clock.turn(TOO_LATE)
    driver.tick()
    new = driver.take(old.id)
    renewal = driver.renew(old)
    assert (renewal.held[0].answer, renewal.strays) == ("lost", ((new.id, new.fence),))


@pytest.mark.spec("TRAIL-1", "LEASE-8")
def test_started_is_written_once_an_execution_by_the_first_call(driver):
    """`started` has the begin of the execution, and comes with the first renewal or commit."""
    claim = driver.held()
    lease = Lease(run=claim.id, fence=claim.fence, started_at=5_000_000)
    driver.renew(lease)
    driver.renew(lease)
    driver.checkpoint(claim, started_at=5_000_000)
    driver.release(claim)
    assert driver.told(claim.id).count("started") == 1
    assert driver.last(claim.id, "started") == {"at": 5_000_000}
    assert driver.get(claim.id).started_at == moment(5_000_000)
    again = driver.take(claim.id)
    driver.complete(again, started_at=9_000_000)
    assert driver.told(claim.id)[-3:] == ["leased", "started", "succeeded"]


@pytest.mark.spec("TRAIL-2")
def test_a_heartbeat_and_progress_are_written_when_asked_for(driver):
    """The trail has heartbeats of long steps; the run has the progress."""
    claim = driver.held()
    driver.renew(Lease(run=claim.id, fence=claim.fence, heartbeat=True, progress='{"done":3}'))
    driver.renew(claim)
    assert driver.told(claim.id) == ["created", "leased", "heartbeat"]
    assert driver.last(claim.id, "heartbeat") == {"worker": "w1"}
    assert driver.get(claim.id).progress == {"done": 3}


@pytest.mark.spec("LEASE-8")
def test_a_checkpoint_renews_when_less_than_two_thirds_of_the_lease_are_left(driver):
    """With two thirds left the lease stays; with less it is extended from now."""
    claim = driver.held()
    driver.clock.turn(10)
    driver.checkpoint(claim, done("a"))
    assert driver.get(claim.id).lease_until == moment(claim.lease_until)
    driver.clock.turn(0.000001)
    driver.checkpoint(claim, done("b"))
    assert driver.get(claim.id).lease_until == moment(driver.clock.now + 30_000_000)


@pytest.mark.spec("LEASE-7")
def test_expiry_and_a_valid_write_exclude_each_other(driver):
    """The first of the two takes effect; the other finds nothing to do."""
    written, expired = driver.held(), driver.held()
    driver.clock.turn(30)
    driver.complete(written)
    driver.clock.turn(0.000001)
    assert driver.tick().expired == 1
    assert driver.complete(expired).answer == "lost"
    assert [driver.status(claim.id) for claim in (written, expired)] == [Status.SUCCEEDED, Status.PENDING]


def test_due_knows_when_a_chore_comes(driver):
    """It knows ends of leases, due waits, timeouts of runs, and undelivered events."""
    assert driver.due().chore_at is None
    claim = driver.held()
    assert driver.due().chore_at in {claim.lease_until, claim.lease_until + 1}
    driver.park(claim, sleep(seconds=5.0))
    assert driver.due().chore_at == driver.clock.now + 5_000_000
    driver.start(timeout_seconds=2.0)
    assert driver.due().chore_at == driver.clock.now + 2_000_000
