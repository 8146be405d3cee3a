"""purge: what has expired is removed for good, and nothing else."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.contract import DELETED_SECONDS, EVENT_KEEP_SECONDS, GONE_SECONDS, TTL_SECONDS
from holdfast.errors import UnknownRun
from holdfast.lifecycle import Move, Status, StepStatus
from holdfast.records import ANY, NewEvent, NewRun, Presence, Purged, RunFilter, Started

from .hand import TYPE, call, done, listen, sleep

decode = msgspec.json.decode
MICRO = 0.000001
AGES = 100 * 365 * 86400.0


def purged(hand, **terms):
    """All slices together: how much goes in one of them is the store's own business."""
    total = Purged()
    while (one := hand.purge(**terms)).total:
        sums = {name: getattr(total, name) + getattr(one, name) for name in Purged.__struct_fields__}
        total = Purged(**sums)
    return total


def ended(hand, **fields):
    claim = hand.held(**fields)
    hand.complete(claim)
    return claim.id


def there(hand, *runs):
    """Those that are still there, hidden or not."""
    known = {run.id for run in hand.run(hand.store.list(RunFilter(tenant=ANY, deleted=True), limit=10_000))}
    return [run for run in runs if run in known]


@pytest.mark.spec("TTL-1")
def test_a_finished_run_expires_by_its_own_ttl_or_the_default(hand):
    """At that instant, not before it; a ttl of its own may be shorter or longer."""
    short, usual, long = (ended(hand, ttl_seconds=ttl) for ttl in (60.0, None, 2 * TTL_SECONDS))
    runs = (short, usual, long)
    for seconds, left in ((60.0, runs[1:]), (TTL_SECONDS - 60, runs[2:]), (TTL_SECONDS, ())):
        hand.clock.turn(seconds - MICRO)
        assert purged(hand) == Purged()
        hand.clock.turn(MICRO)
        assert purged(hand) == Purged(runs=1)
        assert there(hand, *runs) == list(left)


@pytest.mark.spec("TTL-1")
@pytest.mark.parametrize("end", ["complete", "fail", "cancel"])
def test_the_default_is_the_callers_to_choose(hand, end):
    """However a run has ended."""
    claim = hand.held()
    getattr(hand, end)(claim.id if end == "cancel" else claim)
    hand.clock.turn(10)
    assert purged(hand, ttl_seconds=10 + MICRO).total == 0
    assert purged(hand, ttl_seconds=10).runs == 1


@pytest.mark.spec("TTL-1")
def test_an_open_run_never_expires(hand):
    """Whatever it is at, however old it is, whatever its ttl."""
    pending = hand.start(delay_seconds=AGES)
    waiting, paused, again = (hand.held(ttl_seconds=1.0) for _ in range(3))
    hand.park(waiting, listen(), known=0)
    hand.release(paused)
    hand.pause(paused.id)
    hand.checkpoint(again)
    hand.complete(again)
    hand.rewind(again.id, "first")
    hand.clock.turn(AGES / 2)
    leased = hand.take(again.id)
    runs = (pending, waiting.id, paused.id, leased.id)
    assert purged(hand, ttl_seconds=0, deleted_seconds=0) == Purged()
    assert there(hand, *runs) == list(runs)
    assert [hand.status(run) for run in runs] == [
        Status.PENDING, Status.WAITING, Status.PAUSED, Status.LEASED,
    ]  # fmt: skip


@pytest.mark.spec("DEL-1", "TTL-1")
def test_a_deleted_run_goes_after_the_time_in_which_it_can_be_restored(hand):
    """Open or not; restored in time, it stays."""
    open_, back, over = hand.start(delay_seconds=AGES), hand.start(delay_seconds=AGES), ended(hand)
    for run in (open_, back, over):
        hand.delete(run)
    hand.clock.turn(DELETED_SECONDS - MICRO)
    assert purged(hand) == Purged()
    hand.restore(back)
    hand.clock.turn(MICRO)
    assert purged(hand) == Purged(runs=2)
    assert there(hand, open_, back, over) == [back]
    with pytest.raises(UnknownRun):
        hand.restore(open_)


@pytest.mark.spec("DEL-1", "TTL-1", "EVENT-6")
def test_all_that_belongs_to_a_run_goes_with_it(hand):
    """Steps, trail, receipts and the events addressed to it; its key and its id are free."""
    claim = hand.held(key="order:1", digest="d")
    kept = hand.held()
    hand.emit("mine", id="e", run=claim.id)
    hand.park(claim, done("first"), listen("w", "mine"), sleep(), known=0)
    hand.complete(claim)
    hand.checkpoint(kept)
    before = hand.trail(kept.id)
    hand.clock.turn(TTL_SECONDS)

    assert purged(hand).runs == 1
    assert hand.get(claim.id) is None
    with pytest.raises(UnknownRun):
        hand.steps(claim.id)
    assert hand.trail(claim.id) == []
    assert {entry.run for entry in hand.trail()} == {kept.id}
    assert hand.trail(kept.id) == before
    other = NewRun(id=hand.id(), type=TYPE, key="order:1", digest="another")
    same_id = NewRun(id=claim.id, type=TYPE)
    assert hand.start_many([other, same_id]) == [Started(other.id, True), Started(claim.id, True)]
    # A new run under the old id finds nothing of the old one, and the event's id is free again.
    assert hand.steps(claim.id) == []
    assert hand.told(claim.id) == ["created"]
    assert not hand.emit("mine", id="e", run=claim.id).duplicate


@pytest.mark.spec("TTL-1", "TRAIL-3")
def test_what_was_removed_leaves_no_number_that_is_given_again(hand):
    """Whoever follows the trail from a number on, or waits for what comes later, misses nothing."""
    hand.emit("old")
    ended(hand)
    newest = hand.trail()[-1].seq
    hand.clock.turn(AGES)
    assert purged(hand) == Purged(runs=1, events=1)
    assert hand.trail() == []

    claim = hand.held()
    assert hand.trail()[0].seq > newest
    hand.park(claim, listen("w", "old", since_now=True), known=0)
    hand.emit("old")
    assert hand.status(claim.id) is Status.PENDING
    assert [entry.type for entry in hand.trail(after=newest)] == ["created", "leased", "waiting", "woken"]


@pytest.mark.spec("TTL-1")
def test_a_slice_takes_no_more_runs_than_it_is_told(hand):
    """Call again until nothing is left."""
    runs = [ended(hand) for _ in range(5)]
    hand.clock.turn(TTL_SECONDS)
    slices = [hand.purge(limit=2).runs for _ in range(6)]
    assert (max(slices), sum(slices), slices[-1]) == (2, 5, 0)
    assert there(hand, *runs) == []


@pytest.mark.spec("TTL-1")
def test_a_run_with_many_rows_goes_whole(hand):
    """However many commits that takes: whoever calls until nothing is left has removed all of it."""
    claim, small = hand.held(), ended(hand)
    for page in range(10):
        hand.checkpoint(claim, *(done(f"{page}.{number}") for number in range(300)))
    hand.complete(claim)
    hand.clock.turn(TTL_SECONDS)
    assert purged(hand) == Purged(runs=2)
    assert there(hand, claim.id, small) == []
    assert hand.trail() == []
    assert hand.start_many([NewRun(id=claim.id, type=TYPE)]) == [Started(claim.id, True)]
    assert hand.steps(claim.id) == []


@pytest.mark.spec("TTL-1")
def test_a_child_that_an_open_parent_waits_for_stays(hand):
    """Until the parent has been told of its end, or waits no longer."""
    children = []
    for _ in range(2):
        child, parent = hand.id(), hand.held(ttl_seconds=AGES)
        hand.park(parent, call("child", child), known=0)
        hand.complete(hand.take(child))
        children.append((child, parent.id))
    hand.clock.turn(TTL_SECONDS)
    assert purged(hand) == Purged()
    hand.cancel(children[0][1])
    hand.deliver()
    assert purged(hand) == Purged(runs=2)
    assert hand.step(children[1][1], "child").status is StepStatus.SUCCEEDED
    assert there(hand, *(child for child, _ in children)) == []


@pytest.mark.spec("DEL-1", "TTL-1", "FLOW-7")
@pytest.mark.parametrize("parent_is", ["waiting", "paused", "leased"])
def test_a_parent_whose_deleted_child_is_removed_waits_no_longer(hand, parent_is):
    """Until then it may be restored; then it will never end, and its step has failed."""
    child, parent = hand.id(), hand.held()
    write = hand.checkpoint if parent_is == "leased" else hand.park
    write(parent, call("child", child), known=0)
    if parent_is == "paused":
        hand.pause(parent.id)
    hand.delete(child)
    hand.clock.turn(DELETED_SECONDS - MICRO)
    assert (purged(hand), hand.step(parent.id, "child").status) == (Purged(), StepStatus.WAITING)
    hand.clock.turn(MICRO)
    assert purged(hand) == Purged(runs=1)
    step = hand.step(parent.id, "child")
    assert (step.status, step.finished_at) == (StepStatus.FAILED, hand.clock.now)
    assert decode(step.output) == {"run": str(child), "status": "gone", "error": None}
    assert decode(step.error)["kind"] == "child_failed"
    woken = Status.PENDING if parent_is == "waiting" else Status(parent_is)
    assert (hand.status(parent.id), hand.told(parent.id).count("woken")) == (woken, 1)
    if parent_is == "paused":
        assert hand.resume(parent.id).status is Status.PENDING
    hand.assert_replayed(parent.id)


@pytest.mark.spec("DEL-1", "TTL-1")
def test_a_deleted_child_that_has_ended_stays_until_its_parent_is_told(hand):
    """Its result is not lost."""
    child, parent = hand.id(), hand.held()
    hand.park(parent, call("child", child), known=0)
    hand.complete(hand.take(child))
    hand.delete(child)
    hand.clock.turn(DELETED_SECONDS)
    assert purged(hand) == Purged()
    assert (hand.deliver(), hand.step(parent.id, "child").status) == (1, StepStatus.SUCCEEDED)
    assert purged(hand) == Purged(runs=1)


@pytest.mark.spec("DEL-1", "TTL-1")
@pytest.mark.parametrize("restored", [True, False])
def test_a_deleted_child_of_a_deleted_parent_goes_after_it_or_when_that_is_restored(hand, restored):
    child, parent = hand.id(), hand.held()
    hand.park(parent, call("child", child), known=0)
    hand.delete(child)
    hand.clock.turn(1)
    hand.delete(parent.id)
    hand.clock.turn(DELETED_SECONDS - 1)
    assert purged(hand) == Purged()
    if restored:
        hand.restore(parent.id)
        assert purged(hand) == Purged(runs=1)
        assert hand.status(parent.id) is Status.PENDING
    else:
        hand.clock.turn(1)
        assert (purged(hand, limit=1), hand.trail()) == (Purged(runs=2), [])


@pytest.mark.spec("EVENT-6", "EVENT-2")
@pytest.mark.parametrize("keep", [None, 1.0, 2 * EVENT_KEEP_SECONDS])
def test_an_event_for_no_one_run_stays_until_its_retention_ends(hand, keep):
    """Seven days, or longer if it says so; never shorter: the same id again must be known."""
    hand.emit(id="e", keep_seconds=keep)
    hand.clock.turn(max(keep or 0.0, EVENT_KEEP_SECONDS) - MICRO)
    assert purged(hand) == Purged()
    assert hand.emit(id="e").duplicate
    hand.clock.turn(MICRO)
    assert purged(hand) == Purged(events=1)
    assert not hand.emit(id="e").duplicate


@pytest.mark.spec("EVENT-6")
def test_an_event_that_is_addressed_stays_as_long_as_its_run(hand):
    """Taken or not."""
    claim = hand.held()
    hand.emit("mine", id="e", run=claim.id)
    hand.release(claim)
    hand.clock.turn(AGES)
    assert purged(hand) == Purged()
    claim = hand.take(claim.id)
    assert hand.park(claim, listen("w", "mine"), known=0).status is Status.LEASED
    assert hand.emit("mine", id="e", run=claim.id).duplicate


@pytest.mark.spec("EVENT-6")
def test_an_event_for_a_run_that_is_not_there_goes_like_one_for_nobody(hand):
    """A holder's commit may address a run that has gone since: nothing is kept for ever."""
    claim = hand.held(ttl_seconds=AGES)
    hand.checkpoint(claim, events=(NewEvent(topic="t", id="e", run=hand.id()),))
    hand.deliver()
    hand.release(claim)
    hand.clock.turn(EVENT_KEEP_SECONDS - MICRO)
    assert purged(hand) == Purged()
    hand.clock.turn(MICRO)
    assert purged(hand) == Purged(events=1)


@pytest.mark.spec("EVENT-6", "EVENT-3")
def test_an_event_that_is_not_delivered_is_not_removed(hand):
    """However old: those who wait for it come first."""
    waiter, emitter = hand.held(), hand.held()
    hand.park(waiter, listen("w", "t"), known=0)
    hand.checkpoint(emitter, events=(NewEvent(topic="t", id="e"),))
    hand.release(emitter)
    hand.clock.turn(AGES)
    assert purged(hand) == Purged()
    hand.deliver()
    assert hand.status(waiter.id) is Status.PENDING
    assert purged(hand) == Purged(events=1)


@pytest.mark.spec("TTL-1")
def test_workers_that_are_long_gone_are_forgotten(hand):
    """One that is seen now and then stays."""
    for worker in ("gone", "there"):
        hand.run(hand.store.present(Presence(worker=worker, types=(TYPE,))))
    hand.clock.turn(GONE_SECONDS - MICRO)
    hand.run(hand.store.present(Presence(worker="there", types=(TYPE,))))
    assert purged(hand) == Purged()
    hand.clock.turn(MICRO)
    assert purged(hand) == Purged(workers=1)
    assert [worker.worker for worker in hand.stats().workers] == ["there"]


@pytest.mark.spec("TTL-1", "LEASE-4")
def test_a_zombie_of_a_run_that_was_removed_is_told_that_it_is_lost(hand):
    """As for any run that is not there."""
    claim = hand.held()
    hand.cancel(claim.id)
    hand.clock.turn(TTL_SECONDS)
    assert purged(hand).runs == 1
    before = hand.everything()
    assert hand.checkpoint(claim, done("late")).answer == "lost"
    assert hand.renew(claim).held[0].answer == "lost"
    assert hand.everything() == before


@pytest.mark.spec("LEASE-4", "START-8", "TTL-1")
@pytest.mark.parametrize("again", ["started", "started by another run's commit"])
def test_a_zombie_stays_shut_out_of_a_new_run_under_the_same_id(hand, again):
    """A purge frees the id, but no fence is given twice, however often the first run changed hands."""
    zombies = [hand.held()]
    for _ in range(5):
        hand.release(zombies[-1])
        zombies.append(hand.take())
    hand.delete(zombies[0].id)
    assert purged(hand, deleted_seconds=0).runs == 1
    if again == "started":
        hand.start(id=zombies[0].id)
    else:
        starter = hand.held()
        hand.complete(starter, starts=(NewRun(id=zombies[0].id, type=TYPE),))
    holder = hand.take(zombies[0].id)
    before = hand.snapshot(holder.id)
    for number in range(1, 4):
        for zombie in zombies:
            late = hand.item(zombie, Move.COMPLETE, result='"late"', number=number)
            assert hand.send(late)[0].answer == "lost"
            assert hand.renew(zombie).held[0].answer == "lost"
    assert hand.snapshot(holder.id) == before
    assert hand.complete(holder).answer == "applied"


@pytest.mark.spec("LIMIT-2")
def test_claims_that_no_rate_counts_any_more_go_with_a_purge(hand):
    """Not before: what counts is counted on."""
    hand.run(hand.store.limit("key", "%", rate=(1, 60.0)))
    for number in range(300):
        hand.start(limit_key=f"k{number}")
    assert len(hand.claim(limit=300)) == 300
    again = hand.start(limit_key="k7")
    hand.clock.turn(60 - MICRO)
    assert purged(hand) == Purged()
    assert hand.claim() == []
    hand.clock.turn(MICRO)
    assert purged(hand) == Purged(claims=300)
    assert purged(hand) == Purged()
    hand.take(again)
