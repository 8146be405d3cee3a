"""Races of children: the end of a child is told once, and a locked run stops no other."""

from __future__ import annotations

import pytest

from holdfast.lifecycle import Move, Status
from holdfast.records import NewRun
from holdfast.testing.contract.driver import call

CHILD = "shop.child.v1"
OWING = '{"owing":"00000000-0000-0000-0000-000000000000"}'


def item(driver, claim, move, *steps, **fields):
    """The arguments of a commit that any session may send."""
    return [driver.item(claim, move, *steps, **fields)], None, None, None, True


def family(driver, *, parked=False):
    """A held parent that has asked for a child, and that child, held."""
    parent, child = driver.held(), driver.id()
    (driver.park if parked else driver.checkpoint)(parent, call("c", child, CHILD))
    return parent, driver.take(child, types=(CHILD,))


@pytest.mark.spec("FLOW-7")
def test_a_child_that_ends_while_its_parent_parks_wakes_it(driver, sessions):
    """The parent has looked: the session that tells it of the end waits until the parent is parked."""
    one, two = sessions
    parent, child = family(driver)
    one.begin()
    one.call("commit", *item(driver, parent, Move.PARK, call("c", child.id, CHILD), known=2))
    driver.complete(child)
    news = two.waits("deliver", OWING, 500)
    one.commit()
    assert (news.result()["woken"], driver.status(parent.id)) == (1, Status.PENDING)


@pytest.mark.spec("FLOW-7")
def test_a_parent_that_parks_while_its_child_ends_is_told(driver, sessions):
    one, _ = sessions
    parent, child = family(driver)
    one.begin()
    one.call("commit", *item(driver, child, Move.COMPLETE, result="7"))
    assert driver.park(parent, call("c", child.id, CHILD), known=2).status is Status.WAITING
    one.commit()
    assert (driver.deliver(), driver.status(parent.id)) == (1, Status.PENDING)


@pytest.mark.spec("FLOW-7")
def test_a_child_that_goes_on_as_another_run_while_its_parent_parks_is_awaited_as_that_one(driver, sessions):
    """The end of the child and its replacement are one commit: the parent does not take it for an answer."""
    one, _ = sessions
    parent, child = family(driver)
    other = NewRun(id=driver.id(), type=CHILD, parent=parent.id, parent_step="c")
    one.begin()
    one.call("commit", *item(driver, child, Move.COMPLETE, starts=(other,)))
    assert driver.park(parent, call("c", child.id, CHILD), known=2).status is Status.WAITING
    one.commit()
    assert (driver.deliver(), driver.step(parent.id, "c").child) == (0, other.id)
    driver.complete(driver.take(other.id, types=(CHILD,)))
    assert (driver.deliver(), driver.status(parent.id)) == (1, Status.PENDING)


@pytest.mark.spec("FLOW-7")
def test_two_that_tell_a_parent_wake_it_once(driver, sessions):
    one, two = sessions
    parent, child = family(driver, parked=True)
    driver.complete(child)
    one.begin()
    assert one.call("deliver", OWING, 500)["woken"] == 1
    other = two.waits("deliver", OWING, 500)
    one.commit()
    assert other.result()["woken"] == 0
    assert driver.told(parent.id).count("woken") == 1


@pytest.mark.spec("FLOW-7")
def test_a_locked_parent_is_told_later_and_others_now(driver, sessions):
    one, _ = sessions
    families = [family(driver, parked=True) for _ in range(3)]
    for _, child in families:
        driver.complete(child)
    one.begin()
    one.run("select 1 from workflow_run where id = %s for update", families[0][0].id)
    assert driver.deliver(limit=1) == 2
    one.roll_back()
    assert driver.deliver(limit=1) == 1
    assert driver.deliver() == 0


def test_a_locked_child_is_cancelled_later_and_others_now(driver, sessions):
    one, _ = sessions
    parent, children = driver.held(), [driver.id() for _ in range(5)]
    driver.park(parent, *(call(f"c{n}", child, CHILD) for n, child in enumerate(children)))
    one.begin()
    one.run("select 1 from workflow_run where id = %s for update", children[1])
    driver.cancel(parent.id)
    assert [driver.status(child) for child in children].count(Status.CANCELLED) == 4
    one.roll_back()
    driver.deliver(limit=1)
    assert {driver.status(child) for child in children} == {Status.CANCELLED}
