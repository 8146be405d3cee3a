"""delete, restore: a run is hidden, as it was, and shown again."""

from __future__ import annotations

import pytest

from holdfast.errors import DuplicateRun, KeyReused, UnknownRun
from holdfast.lifecycle import Status
from holdfast.records import ANY, NewRun, RunFilter, Started, moment

from .hand import TYPE, done, listen, sleep


def _listed(hand, **where):
    return [run.id for run in hand.run(hand.store.list(RunFilter(**where)))]


@pytest.mark.spec("DEL-1", "READ-1", "LEASE-1")
def test_a_deleted_run_is_hidden_from_claims_lists_and_reads(hand):
    """At once, everywhere, unless deleted runs are asked for."""
    other, run = hand.start(), hand.start()
    hand.clock.turn(1)
    seen = hand.delete(run, by="ann")
    assert (seen.id, seen.status, seen.deleted_at) == (run, Status.PENDING, moment(hand.clock.now))

    assert hand.get(run) is None
    assert hand.trail(run) == []
    assert _listed(hand) == [other]
    assert _listed(hand, deleted=True) == [run, other]
    assert hand.stats().by_status["pending"] == 1
    assert hand.stats().unclaimable == {TYPE: 1}
    assert [claim.id for claim in hand.claim()] == [other]
    assert hand.due().claim_at is None


@pytest.mark.spec("DEL-1", "TRAIL-3")
def test_the_trail_of_all_runs_tells_of_deleted_ones_too(hand):
    """It is the audit log: who deleted a run is found there until the run is removed."""
    run = hand.start()
    hand.delete(run, by="ann")
    assert [(entry.run, entry.type) for entry in hand.trail()] == [(run, "created"), (run, "deleted")]
    assert hand.trail(types=("deleted",))[0].data == {"by": "ann"}


@pytest.mark.spec("DEL-1", "READ-1", "TRAIL-3")
def test_the_trail_of_a_tenant_leaves_out_deleted_runs(hand):
    """The trail of a deleted run is left out too; restored, both are there again."""
    kept, run = hand.start(), hand.start()
    whole = hand.trail(tenant="default")
    hand.delete(run, by="ann")
    assert [entry.run for entry in hand.trail(tenant="default")] == [kept]
    assert hand.trail(types=("deleted",), tenant="default") == []
    hand.restore(run)
    assert hand.trail(tenant="default")[: len(whole)] == whole


@pytest.mark.spec("DEL-1", "READ-1")
@pytest.mark.parametrize("verb", ["steps", "cancel", "pause", "resume", "rewind", "retry_run", "emit"])
def test_every_verb_on_a_deleted_run_answers_as_for_one_that_is_not_there(hand, verb):
    """UnknownRun, and nothing changes."""
    claim = hand.held()
    hand.checkpoint(claim)
    hand.fail(claim, step="first")
    hand.delete(claim.id)
    before = hand.everything()
    calls = {"rewind": lambda: hand.rewind(claim.id, "first"), "emit": lambda: hand.emit(run=claim.id)}
    with pytest.raises(UnknownRun):
        calls.get(verb, lambda: getattr(hand, verb)(claim.id))()
    assert hand.everything() == before


@pytest.mark.spec("DEL-1")
def test_deleting_and_restoring_twice_changes_nothing_more(hand):
    """One row in the trail each; the time of the first deletion stands."""
    run = hand.start()
    assert hand.restore(run) == hand.get(run)
    first = hand.delete(run, by="ann")
    hand.clock.turn(5)
    assert hand.delete(run, by="bob") == first
    assert hand.restore(run, by="eve").deleted_at is None
    shown = hand.get(run)
    assert hand.restore(run, by="bob") == shown
    assert hand.told(run) == ["created", "deleted", "restored"]
    assert (hand.last(run, "deleted"), hand.last(run, "restored")) == ({"by": "ann"}, {"by": "eve"})
    hand.assert_replayed(run)


@pytest.mark.spec("DEL-1")
@pytest.mark.parametrize("verb", ["delete", "restore"])
def test_what_is_not_there_or_another_tenants_is_neither_deleted_nor_restored(hand, verb):
    """UnknownRun, as in every verb on one run."""
    run = hand.start()
    if verb == "restore":
        hand.delete(run)
    for asked, tenant in ((hand.id(), ANY), (run, "acme")):
        with pytest.raises(UnknownRun, match=str(asked)):
            getattr(hand, verb)(asked, tenant=tenant)
    assert (hand.get(run) is None) == (verb == "restore")
    assert getattr(hand, verb)(run, tenant="default").id == run


@pytest.mark.spec("DEL-1", "LEASE-4", "MOVE-5")
def test_a_run_that_is_deleted_under_its_holder_is_fenced_off_first(hand):
    """Whoever is at it writes nothing more; its attempt is given back; restored, it goes on."""
    claim = hand.held()
    hand.checkpoint(claim)
    seen = hand.delete(claim.id, by="ann")
    assert (seen.status, seen.fence, seen.attempt) == (Status.PENDING, claim.fence + 1, 0)
    assert (seen.leased_by, seen.lease_until, seen.run_at) == (None, None, moment(hand.clock.now))

    assert hand.checkpoint(claim, done("late")).answer == "lost"
    assert hand.complete(claim).answer == "lost"
    assert hand.renew(claim).held[0].answer == "lost"
    hand.clock.turn(31)
    assert hand.tick().total == 0
    assert hand.claim() == []

    hand.restore(claim.id)
    assert hand.last(claim.id, "deleted") == {"by": "ann", "status": "pending"}
    hand.assert_replayed(claim.id)
    again = hand.take(claim.id, "w2")
    assert (again.attempt, [step.key for step in again.steps]) == (1, ["first"])


@pytest.mark.spec("DEL-1", "PAUSE-3", "MOVE-5")
def test_a_pause_that_was_asked_of_a_run_is_kept_when_it_is_deleted(hand):
    """Restored, it does not start to run behind the back of whoever paused it."""
    claim = hand.held()
    hand.pause(claim.id, by="bob")
    seen = hand.delete(claim.id, by="ann")
    assert (seen.status, seen.pause_asked_by) == (Status.PAUSED, None)
    hand.restore(claim.id)
    assert hand.told(claim.id)[-3:] == ["deleted", "paused", "restored"]
    assert hand.last(claim.id, "paused") == {"by": "bob"}
    hand.assert_replayed(claim.id)
    assert hand.resume(claim.id).status is Status.PENDING


@pytest.mark.spec("DEL-1", "LEASE-14")
def test_an_item_that_was_applied_before_the_deletion_is_answered_as_the_first_time(hand):
    """A lost reply is no reason to be told another story."""
    claim = hand.held()
    item = hand.item(claim, "complete", result="1")
    (first,) = hand.send(item)
    hand.delete(claim.id)
    assert hand.send(item) == [first]


@pytest.mark.spec("DEL-1")
def test_chores_go_on_while_a_run_is_deleted(hand):
    """Restored, it is what it would have become; but nobody has executed it."""
    napping, hearing = hand.held(), hand.held()
    late = hand.start(timeout_seconds=10.0)
    hand.park(napping, sleep(seconds=10.0), known=0)
    hand.park(hearing, listen(), known=0)
    for run in (napping.id, hearing.id, late):
        hand.delete(run)
    assert hand.run(hand.store.waiting_on("parcel", "default")) == []
    assert hand.emit(id="e").woken == 0
    assert hand.emit(id="e").woken == 0
    hand.clock.turn(10)
    ticked = hand.tick()
    assert (ticked.lapsed, ticked.timed_out, ticked.failed) == (1, 1, (late,))
    assert hand.claim() == []

    for run in (napping.id, hearing.id, late):
        hand.restore(run)
        hand.assert_replayed(run)
    assert (hand.status(napping.id), hand.status(hearing.id)) == (Status.PENDING, Status.PENDING)
    assert hand.status(late) is Status.FAILED
    assert {claim.id for claim in hand.claim()} == {napping.id, hearing.id}


@pytest.mark.spec("DEL-1", "START-4", "START-8")
def test_the_key_and_the_id_of_a_deleted_run_stay_taken(hand):
    """The same start again names the deleted run; it is not started a second time."""
    run = hand.start(key="order:1", digest="d")
    hand.delete(run)
    again = NewRun(id=hand.id(), type=TYPE, key="order:1", digest="d")
    other = NewRun(id=hand.id(), type=TYPE, key="order:1", digest="e")
    same_id = NewRun(id=run, type=TYPE)
    answers = hand.start_many([again, other, same_id])
    assert answers[0] == Started(run, created=False)
    assert [type(answer) for answer in answers[1:]] == [KeyReused, DuplicateRun]
    assert hand.claim() == []


@pytest.mark.spec("LEASE-6", "RETRY-9")
def test_a_round_of_chores_names_the_runs_that_it_has_failed(hand):
    """At the crash cap, or past their timeout; those that will be tried again are not among them."""
    late, crashed = hand.start("other.type.v1", timeout_seconds=200.0), hand.start()
    failed = []
    for _ in range(4):
        (claim,) = hand.claim()
        assert claim.id == crashed
        hand.clock.turn(31)
        failed.append(hand.tick().failed)
        hand.clock.turn(10)
    assert failed == [(), (), (), (crashed,)]
    hand.clock.turn(200)
    assert hand.tick().failed == (late,)
