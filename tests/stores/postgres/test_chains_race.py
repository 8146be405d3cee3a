"""A chain that goes on while others act on it: each lands on the present run, and no event is passed over."""

from __future__ import annotations

import pytest

from holdfast.lifecycle import Move, Status
from holdfast.records import NewEvent
from holdfast.testing.contract.chaining import chain, go_on, next_of, payloads, wait
from holdfast.testing.contract.hand import ask, done, listen


def going_on(hand, claim):
    """The arguments of a commit with which the run goes on as another, and that one's id."""
    new = next_of(hand, claim)
    return ([hand.item(claim, Move.COMPLETE, starts=(new,))], None, None, None, True), new.id


@pytest.mark.spec("FLOW-24", "CANC-1")
@pytest.mark.parametrize("links", [1, 3])
@pytest.mark.parametrize("verb", ["cancel", "pause", "delete"])
def test_a_verb_that_meets_a_chain_which_goes_on_acts_on_the_next_run(hand, sessions, verb, links):
    """It has waited for the commit, and must not find the run that has just ended."""
    one, two = sessions
    ids, claim = chain(hand, links)
    args, next_run = going_on(hand, claim)
    one.begin()
    one.call("commit", *args)
    more = (True,) if verb == "cancel" else ()
    late = two.waits(verb, str(ids[0]), None, "ann", *more)
    one.commit()
    shown = late.result()
    assert shown["id"] == str(next_run)
    if verb == "delete":
        hand.deliver()
        assert [hand.get(run) for run in (*ids, next_run)] == [None] * (links + 1)
    else:
        assert hand.status(next_run) == {"cancel": Status.CANCELLED, "pause": Status.PAUSED}[verb]


@pytest.mark.spec("FLOW-24")
def test_a_commit_does_not_wait_for_one_who_acts_on_the_chain(hand, sessions):
    """It holds the row that the other one wants next: it is busy, and sent again it moves the chain on."""
    one, two = sessions
    ids, claim = chain(hand, 2)
    args, next_run = going_on(hand, claim)
    one.begin()
    one.run("select 1 from workflow_run where id = %s for no key update", ids[0])
    (busy,) = two.call("commit", *args)["verdicts"]
    assert (busy["answer"], hand.get(next_run)) == ("busy", None)
    assert hand.checkpoint(claim, done("meanwhile"), number=1).answer == "applied"
    one.commit()
    later = hand.item(claim, Move.COMPLETE, starts=(next_of(hand, claim),), number=2)
    (verdict,) = two.call("commit", [later], None, None, None, True)["verdicts"]
    assert verdict["answer"] == "applied"


@pytest.mark.spec("FLOW-24", "EVENT-7")
def test_an_event_for_a_chain_that_goes_on_meanwhile_is_there_for_the_next_run(hand, sessions):
    one, _ = sessions
    ids, claim = chain(hand, 2)
    args, next_run = going_on(hand, claim)
    one.begin()
    one.call("commit", *args)
    assert hand.emit(payload="1", run=ids[1]).woken == 0
    one.commit()
    assert wait(hand, hand.take(next_run)) == 1


@pytest.mark.spec("FLOW-24", "FLOW-6")
def test_a_decision_by_the_first_id_waits_for_the_present_run(hand, sessions):
    one, two = sessions
    ids, claim = chain(hand, 2)
    one.begin()
    one.call("commit", [hand.item(claim, Move.PARK, ask("gate"), known=0)], None, None, None, True)
    late = two.waits("decide", str(ids[0]), "gate", True, "ann", "", None, None)
    one.commit()
    assert late.result()["decided"]["run"]["id"] == str(ids[1])
    assert hand.status(ids[1]) is Status.PENDING


@pytest.mark.spec("FLOW-24", "EVENT-4")
@pytest.mark.parametrize("waits", [True, False])
def test_an_event_that_commits_after_many_later_ones_is_not_passed_over(hand, sessions, waits):
    """Its number is lower than those that the chain has taken, and remembers as taken."""
    one, _ = sessions
    claim = hand.held()
    one.begin()
    one.call("emit_at_once", NewEvent(topic="parcel", id="late", payload='"late"'))
    for n in range(20):
        hand.emit(payload=str(n))
    got = [wait(hand, claim, f"w{n}") for n in range(20)]
    assert got == list(range(20))
    claim = hand.take(go_on(hand, claim))
    assert one.run("select count(*) from workflow_chain_topic")[0][0] == 1
    if waits:
        hand.park(claim, listen(), known=0)
    one.commit()
    assert hand.deliver() == int(waits)
    if waits:
        assert payloads(hand, claim.id) == ["late"]
    else:
        assert wait(hand, claim) == "late"


@pytest.mark.spec("FLOW-24")
def test_a_wait_of_a_long_chain_costs_what_one_of_a_short_one_does(hand, sessions):
    """However many events it has taken: pages that are looked at do not grow with them."""
    one, _ = sessions
    claim, pages = hand.held(), []
    for length in (40, 400):
        for n in range(length):
            hand.emit(id=f"{length}-{n}")
        for _ in range(0, length, 20):
            for k in range(20):
                wait(hand, claim, f"w{k}")
            claim = hand.take(go_on(hand, claim), lease=600.0)
        hand.park(claim, listen(), known=0)
        one.begin()
        one.call("emit_at_once", NewEvent(topic="parcel", id=f"last {length}"))
        pages.append(min(_delivered(one, f"last {length}") for _ in range(3)))
        one.commit()
        hand.deliver()
        claim = hand.take(claim.id, lease=600.0)
        claim = hand.take(go_on(hand, claim), lease=600.0)
    assert pages[1] < pages[0] * 1.5 + 20, pages


def _delivered(session, event):
    session.run("savepoint before")
    pages = session.pages("deliver_event", "default", event, None, 100)
    session.run("rollback to before")
    return pages
