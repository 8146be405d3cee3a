"""purge: expired runs and events are removed for good, and nothing else."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.contract import DELETED_SECONDS, EVENT_KEEP_SECONDS, GONE_SECONDS, TTL_SECONDS
from holdfast.errors import UnknownRun
from holdfast.lifecycle import Move, Status, StepStatus
from holdfast.records import ANY, NewEvent, NewRun, Presence, Purged, RunFilter, Started

from .driver import TYPE, call, done, listen, sleep

decode = msgspec.json.decode
MICRO = 0.000001
AGES = 100 * 365 * 86400.0


def purged(driver, **terms):
    """Purge all slices: the size of one slice is the store's own choice."""
    total = Purged()
    while (one := driver.purge(**terms)).total:
        sums = {name: getattr(total, name) + getattr(one, name) for name in Purged.__struct_fields__}
        total = Purged(**sums)
    return total


def ended(driver, **fields):
    claim = driver.held(**fields)
    driver.complete(claim)
    return claim.id


def there(driver, *runs):
    """Return the runs that are still there, hidden or not."""
    known = {
        run.id for run in driver.run(driver.store.list(RunFilter(tenant=ANY, deleted=True), limit=10_000))
    }
    return [run for run in runs if run in known]


@pytest.mark.spec("TTL-1")
def test_a_finished_run_expires_by_its_own_ttl_or_the_default(driver):
    """It expires at that instant, not before; its own ttl may be shorter or longer than the default."""
    short, usual, long = (ended(driver, ttl_seconds=ttl) for ttl in (60.0, None, 2 * TTL_SECONDS))
    runs = (short, usual, long)
    for seconds, left in ((60.0, runs[1:]), (TTL_SECONDS - 60, runs[2:]), (TTL_SECONDS, ())):
        driver.clock.turn(seconds - MICRO)
        assert purged(driver) == Purged()
        driver.clock.turn(MICRO)
        assert purged(driver) == Purged(runs=1)
        assert there(driver, *runs) == list(left)


@pytest.mark.spec("TTL-1")
@pytest.mark.parametrize("end", ["complete", "fail", "cancel"])
def test_the_default_is_the_callers_to_choose(driver, end):
    """This holds however a run has ended."""
    claim = driver.held()
    getattr(driver, end)(claim.id if end == "cancel" else claim)
    driver.clock.turn(10)
    assert purged(driver, ttl_seconds=10 + MICRO).total == 0
    assert purged(driver, ttl_seconds=10).runs == 1


@pytest.mark.spec("TTL-1")
def test_an_open_run_never_expires(driver):
    """This holds for every status, age and ttl."""
    pending = driver.start(delay_seconds=AGES)
    waiting, paused, again = (driver.held(ttl_seconds=1.0) for _ in range(3))
    driver.park(waiting, listen(), known=0)
    driver.release(paused)
    driver.pause(paused.id)
    driver.checkpoint(again)
    driver.complete(again)
    driver.rewind(again.id, "first")
    driver.clock.turn(AGES / 2)
    leased = driver.take(again.id)
    runs = (pending, waiting.id, paused.id, leased.id)
    assert purged(driver, ttl_seconds=0, deleted_seconds=0) == Purged()
    assert there(driver, *runs) == list(runs)
    assert [driver.status(run) for run in runs] == [
        Status.PENDING, Status.WAITING, Status.PAUSED, Status.LEASED,
    ]  # fmt: skip


@pytest.mark.spec("DEL-1", "TTL-1")
def test_a_deleted_run_goes_after_the_time_in_which_it_can_be_restored(driver):
    """This holds for open and ended runs; a run that is restored in time stays."""
    open_, back, over = driver.start(delay_seconds=AGES), driver.start(delay_seconds=AGES), ended(driver)
    for run in (open_, back, over):
        driver.delete(run)
    driver.clock.turn(DELETED_SECONDS - MICRO)
    assert purged(driver) == Purged()
    driver.restore(back)
    driver.clock.turn(MICRO)
    assert purged(driver) == Purged(runs=2)
    assert there(driver, open_, back, over) == [back]
    with pytest.raises(UnknownRun):
        driver.restore(open_)


@pytest.mark.spec("DEL-1", "TTL-1", "EVENT-6")
def test_a_purge_removes_all_rows_of_a_run(driver):
    """These are steps, trail, taken events and the events addressed to it; its key and its id are free."""
    claim = driver.held(key="order:1", digest="d")
    kept = driver.held()
    driver.emit("mine", id="e", run=claim.id)
    driver.park(claim, done("first"), listen("w", "mine"), sleep(), known=0)
    driver.complete(claim)
    driver.checkpoint(kept)
    before = driver.trail(kept.id)
    driver.clock.turn(TTL_SECONDS)

    assert purged(driver).runs == 1
    assert driver.get(claim.id) is None
    with pytest.raises(UnknownRun):
        driver.steps(claim.id)
    assert driver.trail(claim.id) == []
    assert {entry.run for entry in driver.trail()} == {kept.id}
    assert driver.trail(kept.id) == before
    other = NewRun(id=driver.id(), type=TYPE, key="order:1", digest="another")
    same_id = NewRun(id=claim.id, type=TYPE)
    assert driver.start_many([other, same_id]) == [Started(other.id, True), Started(claim.id, True)]
    # A new run under the old id finds nothing of the old one, and the event's id is free again.
    assert driver.steps(claim.id) == []
    assert driver.told(claim.id) == ["created"]
    assert not driver.emit("mine", id="e", run=claim.id).duplicate


@pytest.mark.spec("TTL-1", "TRAIL-3")
def test_numbers_of_removed_rows_are_not_reused(driver):
    """A reader that follows the trail from a number, or waits for later events, misses nothing."""
    driver.emit("old")
    ended(driver)
    newest = driver.trail()[-1].seq
    driver.clock.turn(AGES)
    assert purged(driver) == Purged(runs=1, events=1)
    assert driver.trail() == []

    claim = driver.held()
    assert driver.trail()[0].seq > newest
    driver.park(claim, listen("w", "old", since_now=True), known=0)
    driver.emit("old")
    assert driver.status(claim.id) is Status.PENDING
    assert [entry.type for entry in driver.trail(after=newest)] == ["created", "leased", "waiting", "woken"]


@pytest.mark.spec("TTL-1")
def test_a_slice_takes_no_more_runs_than_it_is_told(driver):
    """The caller repeats until nothing is left."""
    runs = [ended(driver) for _ in range(5)]
    driver.clock.turn(TTL_SECONDS)
    slices = [driver.purge(limit=2).runs for _ in range(6)]
    assert (max(slices), sum(slices), slices[-1]) == (2, 5, 0)
    assert there(driver, *runs) == []


@pytest.mark.spec("TTL-1")
def test_a_run_with_many_rows_goes_whole(driver):
    """It may take many commits; a caller that repeats until nothing is left has removed all of it."""
    claim, small = driver.held(), ended(driver)
    for page in range(10):
        driver.checkpoint(claim, *(done(f"{page}.{number}") for number in range(300)))
    driver.complete(claim)
    driver.clock.turn(TTL_SECONDS)
    assert purged(driver) == Purged(runs=2)
    assert there(driver, claim.id, small) == []
    assert driver.trail() == []
    assert driver.start_many([NewRun(id=claim.id, type=TYPE)]) == [Started(claim.id, True)]
    assert driver.steps(claim.id) == []


@pytest.mark.spec("TTL-1")
def test_a_child_that_an_open_parent_waits_for_stays(driver):
    """It stays until the parent has been told of its end, or waits no longer."""
    children = []
    for _ in range(2):
        child, parent = driver.id(), driver.held(ttl_seconds=AGES)
        driver.park(parent, call("child", child), known=0)
        driver.complete(driver.take(child))
        children.append((child, parent.id))
    driver.clock.turn(TTL_SECONDS)
    assert purged(driver) == Purged()
    driver.cancel(children[0][1])
    driver.deliver()
    assert purged(driver) == Purged(runs=2)
    assert driver.step(children[1][1], "child").status is StepStatus.SUCCEEDED
    assert there(driver, *(child for child, _ in children)) == []


@pytest.mark.spec("DEL-1", "TTL-1", "FLOW-7")
@pytest.mark.parametrize("parent_is", ["waiting", "paused", "leased"])
def test_a_parent_whose_deleted_child_is_removed_waits_no_longer(driver, parent_is):
    """Until then the child may be restored; afterwards it can never end, so the step fails."""
    child, parent = driver.id(), driver.held()
    write = driver.checkpoint if parent_is == "leased" else driver.park
    write(parent, call("child", child), known=0)
    if parent_is == "paused":
        driver.pause(parent.id)
    driver.delete(child)
    driver.clock.turn(DELETED_SECONDS - MICRO)
    assert (purged(driver), driver.step(parent.id, "child").status) == (Purged(), StepStatus.WAITING)
    driver.clock.turn(MICRO)
    assert purged(driver) == Purged(runs=1)
    step = driver.step(parent.id, "child")
    assert (step.status, step.finished_at) == (StepStatus.FAILED, driver.clock.now)
    assert decode(step.output) == {"run": str(child), "status": "gone", "error": None}
    assert step.error.kind == "child_failed"
    woken = Status.PENDING if parent_is == "waiting" else Status(parent_is)
    assert (driver.status(parent.id), driver.told(parent.id).count("woken")) == (woken, 1)
    if parent_is == "paused":
        assert driver.resume(parent.id).status is Status.PENDING
    driver.assert_replayed(parent.id)


@pytest.mark.spec("DEL-1", "TTL-1")
def test_a_deleted_child_that_has_ended_stays_until_its_parent_is_told(driver):
    """Its result is not lost."""
    child, parent = driver.id(), driver.held()
    driver.park(parent, call("child", child), known=0)
    driver.complete(driver.take(child))
    driver.delete(child)
    driver.clock.turn(DELETED_SECONDS)
    assert purged(driver) == Purged()
    assert (driver.deliver(), driver.step(parent.id, "child").status) == (1, StepStatus.SUCCEEDED)
    assert purged(driver) == Purged(runs=1)


@pytest.mark.spec("DEL-1", "TTL-1")
@pytest.mark.parametrize("restored", [True, False])
def test_a_deleted_child_of_a_deleted_parent_goes_after_it_or_when_that_is_restored(driver, restored):
    child, parent = driver.id(), driver.held()
    driver.park(parent, call("child", child), known=0)
    driver.delete(child)
    driver.clock.turn(1)
    driver.delete(parent.id)
    driver.clock.turn(DELETED_SECONDS - 1)
    assert purged(driver) == Purged()
    if restored:
        driver.restore(parent.id)
        assert purged(driver) == Purged(runs=1)
        assert driver.status(parent.id) is Status.PENDING
    else:
        driver.clock.turn(1)
        assert (purged(driver, limit=1), driver.trail()) == (Purged(runs=2), [])


@pytest.mark.spec("EVENT-6", "EVENT-2")
@pytest.mark.parametrize("keep", [None, 1.0, 2 * EVENT_KEEP_SECONDS])
def test_an_event_for_no_one_run_stays_until_its_retention_ends(driver, keep):
    """That is seven days, or longer if the event says so; never shorter: a repeated id must be known."""
    driver.emit(id="e", keep_seconds=keep)
    driver.clock.turn(max(keep or 0.0, EVENT_KEEP_SECONDS) - MICRO)
    assert purged(driver) == Purged()
    assert driver.emit(id="e").duplicate
    driver.clock.turn(MICRO)
    assert purged(driver) == Purged(events=1)
    assert not driver.emit(id="e").duplicate


@pytest.mark.spec("EVENT-6")
def test_an_event_that_is_addressed_stays_as_long_as_its_run(driver):
    """This holds for taken events and for others."""
    claim = driver.held()
    driver.emit("mine", id="e", run=claim.id)
    driver.release(claim)
    driver.clock.turn(AGES)
    assert purged(driver) == Purged()
    claim = driver.take(claim.id)
    assert driver.park(claim, listen("w", "mine"), known=0).status is Status.LEASED
    assert driver.emit("mine", id="e", run=claim.id).duplicate


@pytest.mark.spec("EVENT-6")
def test_an_event_for_a_run_that_is_not_there_goes_like_one_for_nobody(driver):
    """A commit may address a run that was removed since: nothing is kept for ever."""
    claim = driver.held(ttl_seconds=AGES)
    driver.checkpoint(claim, events=(NewEvent(topic="t", id="e", run=driver.id()),))
    driver.deliver()
    driver.release(claim)
    driver.clock.turn(EVENT_KEEP_SECONDS - MICRO)
    assert purged(driver) == Purged()
    driver.clock.turn(MICRO)
    assert purged(driver) == Purged(events=1)


@pytest.mark.spec("EVENT-6", "EVENT-3")
def test_an_event_that_is_not_delivered_is_not_removed(driver):
    """However old it is, it is delivered first."""
    waiter, emitter = driver.held(), driver.held()
    driver.park(waiter, listen("w", "t"), known=0)
    driver.checkpoint(emitter, events=(NewEvent(topic="t", id="e"),))
    driver.release(emitter)
    driver.clock.turn(AGES)
    assert purged(driver) == Purged()
    driver.deliver()
    assert driver.status(waiter.id) is Status.PENDING
    assert purged(driver) == Purged(events=1)


@pytest.mark.spec("TTL-1")
def test_workers_that_are_long_gone_are_forgotten(driver):
    """A worker that is seen now and then stays."""
    for worker in ("gone", "there"):
        driver.run(driver.store.present(Presence(worker=worker, types=(TYPE,))))
    driver.clock.turn(GONE_SECONDS - MICRO)
    driver.run(driver.store.present(Presence(worker="there", types=(TYPE,))))
    assert purged(driver) == Purged()
    driver.clock.turn(MICRO)
    assert purged(driver) == Purged(workers=1)
    assert [worker.worker for worker in driver.stats().workers] == ["there"]


@pytest.mark.spec("TTL-1", "LEASE-4")
def test_a_zombie_of_a_run_that_was_removed_is_told_that_it_is_lost(driver):
    """The answer is that for any missing run."""
    claim = driver.held()
    driver.cancel(claim.id)
    driver.clock.turn(TTL_SECONDS)
    assert purged(driver).runs == 1
    before = driver.everything()
    assert driver.checkpoint(claim, done("late")).answer == "lost"
    assert driver.renew(claim).held[0].answer == "lost"
    assert driver.everything() == before


@pytest.mark.spec("LEASE-4", "START-8", "TTL-1")
@pytest.mark.parametrize("again", ["started", "started by another run's commit"])
def test_a_zombie_stays_shut_out_of_a_new_run_under_the_same_id(driver, again):
    """A purge frees the id, but no fence is used twice."""
    zombies = [driver.held()]
    for _ in range(5):
        driver.release(zombies[-1])
        zombies.append(driver.take())
    driver.delete(zombies[0].id)
    assert purged(driver, deleted_seconds=0).runs == 1
    if again == "started":
        driver.start(id=zombies[0].id)
    else:
        starter = driver.held()
        driver.complete(starter, starts=(NewRun(id=zombies[0].id, type=TYPE),))
    holder = driver.take(zombies[0].id)
    before = driver.snapshot(holder.id)
    for number in range(1, 4):
        for zombie in zombies:
            late = driver.item(zombie, Move.COMPLETE, result='"late"', number=number)
            assert driver.send(late)[0].answer == "lost"
            assert driver.renew(zombie).held[0].answer == "lost"
    assert driver.snapshot(holder.id) == before
    assert driver.complete(holder).answer == "applied"


@pytest.mark.spec("LIMIT-2")
def test_claims_that_no_rate_counts_any_more_go_with_a_purge(driver):
    """Claims that still count are kept."""
    driver.run(driver.store.limit("key", "%", rate=(1, 60.0)))
    for number in range(300):
        driver.start(limit_key=f"k{number}")
    assert len(driver.claim(limit=300)) == 300
    again = driver.start(limit_key="k7")
    driver.clock.turn(60 - MICRO)
    assert purged(driver) == Purged()
    assert driver.claim() == []
    driver.clock.turn(MICRO)
    assert purged(driver) == Purged(claims=300)
    assert purged(driver) == Purged()
    driver.take(again)
