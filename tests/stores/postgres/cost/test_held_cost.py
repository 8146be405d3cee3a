"""Cost of a claim while a transaction is open, and vacuum cannot remove the entries of claimed runs."""

from __future__ import annotations

import psycopg
import pytest

from holdfast.testing.contract.limits import started
from tests.stores.postgres.cost.test_limit_cost import EMPTY, ask, fill, idle, pages
from tests.stores.postgres.kit import database
from tests.stores.postgres.session import Session

pytestmark = pytest.mark.slow

GONE = 20_000
END = """
update workflow_run set status = 'succeeded', finished_at = clock(), rev = rev + 1 where priority = 50
"""
LAPSED = """
select set_config(
    'holdfast.watermarks',
    (jsonb_set(current_setting('holdfast.watermarks')::jsonb, '{until}', '0'))::text, false
)
"""
VACUUM = "vacuum workflow.workflow_run"


@pytest.fixture
def session(driver):
    database()[1].execute(EMPTY)
    session = Session(driver.clock.now)
    yield session
    session.close()
    database()[1].execute(EMPTY)


@pytest.fixture
def holder():
    with psycopg.connect(database()[0]) as holder:
        holder.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        yield holder


@pytest.fixture
def taken(driver, session, holder):
    """Many runs that have ended while the transaction was open, and a hundred pending runs behind them."""
    fill(session, GONE, 1)
    holder.execute("select 1 from workflow.workflow_run limit 1")
    session.run(END)
    driver.clock.turn(60)
    session.run("select set_config('holdfast.now', %s, false)", str(driver.clock.now))
    return started(driver, 100, priority=50)


def ids(claims):
    return [one["id"] for one in claims]


@pytest.mark.spec("LEASE-13")
def test_what_was_taken_is_walked_over_once_by_a_session(session, taken):
    """The next `claim` and `due` begin at the first run that the last claim found pending."""
    far = [pages(session, "claim", ask(1)), pages(session, "due", idle())]
    assert ids(session.call("claim", ask(2))) == [str(run) for run in taken[:2]]
    near = [pages(session, "claim", ask(1)), pages(session, "due", idle())]
    assert all(after < before / 5 for before, after in zip(far, near, strict=True)), (far, near)


@pytest.mark.spec("LEASE-13", "LEASE-1")
def test_all_that_is_due_is_claimed_in_order_from_there_on(driver, session, taken):
    """In every priority, also new ones."""
    session.call("claim", ask(2))
    (better,) = started(driver, 1, priority=10)
    (worse,) = started(driver, 1, priority=90)
    last = started(driver, 1, priority=50)
    claims = ids(session.call("claim", ask(200)))
    assert claims == [str(run) for run in (better, *taken[2:], *last, worse)]
    assert session.call("due", idle())["claim_at"] is None


def test_what_comes_to_be_due_before_there_is_found_when_that_has_lapsed(driver, session, taken):
    """Only the order changes for a while, and no run is forgotten."""
    session.call("claim", ask(2))
    (early,) = started(driver, 1, priority=50, run_at=driver.clock.now - 30_000_000)
    assert str(early) not in ids(session.call("claim", ask(2)))
    session.run(LAPSED)
    assert ids(session.call("claim", ask(1))) == [str(early)]


def test_when_all_is_cleaned_up_it_begins_at_the_beginning_again(session, holder, taken):
    session.call("claim", ask(2))
    assert session.run("show holdfast.watermarks") != [("",)]
    holder.rollback()
    session.run(VACUUM)
    session.run(LAPSED)
    session.call("claim", ask(2))
    assert session.run("show holdfast.watermarks") == [("",)]
