"""delete, restore: a run is hidden in its current state, and shown again."""

from __future__ import annotations

import pytest

from holdfast.errors import DuplicateRun, KeyReused, UnknownRun
from holdfast.lifecycle import Status
from holdfast.records import ANY, NewRun, RunFilter, Started, moment

from .driver import TYPE, done, listen, sleep


def _listed(driver, **where):
    return [run.id for run in driver.run(driver.store.list(RunFilter(**where)))]


@pytest.mark.spec("DEL-1", "READ-1", "LEASE-1")
def test_a_deleted_run_is_hidden_from_claims_lists_and_reads(driver):
    """It is hidden at once, unless a filter asks for deleted runs."""
    other, run = driver.start(), driver.start()
    driver.clock.turn(1)
    seen = driver.delete(run, by="ann")
    assert (seen.id, seen.status, seen.deleted_at) == (run, Status.PENDING, moment(driver.clock.now))

    assert driver.get(run) is None
    assert driver.trail(run) == []
    assert _listed(driver) == [other]
    assert _listed(driver, deleted=True) == [run, other]
    assert driver.stats().by_status["pending"] == 1
    assert driver.stats().unclaimable == {TYPE: 1}
    assert [claim.id for claim in driver.claim()] == [other]
    assert driver.due().claim_at is None


@pytest.mark.spec("DEL-1", "TRAIL-3")
def test_the_trail_of_all_runs_tells_of_deleted_ones_too(driver):
    """The trail is the audit log: it names the person who deleted a run until the run is purged."""
    run = driver.start()
    driver.delete(run, by="ann")
    assert [(entry.run, entry.type) for entry in driver.trail()] == [(run, "created"), (run, "deleted")]
    assert driver.trail(types=("deleted",))[0].data == {"by": "ann"}


@pytest.mark.spec("DEL-1", "READ-1", "TRAIL-3")
def test_the_trail_of_a_tenant_leaves_out_deleted_runs(driver):
    """The trail of a deleted run is left out too; restored, both are there again."""
    kept, run = driver.start(), driver.start()
    whole = driver.trail(tenant="default")
    driver.delete(run, by="ann")
    assert [entry.run for entry in driver.trail(tenant="default")] == [kept]
    assert driver.trail(types=("deleted",), tenant="default") == []
    driver.restore(run)
    assert driver.trail(tenant="default")[: len(whole)] == whole


@pytest.mark.spec("DEL-1", "READ-1")
@pytest.mark.parametrize("verb", ["steps", "cancel", "pause", "resume", "rewind", "retry_run", "emit"])
def test_every_verb_on_a_deleted_run_answers_as_for_one_that_is_not_there(driver, verb):
    """The answer is UnknownRun, and nothing changes."""
    claim = driver.held()
    driver.checkpoint(claim)
    driver.fail(claim, step="first")
    driver.delete(claim.id)
    before = driver.everything()
    calls = {"rewind": lambda: driver.rewind(claim.id, "first"), "emit": lambda: driver.emit(run=claim.id)}
    with pytest.raises(UnknownRun):
        calls.get(verb, lambda: getattr(driver, verb)(claim.id))()
    assert driver.everything() == before


@pytest.mark.spec("DEL-1")
def test_deleting_and_restoring_twice_changes_nothing_more(driver):
    """Each has one row in the trail; the time of the first deletion stays."""
    run = driver.start()
    assert driver.restore(run) == driver.get(run)
    first = driver.delete(run, by="ann")
    driver.clock.turn(5)
    assert driver.delete(run, by="bob") == first
    assert driver.restore(run, by="eve").deleted_at is None
    shown = driver.get(run)
    assert driver.restore(run, by="bob") == shown
    assert driver.told(run) == ["created", "deleted", "restored"]
    assert (driver.last(run, "deleted"), driver.last(run, "restored")) == ({"by": "ann"}, {"by": "eve"})
    driver.assert_replayed(run)


@pytest.mark.spec("DEL-1")
@pytest.mark.parametrize("verb", ["delete", "restore"])
def test_a_missing_or_foreign_run_is_neither_deleted_nor_restored(driver, verb):
    """The answer is UnknownRun, as in every verb on one run."""
    run = driver.start()
    if verb == "restore":
        driver.delete(run)
    for asked, tenant in ((driver.id(), ANY), (run, "acme")):
        with pytest.raises(UnknownRun, match=str(asked)):
            getattr(driver, verb)(asked, tenant=tenant)
    assert (driver.get(run) is None) == (verb == "restore")
    assert getattr(driver, verb)(run, tenant="default").id == run


@pytest.mark.spec("DEL-1", "LEASE-4", "MOVE-5")
def test_a_run_that_is_deleted_under_its_holder_is_fenced_off_first(driver):
    """Its holder writes nothing more, and its attempt is refunded; after a restore it goes on."""
    claim = driver.held()
    driver.checkpoint(claim)
    seen = driver.delete(claim.id, by="ann")
    assert (seen.status, seen.fence, seen.attempt) == (Status.PENDING, claim.fence + 1, 0)
    assert (seen.leased_by, seen.lease_until, seen.run_at) == (None, None, moment(driver.clock.now))

    assert driver.checkpoint(claim, done("late")).answer == "lost"
    assert driver.complete(claim).answer == "lost"
    assert driver.renew(claim).held[0].answer == "lost"
    driver.clock.turn(31)
    assert driver.tick().total == 0
    assert driver.claim() == []

    driver.restore(claim.id)
    assert driver.last(claim.id, "deleted") == {"by": "ann", "status": "pending"}
    driver.assert_replayed(claim.id)
    again = driver.take(claim.id, "w2")
    assert (again.attempt, [step.key for step in again.steps]) == (1, ["first"])


@pytest.mark.spec("DEL-1", "PAUSE-3", "MOVE-5")
def test_a_pause_that_was_asked_of_a_run_is_kept_when_it_is_deleted(driver):
    """After a restore the run is paused and does not go on by itself."""
    claim = driver.held()
    driver.pause(claim.id, by="bob")
    seen = driver.delete(claim.id, by="ann")
    assert (seen.status, seen.pause_asked_by) == (Status.PAUSED, "bob")
    driver.restore(claim.id)
    assert driver.told(claim.id)[-3:] == ["deleted", "paused", "restored"]
    assert driver.last(claim.id, "paused") == {"by": "bob"}
    driver.assert_replayed(claim.id)
    assert driver.resume(claim.id).status is Status.PENDING


@pytest.mark.spec("DEL-1", "LEASE-14")
def test_an_item_that_was_applied_before_the_deletion_is_answered_as_the_first_time(driver):
    """A repeat after a lost reply gets the first answer."""
    claim = driver.held()
    item = driver.item(claim, "complete", result="1")
    (first,) = driver.send(item)
    driver.delete(claim.id)
    assert driver.send(item) == [first]


@pytest.mark.spec("DEL-1")
def test_chores_go_on_while_a_run_is_deleted(driver):
    """After a restore the run has the state that chores gave it; but no worker has executed it."""
    napping, hearing = driver.held(), driver.held()
    late = driver.start(timeout_seconds=10.0)
    driver.park(napping, sleep(seconds=10.0), known=0)
    driver.park(hearing, listen(), known=0)
    for run in (napping.id, hearing.id, late):
        driver.delete(run)
    assert driver.run(driver.store.waiting_on("parcel", "default")) == []
    assert driver.emit(id="e").woken == 0
    assert driver.emit(id="e").woken == 0
    driver.clock.turn(10)
    ticked = driver.tick()
    assert (ticked.lapsed, ticked.timed_out, ticked.failed) == (1, 1, (late,))
    assert driver.claim() == []

    for run in (napping.id, hearing.id, late):
        driver.restore(run)
        driver.assert_replayed(run)
    assert (driver.status(napping.id), driver.status(hearing.id)) == (Status.PENDING, Status.PENDING)
    assert driver.status(late) is Status.FAILED
    assert {claim.id for claim in driver.claim()} == {napping.id, hearing.id}


@pytest.mark.spec("DEL-1", "START-4", "START-8")
def test_the_key_and_the_id_of_a_deleted_run_stay_taken(driver):
    """The same start again names the deleted run, and starts no second one."""
    run = driver.start(key="order:1", digest="d")
    driver.delete(run)
    again = NewRun(id=driver.id(), type=TYPE, key="order:1", digest="d")
    other = NewRun(id=driver.id(), type=TYPE, key="order:1", digest="e")
    same_id = NewRun(id=run, type=TYPE)
    answers = driver.start_many([again, other, same_id])
    assert answers[0] == Started(run, created=False)
    assert [type(answer) for answer in answers[1:]] == [KeyReused, DuplicateRun]
    assert driver.claim() == []


@pytest.mark.spec("LEASE-6", "RETRY-9")
def test_a_round_of_chores_names_the_runs_that_it_has_failed(driver):
    """These are runs at the crash cap or past their timeout, not runs that will be retried."""
    late, crashed = driver.start("other.type.v1", timeout_seconds=200.0), driver.start()
    failed = []
    for _ in range(4):
        (claim,) = driver.claim()
        assert claim.id == crashed
        driver.clock.turn(31)
        failed.append(driver.tick().failed)
        driver.clock.turn(10)
    assert failed == [(), (), (), (crashed,)]
    driver.clock.turn(200)
    assert driver.tick().failed == (late,)
