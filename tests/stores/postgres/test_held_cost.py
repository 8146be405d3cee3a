"""What a claim costs while a transaction is held open, and what was claimed since cannot be cleaned up."""

from __future__ import annotations

import psycopg
import pytest

from holdfast.testing.contract.limiting import started
from tests.stores.postgres.kit import database
from tests.stores.postgres.sessions import Session
from tests.stores.postgres.test_limit_cost import EMPTY, ask, fill, idle, pages

pytestmark = pytest.mark.slow

GONE = 20_000
END = """
update workflow_run set status = 'succeeded', finished_at = clock(), rev = rev + 1 where priority = 50
"""
LAPSED = """
select set_config(
    'holdfast.marks', (jsonb_set(current_setting('holdfast.marks')::jsonb, '{until}', '0'))::text, false
)
"""
VACUUM = "vacuum workflow.workflow_run"


@pytest.fixture
def session(hand):
    database()[1].execute(EMPTY)
    session = Session(hand.clock.now)
    yield session
    session.close()
    database()[1].execute(EMPTY)


@pytest.fixture
def holder():
    with psycopg.connect(database()[0]) as holder:
        holder.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        yield holder


@pytest.fixture
def taken(hand, session, holder):
    """Many have ended behind the holder's back, and a hundred wait behind them."""
    fill(session, GONE, 1)
    holder.execute("select 1 from workflow.workflow_run limit 1")
    session.run(END)
    hand.clock.turn(60)
    session.run("select set_config('holdfast.now', %s, false)", str(hand.clock.now))
    return started(hand, 100, priority=50)


def ids(claims):
    return [one["id"] for one in claims]


@pytest.mark.spec("LEASE-13")
def test_what_was_taken_is_walked_over_once_by_a_session(session, taken):
    """The next claim and look begin where the last one has found the first that is pending."""
    far = [pages(session, "claim", ask(1)), pages(session, "due", idle())]
    assert ids(session.call("claim", ask(2))) == [str(run) for run in taken[:2]]
    near = [pages(session, "claim", ask(1)), pages(session, "due", idle())]
    assert all(after < before / 5 for before, after in zip(far, near, strict=True)), (far, near)


@pytest.mark.spec("LEASE-13", "LEASE-1")
def test_all_that_is_due_is_claimed_in_order_from_there_on(hand, session, taken):
    """Of every priority, the new ones too."""
    session.call("claim", ask(2))
    (better,) = started(hand, 1, priority=10)
    (worse,) = started(hand, 1, priority=90)
    last = started(hand, 1, priority=50)
    claims = ids(session.call("claim", ask(200)))
    assert claims == [str(run) for run in (better, *taken[2:], *last, worse)]
    assert session.call("due", idle())["claim_at"] is None


def test_what_comes_to_be_due_before_there_is_found_when_that_has_lapsed(hand, session, taken):
    """Order is only delayed, and nobody is forgotten."""
    session.call("claim", ask(2))
    (early,) = started(hand, 1, priority=50, run_at=hand.clock.now - 30_000_000)
    assert str(early) not in ids(session.call("claim", ask(2)))
    session.run(LAPSED)
    assert ids(session.call("claim", ask(1))) == [str(early)]


def test_when_all_is_cleaned_up_it_begins_at_the_beginning_again(session, holder, taken):
    session.call("claim", ask(2))
    assert session.run("show holdfast.marks") != [("",)]
    holder.rollback()
    session.run(VACUUM)
    session.run(LAPSED)
    session.call("claim", ask(2))
    assert session.run("show holdfast.marks") == [("",)]
