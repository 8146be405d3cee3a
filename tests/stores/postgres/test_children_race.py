"""Children under many hands at once: the end of one is told once, and a run that is locked stops no other."""

from __future__ import annotations

import pytest

from holdfast.lifecycle import Move, Status
from holdfast.records import NewRun
from holdfast.testing.contract.hand import call

CHILD = "shop.child.v1"
OWING = '{"owing":"00000000-0000-0000-0000-000000000000"}'


def item(hand, claim, move, *steps, **fields):
    """The arguments of a commit that any session may send."""
    return [hand.item(claim, move, *steps, **fields)], None, None, None, True


def family(hand, *, parked=False):
    """A parent that is held and has asked for a child, and that child, held."""
    parent, child = hand.held(), hand.id()
    (hand.park if parked else hand.checkpoint)(parent, call("c", child, CHILD))
    return parent, hand.take(child, types=(CHILD,))


@pytest.mark.spec("FLOW-7")
def test_a_child_that_ends_while_its_parent_parks_wakes_it(hand, sessions):
    """The parent has looked: whoever tells it of the end waits until it is parked."""
    one, two = sessions
    parent, child = family(hand)
    one.begin()
    one.call("commit", *item(hand, parent, Move.PARK, call("c", child.id, CHILD), known=2))
    hand.complete(child)
    news = two.waits("deliver", OWING, 500)
    one.commit()
    assert (news.result()["woken"], hand.status(parent.id)) == (1, Status.PENDING)


@pytest.mark.spec("FLOW-7")
def test_a_parent_that_parks_while_its_child_ends_is_told(hand, sessions):
    one, _ = sessions
    parent, child = family(hand)
    one.begin()
    one.call("commit", *item(hand, child, Move.COMPLETE, result="7"))
    assert hand.park(parent, call("c", child.id, CHILD), known=2).status is Status.WAITING
    one.commit()
    assert (hand.deliver(), hand.status(parent.id)) == (1, Status.PENDING)


@pytest.mark.spec("FLOW-7")
def test_a_child_that_goes_on_as_another_run_while_its_parent_parks_is_awaited_as_that_one(hand, sessions):
    """Its end and the change of places are one commit: the parent takes the one for no answer."""
    one, _ = sessions
    parent, child = family(hand)
    other = NewRun(id=hand.id(), type=CHILD, parent=parent.id, parent_step="c")
    one.begin()
    one.call("commit", *item(hand, child, Move.COMPLETE, starts=(other,)))
    assert hand.park(parent, call("c", child.id, CHILD), known=2).status is Status.WAITING
    one.commit()
    assert (hand.deliver(), hand.step(parent.id, "c").child) == (0, other.id)
    hand.complete(hand.take(other.id, types=(CHILD,)))
    assert (hand.deliver(), hand.status(parent.id)) == (1, Status.PENDING)


@pytest.mark.spec("FLOW-7")
def test_two_that_tell_a_parent_wake_it_once(hand, sessions):
    one, two = sessions
    parent, child = family(hand, parked=True)
    hand.complete(child)
    one.begin()
    assert one.call("deliver", OWING, 500)["woken"] == 1
    other = two.waits("deliver", OWING, 500)
    one.commit()
    assert other.result()["woken"] == 0
    assert hand.told(parent.id).count("woken") == 1


@pytest.mark.spec("FLOW-7")
def test_a_locked_parent_is_told_later_and_others_now(hand, sessions):
    one, _ = sessions
    families = [family(hand, parked=True) for _ in range(3)]
    for _, child in families:
        hand.complete(child)
    one.begin()
    one.run("select 1 from workflow_run where id = %s for update", families[0][0].id)
    assert hand.deliver(limit=1) == 2
    one.roll_back()
    assert hand.deliver(limit=1) == 1
    assert hand.deliver() == 0


def test_a_locked_child_is_cancelled_later_and_others_now(hand, sessions):
    one, _ = sessions
    parent, children = hand.held(), [hand.id() for _ in range(5)]
    hand.park(parent, *(call(f"c{n}", child, CHILD) for n, child in enumerate(children)))
    one.begin()
    one.run("select 1 from workflow_run where id = %s for update", children[1])
    hand.cancel(parent.id)
    assert [hand.status(child) for child in children].count(Status.CANCELLED) == 4
    one.roll_back()
    hand.deliver(limit=1)
    assert {hand.status(child) for child in children} == {Status.CANCELLED}
