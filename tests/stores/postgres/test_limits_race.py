"""Limits under many hands at once: claims under limits are made one after the other, and each is counted."""

from __future__ import annotations

import time

import pytest

from holdfast.records import Ask
from holdfast.testing.contract.hand import TYPE
from holdfast.testing.contract.limiting import claimed, limit, started
from tests.stores.postgres.kit import database
from tests.stores.postgres.sessions import Session

UNLIMITED = "1752132455, 1"  # held, shared, by claims where nothing is set
NAMES = {"type": TYPE, "tenant": "acme", "key": "k"}


@pytest.fixture
def third(hand):
    session = Session(hand.clock.now)
    yield session
    session.close()


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


@pytest.mark.spec("LIMIT-2")
@pytest.mark.slow
def test_a_claim_that_has_waited_is_counted_at_the_instant_of_its_lease(hand, sessions):
    """It waits for another claim for more than a second: its lease begins after that, and is counted."""
    one, two = sessions
    limit(hand, rate=(3, 60.0))
    started(hand, 2)
    one.begin()
    assert len(one.call("claim", ask(1))) == 1
    waiting = two.waits("claim", ask(1, "x"))
    time.sleep(1.1)
    one.commit()
    assert len(waiting.result()) == 1
    leased_at = "select created_at from workflow.workflow_event where event_type = 'leased' order by id"
    counted_at = "select at from workflow.workflow_limit_use order by number"
    admin = database()[1]
    leased, counted = admin.execute(leased_at).fetchall(), admin.execute(counted_at).fetchall()
    assert leased == counted
    assert (leased[1][0] - leased[0][0]).total_seconds() >= 1.1


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


# The first limit, beside claims that began when there was none.


@pytest.mark.spec("LIMIT-1")
@pytest.mark.parametrize("scope", NAMES)
def test_a_claim_from_before_the_first_limit_counts_in_it(hand, sessions, scope):
    """Whoever sets the limit waits for nobody; others take nothing until that claim is through."""
    one, two = sessions
    started(hand, 3, tenant="acme", limit_key="k")
    one.begin()
    assert len(one.call("claim", ask(1))) == 1
    limit(hand, scope, NAMES[scope], concurrency=1)
    assert two.call("claim", ask(2, "x")) == []
    one.commit()
    assert two.call("claim", ask(2, "x")) == []
    assert leased() == 1


@pytest.mark.spec("LIMIT-1")
def test_a_claim_from_before_the_first_limit_that_is_undone_does_not_count(hand, sessions):
    """It has taken nothing."""
    one, two = sessions
    runs = started(hand, 2)
    one.begin()
    one.call("claim", ask(2))
    limit(hand, concurrency=1)
    one.roll_back()
    assert ids(two.call("claim", ask(2, "x"))) == [str(runs[0])]


@pytest.mark.spec("LIMIT-1")
def test_a_claim_looks_whether_anything_is_set_after_it_has_said_that_it_is_under_way(hand, sessions):
    """What is set before that holds for it, what is set later counts it."""
    one, two = sessions
    started(hand, 3)
    one.begin()
    one.run(f"select pg_advisory_xact_lock({UNLIMITED})")
    claiming = two.waits("claim", ask(2, "x"))
    limit(hand, concurrency=1)
    one.commit()
    assert len(claiming.result()) == leased() == 1


@pytest.mark.spec("LIMIT-1")
def test_two_that_begin_while_the_first_limit_is_set_do_not_wait_for_each_other(hand, sessions, third):
    """Neither takes too much, and neither goes away empty while there is room."""
    started(hand, 3)
    third.begin()
    third.run(f"select pg_advisory_xact_lock({UNLIMITED})")
    claiming = [session.waits("claim", ask(2, name)) for session, name in zip(sessions, "xy", strict=True)]
    limit(hand, concurrency=1)
    third.commit()
    assert sum(len(one.result()) for one in claiming) == leased() == 1


@pytest.mark.spec("LIMIT-1")
def test_a_claim_under_limits_keeps_none_from_its_work_when_they_are_gone(hand, sessions):
    """However long the one who claimed under them keeps his transaction open."""
    one, two = sessions
    limit(hand, concurrency=1)
    runs = started(hand, 2)
    one.begin()
    assert ids(one.call("claim", ask(1))) == [str(runs[0])]
    database()[1].execute("delete from workflow.workflow_limit")
    assert ids(two.call("claim", ask(2, "x"))) == [str(runs[1])]
    one.commit()


@pytest.mark.spec("LIMIT-1")
def test_claims_that_wait_for_one_under_limits_do_not_keep_each_other_from_theirs(hand, sessions, third):
    """None of them is taken for one that knows of no limit."""
    one, two = sessions
    limit(hand, concurrency=3)
    started(hand, 6)
    one.begin()
    assert len(one.call("claim", ask(1))) == 1
    claiming = [two.waits("claim", ask(1, "x")), third.waits("claim", ask(1, "y"))]
    one.commit()
    assert [len(claims.result()) for claims in claiming] == [1, 1]
