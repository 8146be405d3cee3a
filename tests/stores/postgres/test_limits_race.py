"""Limits under many hands at once: claims under limits are made one after the other, and each is counted."""

from __future__ import annotations

import pytest

from holdfast.records import Ask
from holdfast.testing.contract.hand import TYPE
from holdfast.testing.contract.limiting import claimed, limit, started
from tests.stores.postgres.kit import database
from tests.stores.postgres.sessions import Session

NAMES = {"type": TYPE, "tenant": "acme", "key": "k"}


@pytest.fixture
def sessions(hand):
    two = [Session(hand.clock.now) for _ in range(2)]
    yield two
    for one in two:
        one.close()


def ask(count=2, worker="w", **fields):
    return Ask(worker=worker, types=(TYPE,), limit=count, **fields)


def ids(claims):
    return [claim["id"] for claim in claims]


def leased():
    sql = "select count(*) from workflow.workflow_run where status = 'leased'"
    return database()[1].execute(sql).fetchone()[0]


@pytest.mark.spec("LIMIT-1")
@pytest.mark.parametrize("scope", NAMES)
def test_of_two_claims_at_once_the_second_sees_what_the_first_has_taken(hand, sessions, scope):
    """It waits for the commit of the first: together they take no more than there may be."""
    one, two = sessions
    limit(hand, scope, NAMES[scope], concurrency=3)
    runs = [str(run) for run in started(hand, 6, tenant="acme", limit_key="k")]
    one.begin()
    assert ids(one.call("claim", ask(2))) == runs[:2]
    waiting = two.waits("claim", ask(2, "x"))
    one.commit()
    assert ids(waiting.result()) == runs[2:3]
    assert leased() == 3


@pytest.mark.spec("LIMIT-2")
@pytest.mark.parametrize("scope", NAMES)
def test_two_claims_at_once_stay_within_a_rate(hand, sessions, scope):
    """What the first has claimed counts for the second, though both began before either ended."""
    one, two = sessions
    limit(hand, scope, NAMES[scope], rate=(3, 60.0))
    started(hand, 6, tenant="acme", limit_key="k")
    one.begin()
    assert len(one.call("claim", ask(2))) == 2
    waiting = two.waits("claim", ask(2, "x"))
    one.commit()
    assert len(waiting.result()) == 1
    hand.clock.turn(59.999999)
    assert claimed(hand) == []
    hand.clock.turn(0.000001)
    assert len(claimed(hand)) == 3


@pytest.mark.spec("LIMIT-3")
def test_two_claims_at_once_take_turns(hand, sessions):
    """The second goes on behind the place that the first was served at."""
    one, two = sessions
    limit(hand, "tenant", "%", weight=1.0)
    first, second = started(hand, 4, tenant="a"), started(hand, 4, tenant="b")
    one.begin()
    assert ids(one.call("claim", ask(1))) == [str(first[0])]
    waiting = two.waits("claim", ask(1, "x"))
    one.commit()
    assert ids(waiting.result()) == [str(second[0])]


@pytest.mark.spec("LIMIT-1", "LIMIT-2")
def test_a_claim_that_is_undone_has_taken_nothing(hand, sessions):
    """Neither a place nor a part of the rate."""
    one, two = sessions
    limit(hand, concurrency=1, rate=(1, 60.0))
    runs = started(hand, 2)
    one.begin()
    assert len(one.call("claim", ask())) == 1
    waiting = two.waits("claim", ask(2, "x"))
    one.roll_back()
    assert ids(waiting.result()) == [str(runs[0])]


@pytest.mark.spec("LIMIT-1", "LIMIT-2")
def test_what_somebody_else_is_at_is_passed_over_and_not_counted(hand, sessions):
    """A run whose row is held takes nothing of the room; the next one gets it."""
    one, _ = sessions
    limit(hand, concurrency=2, rate=(2, 60.0))
    runs = started(hand, 3)
    one.begin()
    one.run("select 1 from workflow_run where id = %s for update", runs[0])
    assert claimed(hand) == runs[1:]
    one.roll_back()
    assert claimed(hand) == []


@pytest.mark.spec("LIMIT-1")
@pytest.mark.parametrize(
    ("verb", "args"),
    [
        ('"limit"', ("type", TYPE, {"concurrency": 1})),
        ("unlimit", ("key", "k")),
        ("register", (TYPE, {"is_enabled": False})),
        ("unregister", (TYPE,)),
        ("pause_key", ("k", None, 30.0)),
        ("resume_key", ("k",)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_set_is_never_changed_beside_a_claim(hand, sessions, verb, args):
    """Each waits for a claim that is under way, and a claim waits for it: what is set holds for all of it."""
    one, two = sessions
    limit(hand, "key", "k", concurrency=2)
    limit(hand, "tenant", "other", concurrency=2)  # one is always set
    started(hand, 3, limit_key="k")
    one.begin()
    assert len(one.call("claim", ask(1))) == 1
    waiting = two.waits(verb, *args)
    one.commit()
    waiting.result()
    one.begin()
    one.call(verb, *args)
    claiming = two.waits("claim", ask(1, "x"))
    one.commit()
    assert len(claiming.result()) == (0 if verb in {'"limit"', "register", "pause_key"} else 1)


@pytest.mark.spec("LIMIT-1")
def test_where_nothing_is_set_nobody_waits_for_anybody(hand, sessions):
    """Claims without limits go side by side, as ever."""
    one, two = sessions
    runs = [str(run) for run in started(hand, 2)]
    one.begin()
    one.run("select lock_limits()")
    one.call("claim", ask(1))
    assert ids(two.call("claim", ask(2, "x"))) == runs[1:]
    one.commit()
