"""Chains: events that are given to them, and how long their runs and events are kept."""

from __future__ import annotations

import pytest

from holdfast.contract import DELETED_SECONDS, EVENT_KEEP_SECONDS, TTL_SECONDS
from holdfast.errors import IllegalMove, UnknownRun
from holdfast.lifecycle import Status, StepKind, StepStatus
from holdfast.records import NewRun, StepWrite

from .chaining import chain, go_on, payloads, purge_all, wait
from .hand import TYPE, listen


@pytest.mark.spec("FLOW-24")
def test_events_that_came_before_the_present_run_are_given_to_it_in_order_and_each_once(hand):
    """One run waits, three events come: the chain gets all three, the oldest first."""
    claim = hand.held()
    hand.park(claim, listen(), known=0)
    for n in (1, 2, 3):
        hand.emit(payload=str(n))
    got, first = [], claim.id
    claim = hand.take(first)
    got += payloads(hand, claim.id)
    for _ in range(2):
        claim = hand.take(go_on(hand, claim))
        got.append(wait(hand, claim))
    assert got == [1, 2, 3]
    claim = hand.take(go_on(hand, claim))
    assert wait(hand, claim) is None
    assert hand.status(claim.id) is Status.WAITING
    assert hand.emit(payload="4").woken == 1
    assert payloads(hand, claim.id) == [4]


@pytest.mark.spec("FLOW-24")
def test_events_before_the_start_of_the_chain_are_none_of_its_own(hand):
    hand.emit(payload="0")
    _, claim = chain(hand, 3)
    assert wait(hand, claim) is None


@pytest.mark.spec("FLOW-24")
def test_since_now_passes_over_what_is_there_which_a_later_run_then_takes(hand):
    claim = hand.held()
    hand.emit(payload="1")
    claim = hand.take(go_on(hand, claim))
    assert wait(hand, claim, since_now=True) is None
    hand.emit(payload="2")
    claim = hand.take(claim.id)
    assert payloads(hand, claim.id) == [2]
    claim = hand.take(go_on(hand, claim))
    assert wait(hand, claim) == 1
    claim = hand.take(go_on(hand, claim))
    assert wait(hand, claim) is None


@pytest.mark.spec("FLOW-24")
def test_an_event_that_a_given_up_wait_had_taken_is_free_for_the_chain_again(hand):
    """That of the same step of an earlier run is not."""
    claim = hand.held()
    for n in (1, 2):
        hand.emit(payload=str(n))
    assert wait(hand, claim) == 1
    claim = hand.take(go_on(hand, claim))
    assert wait(hand, claim) == 2
    hand.checkpoint(claim, StepWrite(key="wait", kind=StepKind.EVENT, status=StepStatus.CANCELLED))
    claim = hand.take(go_on(hand, claim))
    assert wait(hand, claim) == 2
    assert hand.rewind(claim.id, "wait").id == claim.id
    claim = hand.take(claim.id)
    assert wait(hand, claim) == 2


@pytest.mark.spec("FLOW-24")
@pytest.mark.parametrize("by", [0, 1, 2])
def test_an_event_for_any_run_of_a_chain_reaches_the_present_one(hand, by):
    """Waiting for it or not, and the run after that too."""
    ids, claim = chain(hand, 3)
    hand.park(claim, listen(), known=0)
    assert hand.emit(payload="1", run=ids[by]).woken == 1
    assert hand.emit(payload="2", run=ids[by]).woken == 0
    claim = hand.take(ids[2])
    assert payloads(hand, ids[2]) == [1]
    claim = hand.take(go_on(hand, claim))
    assert wait(hand, claim) == 2
    hand.complete(claim)
    with pytest.raises(IllegalMove) as refusal:
        hand.emit(run=ids[by])
    assert (refusal.value.run_id, refusal.value.status) == (claim.id, Status.SUCCEEDED)


@pytest.mark.spec("FLOW-24")
def test_a_long_chain_takes_each_of_many_events_once(hand):
    """Also what lies behind so many that the store remembers how far it has come."""
    claim, got = hand.held(), []
    for n in range(40):
        hand.emit(payload=str(n))
        hand.emit("other", payload=str(n))
    for _ in range(20):
        got.append(wait(hand, claim, "a"))
        got.append(wait(hand, claim, "b"))
        claim = hand.take(go_on(hand, claim))
    assert got == list(range(40))
    assert wait(hand, claim, "other", topic="other") == 0
    assert wait(hand, claim, "last") is None
    assert hand.emit(payload="40").woken == 1


@pytest.mark.spec("FLOW-24")
@pytest.mark.parametrize("by", [0, 1, 3])
def test_delete_takes_the_whole_chain_and_restore_brings_it_back(hand, by):
    ids, claim = chain(hand, 4)
    assert hand.delete(ids[by], by="ann").id == ids[3]
    assert [hand.get(run) for run in ids] == [None] * 4
    assert hand.checkpoint(claim).answer == "lost"
    for run in ids:
        with pytest.raises(UnknownRun):
            hand.cancel(run)
    assert hand.tick().total == 0
    before = hand.everything()
    hand.delete(ids[by])
    assert hand.everything() == before
    assert hand.restore(ids[by]).id == ids[3]
    assert [hand.get(run).status for run in ids] == ["succeeded"] * 3 + ["pending"]
    hand.complete(hand.take(ids[3]))


@pytest.mark.spec("FLOW-24")
def test_runs_in_the_middle_go_by_their_ttl_and_the_first_with_the_last(hand):
    """The key stays taken and the first id stays good until then; the events are still known as taken."""
    ids, claim = chain(hand, 4, key="k", digest="d")
    hand.emit(payload="1")
    assert wait(hand, claim) == 1
    hand.clock.turn(TTL_SECONDS)
    assert purge_all(hand) == 2
    assert [hand.get(run) is None for run in ids] == [False, True, True, False]
    hand.tick()
    hand.cancel(ids[0])
    hand.clock.turn(TTL_SECONDS - 1)
    assert purge_all(hand) == 0
    (answer,) = hand.start_many([NewRun(id=hand.id(), type=TYPE, key="k", digest="d")])
    assert (answer.id, answer.created) == (ids[0], False)
    hand.clock.turn(1)
    assert purge_all(hand) == 2
    assert [hand.get(run) for run in ids] == [None] * 4
    (answer,) = hand.start_many([NewRun(id=hand.id(), type=TYPE, key="k", digest="d")])
    assert answer.created


@pytest.mark.spec("FLOW-24")
def test_a_deleted_chain_is_purged_as_a_whole(hand):
    ids, _ = chain(hand, 3)
    hand.emit(run=ids[1])
    hand.delete(ids[0])
    hand.clock.turn(DELETED_SECONDS)
    assert purge_all(hand) == 3
    assert [hand.get(run) for run in ids] == [None] * 3
    assert hand.trail() == []


@pytest.mark.spec("FLOW-24")
def test_an_event_for_a_chain_is_kept_while_it_goes_on(hand):
    """However many of its runs were purged meanwhile; one that was taken is not kept for ever."""
    ids, claim = chain(hand, 2)
    hand.emit(payload="1", run=ids[0], id="one")
    hand.emit(payload="2", run=ids[1], id="two")
    assert wait(hand, claim) == 1
    claim = hand.take(go_on(hand, claim), lease=10 * TTL_SECONDS)
    hand.clock.turn(max(TTL_SECONDS, EVENT_KEEP_SECONDS))
    assert hand.purge().total > 0
    purge_all(hand)
    assert not hand.emit(payload="3", run=ids[0], id="one").duplicate
    assert hand.emit(payload="4", run=ids[0], id="two").duplicate
    assert [wait(hand, claim, "a"), wait(hand, claim, "b")] == [2, 3]
