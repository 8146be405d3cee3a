"""Races of limits: claims under limits run one after the other, and each is counted."""

from __future__ import annotations

import time

import pytest

from holdfast.records import Ask
from holdfast.testing.contract.driver import TYPE
from holdfast.testing.contract.limits import claimed, limit, started
from tests.stores.postgres.kit import database
from tests.stores.postgres.session import Session

UNLIMITED = "1752132455, 1"  # held, shared, by claims without limits
NAMES = {"type": TYPE, "tenant": "acme", "key": "k"}


@pytest.fixture
def third(driver):
    session = Session(driver.clock.now)
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
def test_of_two_claims_at_once_the_second_sees_what_the_first_has_taken(driver, sessions, scope):
    """The second waits for the commit of the first: together they stay within the limit."""
    one, two = sessions
    limit(driver, scope, NAMES[scope], concurrency=3)
    runs = [str(run) for run in started(driver, 6, tenant="acme", limit_key="k")]
    one.begin()
    assert ids(one.call("claim", ask(2))) == runs[:2]
    waiting = two.waits("claim", ask(2, "x"))
    one.commit()
    assert ids(waiting.result()) == runs[2:3]
    assert leased() == 3


@pytest.mark.spec("LIMIT-2")
@pytest.mark.parametrize("scope", NAMES)
def test_two_claims_at_once_stay_within_a_rate(driver, sessions, scope):
    """Claims of the first count for the second, though both began before either ended."""
    one, two = sessions
    limit(driver, scope, NAMES[scope], rate=(3, 60.0))
    started(driver, 6, tenant="acme", limit_key="k")
    one.begin()
    assert len(one.call("claim", ask(2))) == 2
    waiting = two.waits("claim", ask(2, "x"))
    one.commit()
    assert len(waiting.result()) == 1
    driver.clock.turn(59.999999)
    assert claimed(driver) == []
    driver.clock.turn(0.000001)
    assert len(claimed(driver)) == 3


@pytest.mark.spec("LIMIT-2")
@pytest.mark.slow
def test_a_claim_that_has_waited_is_counted_at_the_instant_of_its_lease(driver, sessions):
    """The claim waits for another one for more than a second: its lease begins after that, and is counted
    then.
    """
    one, two = sessions
    limit(driver, rate=(3, 60.0))
    started(driver, 2)
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
def test_two_claims_at_once_take_turns(driver, sessions):
    """The second continues behind the place that the first was served at."""
    one, two = sessions
    limit(driver, "tenant", "%", weight=1.0)
    first, second = started(driver, 4, tenant="a"), started(driver, 4, tenant="b")
    one.begin()
    assert ids(one.call("claim", ask(1))) == [str(first[0])]
    waiting = two.waits("claim", ask(1, "x"))
    one.commit()
    assert ids(waiting.result()) == [str(second[0])]


@pytest.mark.spec("LIMIT-1", "LIMIT-2")
def test_a_claim_that_is_undone_has_taken_nothing(driver, sessions):
    """Neither a place nor a part of the rate."""
    one, two = sessions
    limit(driver, concurrency=1, rate=(1, 60.0))
    runs = started(driver, 2)
    one.begin()
    assert len(one.call("claim", ask())) == 1
    waiting = two.waits("claim", ask(2, "x"))
    one.roll_back()
    assert ids(waiting.result()) == [str(runs[0])]


@pytest.mark.spec("LIMIT-1", "LIMIT-2")
def test_a_locked_run_is_skipped_and_not_counted(driver, sessions):
    """A run whose row is locked uses no quota; the next run gets it."""
    one, _ = sessions
    limit(driver, concurrency=2, rate=(2, 60.0))
    runs = started(driver, 3)
    one.begin()
    one.run("select 1 from workflow_run where id = %s for update", runs[0])
    assert claimed(driver) == runs[1:]
    one.roll_back()
    assert claimed(driver) == []


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
def test_what_is_set_is_never_changed_beside_a_claim(driver, sessions, verb, args):
    """A change waits for a claim that is under way, and a claim waits for a change: limits hold for a whole
    claim.
    """
    one, two = sessions
    limit(driver, "key", "k", concurrency=2)
    limit(driver, "tenant", "other", concurrency=2)  # one limit is always set
    started(driver, 3, limit_key="k")
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
def test_where_nothing_is_set_nobody_waits_for_anybody(driver, sessions):
    """Claims without limits run in parallel."""
    one, two = sessions
    runs = [str(run) for run in started(driver, 2)]
    one.begin()
    one.run("select lock_limits()")
    one.call("claim", ask(1))
    assert ids(two.call("claim", ask(2, "x"))) == runs[1:]
    one.commit()


# The first limit, beside claims that began when there was none.


@pytest.mark.spec("LIMIT-1")
@pytest.mark.parametrize("scope", NAMES)
def test_a_claim_from_before_the_first_limit_counts_in_it(driver, sessions, scope):
    """Setting the limit waits for nobody; other claims take nothing until the earlier claim has ended."""
    one, two = sessions
    started(driver, 3, tenant="acme", limit_key="k")
    one.begin()
    assert len(one.call("claim", ask(1))) == 1
    limit(driver, scope, NAMES[scope], concurrency=1)
    assert two.call("claim", ask(2, "x")) == []
    one.commit()
    assert two.call("claim", ask(2, "x")) == []
    assert leased() == 1


@pytest.mark.spec("LIMIT-1")
def test_a_claim_from_before_the_first_limit_that_is_undone_does_not_count(driver, sessions):
    """The earlier claim has taken nothing."""
    one, two = sessions
    runs = started(driver, 2)
    one.begin()
    one.call("claim", ask(2))
    limit(driver, concurrency=1)
    one.roll_back()
    assert ids(two.call("claim", ask(2, "x"))) == [str(runs[0])]


@pytest.mark.spec("LIMIT-1")
def test_a_claim_looks_whether_anything_is_set_after_it_has_said_that_it_is_under_way(driver, sessions):
    """A limit that is set before its lock applies to the claim; a later limit counts it."""
    one, two = sessions
    started(driver, 3)
    one.begin()
    one.run(f"select pg_advisory_xact_lock({UNLIMITED})")
    claiming = two.waits("claim", ask(2, "x"))
    limit(driver, concurrency=1)
    one.commit()
    assert len(claiming.result()) == leased() == 1


@pytest.mark.spec("LIMIT-1")
def test_two_that_begin_while_the_first_limit_is_set_do_not_wait_for_each_other(driver, sessions, third):
    """Neither takes too much, and neither returns empty while there is quota."""
    started(driver, 3)
    third.begin()
    third.run(f"select pg_advisory_xact_lock({UNLIMITED})")
    claiming = [session.waits("claim", ask(2, name)) for session, name in zip(sessions, "xy", strict=True)]
    limit(driver, concurrency=1)
    third.commit()
    assert sum(len(one.result()) for one in claiming) == leased() == 1


@pytest.mark.spec("LIMIT-1")
def test_a_claim_under_limits_keeps_none_from_its_work_when_they_are_gone(driver, sessions):
    """However long the session that claimed under limits keeps its transaction open."""
    one, two = sessions
    limit(driver, concurrency=1)
    runs = started(driver, 2)
    one.begin()
    assert ids(one.call("claim", ask(1))) == [str(runs[0])]
    database()[1].execute("delete from workflow.workflow_limit")
    assert ids(two.call("claim", ask(2, "x"))) == [str(runs[1])]
    one.commit()


@pytest.mark.spec("LIMIT-1")
def test_claims_that_wait_for_one_under_limits_do_not_keep_each_other_from_theirs(driver, sessions, third):
    """None of them counts as a claim without limits."""
    one, two = sessions
    limit(driver, concurrency=3)
    started(driver, 6)
    one.begin()
    assert len(one.call("claim", ask(1))) == 1
    claiming = [two.waits("claim", ask(1, "x")), third.waits("claim", ask(1, "y"))]
    one.commit()
    assert [len(claims.result()) for claims in claiming] == [1, 1]
