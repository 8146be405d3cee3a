"""Leases and fences: a worker without the current lease changes nothing."""

from __future__ import annotations

import pytest

from holdfast.lifecycle import Move, Status, StepStatus
from holdfast.records import ANY, Lease, moment

from .hand import done, gate, listen, sleep

TOO_LATE = 30.000001


@pytest.mark.spec("LEASE-4", "LEASE-5")
def test_a_lease_counts_up_to_its_very_last_instant(hand):
    """Expired means lease_until < now; equal is still valid, for the write and for the keeper."""
    claim = hand.held()
    hand.clock.turn(30)
    assert hand.tick().expired == 0
    assert hand.checkpoint(claim).answer == "applied"


@pytest.mark.spec("LEASE-4", "LEASE-7")
def test_a_write_after_the_lease_is_lost_even_before_a_keeper_noticed(hand):
    """A holder whose lease has run out writes nothing; the expiry then takes effect, once."""
    claim = hand.held()
    hand.clock.turn(TOO_LATE)
    before = hand.snapshot(claim.id)
    assert hand.complete(claim).answer == "lost"
    assert hand.renew(claim).held[0].answer == "lost"
    assert hand.snapshot(claim.id) == before
    assert (hand.tick().expired, hand.tick().expired) == (1, 0)
    assert hand.status(claim.id) is Status.PENDING


@pytest.mark.spec("LEASE-4")
def test_the_same_worker_is_refused_with_its_old_fence(hand):
    """The fence tells two claims of one worker apart."""
    old = hand.held()
    hand.clock.turn(TOO_LATE)
    hand.tick()
    new = hand.take(old.id)
    before = hand.snapshot(old.id)
    assert hand.complete(old).answer == "lost"
    assert hand.renew(old, new).held[0].answer == "lost"
    assert hand.snapshot(old.id)[1:] == before[1:]
    assert hand.complete(new).answer == "applied"


@pytest.mark.spec("LEASE-4")
def test_one_refused_item_does_not_touch_the_others(hand):
    """Each item of a batch is fenced on its own; answers come in order."""
    lost, fine, gone = hand.held(), hand.held(), hand.held()
    hand.cancel(gone.id)
    before = hand.snapshot(lost.id)
    items = [
        hand.item(lost, Move.COMPLETE, fence=99, result="1"),
        hand.item(fine, Move.COMPLETE, result="1"),
        hand.item(gone, Move.COMPLETE, result="1"),
        hand.item(fine, Move.COMPLETE, result="1", run=hand.id()),
    ]
    assert [verdict.answer for verdict in hand.send(*items)] == ["lost", "applied", "cancelled", "lost"]
    assert hand.snapshot(lost.id) == before
    assert hand.status(fine.id) is Status.SUCCEEDED


@pytest.mark.spec("LEASE-6", "RETRY-8")
def test_an_expired_run_becomes_claimable_and_fails_at_the_crash_cap(hand):
    """The first expiry at once, further ones after 2, 4 s; at the fourth the run fails."""
    run = hand.start()
    for crashes, delay in ((1, 0), (2, 2), (3, 4)):
        claim = hand.take(run)
        hand.clock.turn(TOO_LATE)
        assert hand.tick().expired == 1
        seen = hand.get(run)
        assert (seen.status, seen.crashes, seen.fence) == (Status.PENDING, crashes, claim.fence + 1)
        assert seen.run_at == moment(hand.clock.now + delay * 1_000_000)
        assert (seen.error.kind, seen.leased_by, seen.lease_until) == ("lease_expired", None, None)
        assert "lease_expired" in seen.last_error
        hand.clock.turn(delay)
    hand.take(run)
    hand.clock.turn(TOO_LATE)
    hand.tick()
    seen = hand.get(run)
    assert (seen.status, seen.crashes, seen.error.kind) == (Status.FAILED, 4, "lease_expired")
    assert seen.finished_at == moment(hand.clock.now)
    assert hand.told(run)[-3:] == ["leased", "lease_expired", "failed"]
    assert hand.last(run, "lease_expired") == {"worker": "w1", "crashes": 4}
    assert hand.last(run, "failed")["kind"] == "lease_expired"
    hand.assert_replayed(run)


@pytest.mark.spec("LEASE-6", "RETRY-1")
def test_progress_starts_the_count_of_crashes_anew(hand):
    """Crashes are leases that expired since the run last made progress."""
    run = hand.start()
    for _ in range(2):
        hand.take(run)
        hand.clock.turn(TOO_LATE)
        hand.tick()
        hand.clock.turn(10)
    claim = hand.take(run)
    assert (claim.crashes, claim.attempt) == (2, 3)
    hand.checkpoint(claim)
    assert (hand.get(run).crashes, hand.get(run).attempt) == (0, 1)


def _crash(hand, run, times=1):
    for _ in range(times):
        hand.take(run)
        hand.clock.turn(TOO_LATE)
        hand.tick()
        hand.clock.turn(10)


@pytest.mark.spec("LEASE-6", "RETRY-1")
def test_a_run_that_survives_a_lease_time_is_forgiven_its_crashes_once(hand):
    """The executions that failed stay counted. After that four crashes fail it, however late they come."""
    run = hand.start()
    _crash(hand, run, 3)
    claim = hand.take(run)
    assert (claim.crashes, claim.attempt) == (3, 4)
    survived = Lease(run=run, fence=claim.fence, survived=True)
    for _ in range(2):  # the same again changes nothing
        assert hand.renew(survived).held[0].answer == "applied"
        assert (hand.get(run).crashes, hand.get(run).attempt) == (0, 1)
    hand.clock.turn(TOO_LATE)
    hand.tick()
    for crashes in (1, 2, 3):
        claim = hand.take(run)
        hand.renew(Lease(run=run, fence=claim.fence, survived=True))
        assert hand.get(run).crashes == crashes
        hand.clock.turn(TOO_LATE)
        hand.tick()
        hand.clock.turn(10)
    assert (hand.get(run).status, hand.get(run).error.kind) == (Status.FAILED, "lease_expired")


@pytest.mark.spec("LEASE-6")
@pytest.mark.parametrize("way", ["a step", "a retry", "a segment"])
def test_progress_lets_it_be_forgiven_again(hand, way):
    """Also where the progress leaves the run's row alone otherwise."""
    run = hand.start()
    _crash(hand, run)
    claim = hand.take(run)
    hand.renew(Lease(run=run, fence=claim.fence, survived=True))
    if way == "a retry":
        hand.send(hand.item(claim, Move.FAIL, error='{"kind":"fatal"}', last_error="x", kind="fatal"))
        hand.run(hand.store.retry_run(run, ANY))
    else:
        steps = [done("a")] if way == "a step" else [done("a"), done("b")]
        hand.send(hand.item(claim, Move.CHECKPOINT, steps=tuple(steps)))
        hand.clock.turn(TOO_LATE)
        hand.tick()
    _crash(hand, run)
    claim = hand.take(run)
    assert claim.crashes > 0
    hand.renew(Lease(run=run, fence=claim.fence, survived=True))
    assert hand.get(run).crashes == 0


def _forgiven(hand, run):
    """The run crashes, is claimed again, and survives a lease time."""
    _crash(hand, run)
    claim = hand.take(run)
    hand.renew(Lease(run=run, fence=claim.fence, survived=True))
    assert hand.get(run).crashes == 0
    return claim


@pytest.mark.spec("LEASE-6", "RETRY-1")
@pytest.mark.parametrize("way", ["an event", "a sleep", "a plan's task", "a plan's gate", "in a pause"])
def test_a_settled_wait_lets_it_be_forgiven_again(hand, way):
    """It counts as progress, like a step: attempt and crashes begin anew, and so does the forgiving."""
    of_code = way in {"an event", "a sleep"}
    run = hand.start() if of_code else hand.plan("A", gate("ok"), "B")
    claim = _forgiven(hand, run)
    if of_code:
        hand.park(claim, listen() if way == "an event" else sleep(seconds=5.0))
    elif way == "a plan's gate":
        hand.advance(claim)
    else:
        hand.park(claim, done("A", None, status=StepStatus.WAITING, topic="parcel"))
    if way == "in a pause":
        hand.pause(run)
    hand.clock.turn(10)
    if way == "a plan's gate":
        hand.approve(run)
    elif way != "a sleep":
        hand.emit()
    hand.tick()
    if way == "in a pause":
        hand.resume(run)
    _forgiven(hand, run)


@pytest.mark.spec("LEASE-6", "LEASE-4")
def test_only_the_holder_says_that_a_run_has_survived(hand):
    run = hand.start()
    _crash(hand, run, 2)
    claim = hand.take(run)
    late = Lease(run=run, fence=claim.fence - 1, survived=True)
    assert hand.renew(late).held[0].answer == "lost"
    assert hand.get(run).crashes == 2
    hand.renew(claim)
    assert hand.get(run).crashes == 2


@pytest.mark.spec("LEASE-6")
def test_expiry_is_swept_in_slices_until_nothing_is_due(hand):
    """Each part of a tick works in commits of at most `limit` runs, until nothing is due."""
    for _ in range(7):
        hand.held()
    hand.clock.turn(TOO_LATE)
    assert hand.tick(limit=2).expired == 7
    assert hand.stats().by_status[Status.PENDING] == 7
    assert hand.tick(limit=2).total == 0


def test_renewal_extends_the_lease_from_now(hand):
    """The lease then ends lease_seconds after the renewal."""
    claim = hand.held()
    hand.clock.turn(20)
    renewal = hand.renew(claim)
    assert (renewal.held[0].answer, renewal.held[0].pause_asked, renewal.strays) == ("applied", False, ())
    assert renewal.held[0].renewed
    assert hand.get(claim.id).lease_until == moment(hand.clock.now + 30_000_000)
    hand.clock.turn(30)
    assert hand.tick().expired == 0


def test_renewal_tells_what_became_of_each_run(hand):
    """Cancelled, rewound, lost, unknown: learnt from the answer, in the order of the question."""
    cancelled, rewound, paused, unknown = (hand.held() for _ in range(4))
    hand.checkpoint(rewound)
    hand.cancel(cancelled.id)
    hand.rewind(rewound.id, "first")
    hand.pause(paused.id)
    renewal = hand.renew(cancelled, rewound, paused, Lease(run=hand.id(), fence=1), unknown)
    assert [(one.answer, one.pause_asked) for one in renewal.held] == [
        ("cancelled", False), ("lost", False), ("applied", True), ("lost", False), ("applied", False),
    ]  # fmt: skip
    assert [one.renewed for one in renewal.held] == [one.answer == "applied" for one in renewal.held]


@pytest.mark.spec("LEASE-8")
def test_renewed_means_that_the_lease_ends_lease_seconds_from_now(hand):
    """Also where it was longer before, and at the last instant of the lease before."""
    claim = hand.held()
    for seconds, lease in ((30, 60.0), (1, 30.0), (30, 30.0)):
        hand.clock.turn(seconds)
        assert hand.renew(claim, lease=lease).held[0].renewed
        assert hand.get(claim.id).lease_until == moment(hand.clock.now + int(lease * 1_000_000))
    hand.clock.turn(TOO_LATE)
    assert not hand.renew(claim).held[0].renewed


def test_renewal_brings_waits_that_were_settled_behind_the_holders_back(hand):
    """Waits settled with seq > known come back, by seq; what is known does not."""
    claim = hand.held()
    hand.checkpoint(claim, listen("a", "t"), listen("b", "t"))
    hand.emit("t", '"hello"')
    renewal = hand.renew(Lease(run=claim.id, fence=claim.fence, known=2))
    assert [(step.key, step.seq) for step in renewal.held[0].settled] == [("a", 3)]
    assert hand.renew(Lease(run=claim.id, fence=claim.fence, known=3)).held[0].settled == ()
    assert hand.renew(claim).held[0].settled == ()


@pytest.mark.spec("LEASE-17")
def test_a_stray_is_named_and_not_changed(hand):
    """Renewal names runs leased to this worker that it did not know of, with their fences."""
    known, stray, other = hand.held(), hand.held(), hand.held(worker="w2")
    before = hand.snapshot(stray.id)
    assert hand.renew(known).strays == ((stray.id, stray.fence),)
    assert hand.renew(worker="w2").strays == ((other.id, other.fence),)
    assert hand.snapshot(stray.id) == before
    assert hand.commit(stray, Move.RELEASE).answer == "applied"
    assert (hand.get(stray.id).attempt, hand.renew(known).strays) == (0, ())


@pytest.mark.spec("LEASE-17")
def test_a_run_named_under_an_old_fence_is_a_stray_under_its_new_one(hand):
    """The worker lost it, claimed it again, and that reply was lost: it knows only the old lease."""
    old = hand.held()
    hand.clock.turn(TOO_LATE)
    hand.tick()
    new = hand.take(old.id)
    renewal = hand.renew(old)
    assert (renewal.held[0].answer, renewal.strays) == ("lost", ((new.id, new.fence),))


@pytest.mark.spec("TRAIL-1", "LEASE-8")
def test_started_is_written_once_an_execution_by_whoever_comes_first(hand):
    """`started` carries the time execution began and is written with its first renewal or commit."""
    claim = hand.held()
    lease = Lease(run=claim.id, fence=claim.fence, started_at=5_000_000)
    hand.renew(lease)
    hand.renew(lease)
    hand.checkpoint(claim, started_at=5_000_000)
    hand.release(claim)
    assert hand.told(claim.id).count("started") == 1
    assert hand.last(claim.id, "started") == {"at": 5_000_000}
    assert hand.get(claim.id).started_at == moment(5_000_000)
    again = hand.take(claim.id)
    hand.complete(again, started_at=9_000_000)
    assert hand.told(claim.id)[-3:] == ["leased", "started", "succeeded"]


@pytest.mark.spec("TRAIL-2")
def test_a_heartbeat_and_progress_are_written_when_asked_for(hand):
    """Heartbeats of long steps are in the trail; progress is on the run."""
    claim = hand.held()
    hand.renew(Lease(run=claim.id, fence=claim.fence, heartbeat=True, progress='{"done":3}'))
    hand.renew(claim)
    assert hand.told(claim.id) == ["created", "leased", "heartbeat"]
    assert hand.last(claim.id, "heartbeat") == {"worker": "w1"}
    assert hand.get(claim.id).progress == {"done": 3}


@pytest.mark.spec("LEASE-8")
def test_a_checkpoint_renews_when_less_than_two_thirds_of_the_lease_are_left(hand):
    """At two thirds it is left alone; below, it is extended from now."""
    claim = hand.held()
    hand.clock.turn(10)
    hand.checkpoint(claim, done("a"))
    assert hand.get(claim.id).lease_until == moment(claim.lease_until)
    hand.clock.turn(0.000001)
    hand.checkpoint(claim, done("b"))
    assert hand.get(claim.id).lease_until == moment(hand.clock.now + 30_000_000)


@pytest.mark.spec("LEASE-7")
def test_expiry_and_a_valid_write_exclude_each_other(hand):
    """Whichever comes first takes effect; the other finds nothing to do."""
    written, expired = hand.held(), hand.held()
    hand.clock.turn(30)
    hand.complete(written)
    hand.clock.turn(0.000001)
    assert hand.tick().expired == 1
    assert hand.complete(expired).answer == "lost"
    assert [hand.status(claim.id) for claim in (written, expired)] == [Status.SUCCEEDED, Status.PENDING]


def test_due_knows_when_a_chore_comes(hand):
    """A lease that ends, a wait that comes due, a run's timeout, an event that is not delivered."""
    assert hand.due().chore_at is None
    claim = hand.held()
    assert hand.due().chore_at in {claim.lease_until, claim.lease_until + 1}
    hand.park(claim, sleep(seconds=5.0))
    assert hand.due().chore_at == hand.clock.now + 5_000_000
    hand.start(timeout_seconds=2.0)
    assert hand.due().chore_at == hand.clock.now + 2_000_000
