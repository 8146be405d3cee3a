"""Races of chains: moves reach the present run while the chain goes on, and no event is missed."""

from __future__ import annotations

import pytest

from holdfast.lifecycle import Move, Status
from holdfast.records import NewEvent
from holdfast.testing.contract.chains import chain, go_on, next_of, payloads, wait
from holdfast.testing.contract.driver import ask, done, listen


def going_on(driver, claim):
    """The arguments of a commit that continues the chain, and the id of the next run."""
    new = next_of(driver, claim)
    return ([driver.item(claim, Move.COMPLETE, starts=(new,))], None, None, None, True), new.id


@pytest.mark.spec("FLOW-24", "CANC-1")
@pytest.mark.parametrize("links", [1, 3])
@pytest.mark.parametrize("verb", ["cancel", "pause", "delete"])
def test_a_verb_that_meets_a_chain_which_goes_on_acts_on_the_next_run(driver, sessions, verb, links):
    """The verb has waited for the commit, and must not find the run that has just ended."""
    one, two = sessions
    ids, claim = chain(driver, links)
    args, next_run = going_on(driver, claim)
    one.begin()
    one.call("commit", *args)
    more = (True,) if verb == "cancel" else ()
    late = two.waits(verb, str(ids[0]), None, "ann", *more)
    one.commit()
    shown = late.result()
    assert shown["id"] == str(next_run)
    if verb == "delete":
        driver.deliver()
        assert [driver.get(run) for run in (*ids, next_run)] == [None] * (links + 1)
    else:
        assert driver.status(next_run) == {"cancel": Status.CANCELLED, "pause": Status.PAUSED}[verb]


@pytest.mark.spec("FLOW-24")
def test_a_commit_does_not_wait_for_one_who_acts_on_the_chain(driver, sessions):
    """The commit holds the row that the other session needs next: it is busy, and succeeds when it is sent
    again.
    """
    one, two = sessions
    ids, claim = chain(driver, 2)
    args, next_run = going_on(driver, claim)
    one.begin()
    one.run("select 1 from workflow_run where id = %s for no key update", ids[0])
    (busy,) = two.call("commit", *args)["verdicts"]
    assert (busy["answer"], driver.get(next_run)) == ("busy", None)
    assert driver.checkpoint(claim, done("meanwhile"), number=1).answer == "applied"
    one.commit()
    later = driver.item(claim, Move.COMPLETE, starts=(next_of(driver, claim),), number=2)
    (verdict,) = two.call("commit", [later], None, None, None, True)["verdicts"]
    assert verdict["answer"] == "applied"


@pytest.mark.spec("FLOW-24", "EVENT-7")
def test_an_event_for_a_chain_that_goes_on_meanwhile_is_there_for_the_next_run(driver, sessions):
    one, _ = sessions
    ids, claim = chain(driver, 2)
    args, next_run = going_on(driver, claim)
    one.begin()
    one.call("commit", *args)
    assert driver.emit(payload="1", run=ids[1]).woken == 0
    one.commit()
    assert wait(driver, driver.take(next_run)) == 1


@pytest.mark.spec("FLOW-24", "FLOW-6")
def test_a_decision_by_the_first_id_waits_for_the_present_run(driver, sessions):
    one, two = sessions
    ids, claim = chain(driver, 2)
    one.begin()
    one.call("commit", [driver.item(claim, Move.PARK, ask("gate"), known=0)], None, None, None, True)
    late = two.waits("decide", str(ids[0]), "gate", True, "ann", "", None, None)
    one.commit()
    assert late.result()["decided"]["run"]["id"] == str(ids[1])
    assert driver.status(ids[1]) is Status.PENDING


@pytest.mark.spec("FLOW-24", "EVENT-4")
@pytest.mark.parametrize("waits", [True, False])
def test_an_event_that_commits_after_many_later_ones_is_not_passed_over(driver, sessions, waits):
    """The event's number is lower than those that the chain has taken."""
    one, _ = sessions
    claim = driver.held()
    one.begin()
    one.call("emit_at_once", NewEvent(topic="parcel", id="late", payload='"late"'))
    for n in range(20):
        driver.emit(payload=str(n))
    got = [wait(driver, claim, f"w{n}") for n in range(20)]
    assert got == list(range(20))
    claim = driver.take(go_on(driver, claim))
    assert one.run("select count(*) from workflow_chain_topic")[0][0] == 1
    if waits:
        driver.park(claim, listen(), known=0)
    one.commit()
    assert driver.deliver() == int(waits)
    if waits:
        assert payloads(driver, claim.id) == ["late"]
    else:
        assert wait(driver, claim) == "late"


@pytest.mark.spec("FLOW-24")
def test_a_wait_of_a_long_chain_costs_what_one_of_a_short_one_does(driver, sessions):
    """The pages read do not grow with the events that the chain has taken."""
    one, _ = sessions
    claim, pages = driver.held(), []
    for length in (40, 400):
        for n in range(length):
            driver.emit(id=f"{length}-{n}")
        for _ in range(0, length, 20):
            for k in range(20):
                wait(driver, claim, f"w{k}")
            claim = driver.take(go_on(driver, claim), lease=600.0)
        driver.park(claim, listen(), known=0)
        one.begin()
        one.call("emit_at_once", NewEvent(topic="parcel", id=f"last {length}"))
        pages.append(min(_delivered(one, f"last {length}") for _ in range(3)))
        one.commit()
        driver.deliver()
        claim = driver.take(claim.id, lease=600.0)
        claim = driver.take(go_on(driver, claim), lease=600.0)
    assert pages[1] < pages[0] * 1.5 + 20, pages


def _delivered(session, event):
    session.run("savepoint before")
    pages = session.pages("deliver_event", "default", event, None, 100)
    session.run("rollback to before")
    return pages
