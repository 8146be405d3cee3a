"""Events of chains: which run of a chain gets them, and how long runs and events are kept."""

from __future__ import annotations

import pytest

from holdfast.contract import DELETED_SECONDS, EVENT_KEEP_SECONDS, TTL_SECONDS
from holdfast.errors import IllegalMove, UnknownRun
from holdfast.lifecycle import Status, StepKind, StepStatus
from holdfast.records import NewRun, StepWrite

from .chains import chain, go_on, payloads, purge_all, wait
from .driver import TYPE, listen


@pytest.mark.spec("FLOW-24")
def test_events_that_came_before_the_present_run_are_given_to_it_in_order_and_each_once(driver):
    """One run waits and three events come: the chain gets all three, the oldest first."""
    claim = driver.held()
    driver.park(claim, listen(), known=0)
    for n in (1, 2, 3):
        driver.emit(payload=str(n))
    got, first = [], claim.id
    claim = driver.take(first)
    got += payloads(driver, claim.id)
    for _ in range(2):
        claim = driver.take(go_on(driver, claim))
        got.append(wait(driver, claim))
    assert got == [1, 2, 3]
    claim = driver.take(go_on(driver, claim))
    assert wait(driver, claim) is None
    assert driver.status(claim.id) is Status.WAITING
    assert driver.emit(payload="4").woken == 1
    assert payloads(driver, claim.id) == [4]


@pytest.mark.spec("FLOW-24")
def test_events_before_the_start_of_the_chain_are_none_of_its_own(driver):
    driver.emit(payload="0")
    _, claim = chain(driver, 3)
    assert wait(driver, claim) is None


@pytest.mark.spec("FLOW-24")
def test_since_now_passes_over_what_is_there_which_a_later_run_then_takes(driver):
    claim = driver.held()
    driver.emit(payload="1")
    claim = driver.take(go_on(driver, claim))
    assert wait(driver, claim, since_now=True) is None
    driver.emit(payload="2")
    claim = driver.take(claim.id)
    assert payloads(driver, claim.id) == [2]
    claim = driver.take(go_on(driver, claim))
    assert wait(driver, claim) == 1
    claim = driver.take(go_on(driver, claim))
    assert wait(driver, claim) is None


@pytest.mark.spec("FLOW-24")
def test_an_event_that_a_given_up_wait_had_taken_is_free_for_the_chain_again(driver):
    """An event that the same step of an earlier run has taken is not free."""
    claim = driver.held()
    for n in (1, 2):
        driver.emit(payload=str(n))
    assert wait(driver, claim) == 1
    claim = driver.take(go_on(driver, claim))
    assert wait(driver, claim) == 2
    driver.checkpoint(claim, StepWrite(key="wait", kind=StepKind.EVENT, status=StepStatus.CANCELLED))
    claim = driver.take(go_on(driver, claim))
    assert wait(driver, claim) == 2
    assert driver.rewind(claim.id, "wait").id == claim.id
    claim = driver.take(claim.id)
    assert wait(driver, claim) == 2


@pytest.mark.spec("FLOW-24")
@pytest.mark.parametrize("by", [0, 1, 2])
def test_an_event_for_any_run_of_a_chain_reaches_the_present_one(driver, by):
    """The event reaches the present run whether it waits or not, and later runs too."""
    ids, claim = chain(driver, 3)
    driver.park(claim, listen(), known=0)
    assert driver.emit(payload="1", run=ids[by]).woken == 1
    assert driver.emit(payload="2", run=ids[by]).woken == 0
    claim = driver.take(ids[2])
    assert payloads(driver, ids[2]) == [1]
    claim = driver.take(go_on(driver, claim))
    assert wait(driver, claim) == 2
    driver.complete(claim)
    with pytest.raises(IllegalMove) as refusal:
        driver.emit(run=ids[by])
    assert (refusal.value.run_id, refusal.value.status) == (claim.id, Status.SUCCEEDED)


@pytest.mark.spec("FLOW-24")
def test_a_long_chain_takes_each_of_many_events_once(driver):
    """This holds also for events before the position that the store remembers."""
    claim, got = driver.held(), []
    for n in range(40):
        driver.emit(payload=str(n))
        driver.emit("other", payload=str(n))
    for _ in range(20):
        got.append(wait(driver, claim, "a"))
        got.append(wait(driver, claim, "b"))
        claim = driver.take(go_on(driver, claim))
    assert got == list(range(40))
    assert wait(driver, claim, "other", topic="other") == 0
    assert wait(driver, claim, "last") is None
    assert driver.emit(payload="40").woken == 1


@pytest.mark.spec("FLOW-24")
@pytest.mark.parametrize("by", [0, 1, 3])
def test_delete_takes_the_whole_chain_and_restore_brings_it_back(driver, by):
    ids, claim = chain(driver, 4)
    assert driver.delete(ids[by], by="ann").id == ids[3]
    assert [driver.get(run) for run in ids] == [None] * 4
    assert driver.checkpoint(claim).answer == "lost"
    for run in ids:
        with pytest.raises(UnknownRun):
            driver.cancel(run)
    assert driver.tick().total == 0
    before = driver.everything()
    driver.delete(ids[by])
    assert driver.everything() == before
    assert driver.restore(ids[by]).id == ids[3]
    assert [driver.get(run).status for run in ids] == ["succeeded"] * 3 + ["pending"]
    driver.complete(driver.take(ids[3]))


@pytest.mark.spec("FLOW-24")
def test_middle_runs_expire_by_their_ttl_and_the_first_with_the_last(driver):
    """The key stays taken and the first id stays valid until then; taken events stay known."""
    ids, claim = chain(driver, 4, key="k", digest="d")
    driver.emit(payload="1")
    assert wait(driver, claim) == 1
    driver.clock.turn(TTL_SECONDS)
    assert purge_all(driver) == 2
    assert [driver.get(run) is None for run in ids] == [False, True, True, False]
    driver.tick()
    driver.cancel(ids[0])
    driver.clock.turn(TTL_SECONDS - 1)
    assert purge_all(driver) == 0
    (answer,) = driver.start_many([NewRun(id=driver.id(), type=TYPE, key="k", digest="d")])
    assert (answer.id, answer.created) == (ids[0], False)
    driver.clock.turn(1)
    assert purge_all(driver) == 2
    assert [driver.get(run) for run in ids] == [None] * 4
    (answer,) = driver.start_many([NewRun(id=driver.id(), type=TYPE, key="k", digest="d")])
    assert answer.created


@pytest.mark.spec("FLOW-24")
def test_a_deleted_chain_is_purged_as_a_whole(driver):
    ids, _ = chain(driver, 3)
    driver.emit(run=ids[1])
    driver.delete(ids[0])
    driver.clock.turn(DELETED_SECONDS)
    assert purge_all(driver) == 3
    assert [driver.get(run) for run in ids] == [None] * 3
    assert driver.trail() == []


@pytest.mark.spec("FLOW-24")
def test_an_event_for_a_chain_is_kept_while_it_goes_on(driver):
    """The event is kept however many runs of the chain were purged; a taken event is not kept for ever."""
    ids, claim = chain(driver, 2)
    driver.emit(payload="1", run=ids[0], id="one")
    driver.emit(payload="2", run=ids[1], id="two")
    assert wait(driver, claim) == 1
    claim = driver.take(go_on(driver, claim), lease=10 * TTL_SECONDS)
    driver.clock.turn(max(TTL_SECONDS, EVENT_KEEP_SECONDS))
    assert driver.purge().total > 0
    purge_all(driver)
    assert not driver.emit(payload="3", run=ids[0], id="one").duplicate
    assert driver.emit(payload="4", run=ids[0], id="two").duplicate
    assert [wait(driver, claim, "a"), wait(driver, claim, "b")] == [2, 3]
