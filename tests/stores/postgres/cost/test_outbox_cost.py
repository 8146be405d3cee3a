"""Cost of the outbox on Postgres: pages read, before the planner has statistics and after."""

from __future__ import annotations

from uuid import UUID

import pytest

from holdfast.records import Outbound, RelayAsk, Relayed
from holdfast.testing.contract.driver import Clock, StoreDriver
from holdfast.testing.contract.outbox import message, relay, sent_by
from tests.stores.postgres.kit import database, make
from tests.stores.postgres.session import Session

RUN = UUID("018bcfe5-0000-7000-8000-000000000001")
MANY = 12_000
FILL = """
insert into workflow_outbox (id, run_id, sink, key, behind, status, next_at, created_at)
select status || sink || behind || hours || n, %s, sink, key, behind, status,
    clock() + hours * interval '1 hour', clock()
from generate_series(1, %s) as n cross join (values
    ('mail', 'k', false, 'sent', 0), ('mail', 'k', true, 'pending', 0), ('mail', 'k', false, 'dead', 0),
    ('mail', null, false, 'pending', 1), ('pager', null, false, 'pending', 0)
) as of (sink, key, behind, status, hours)
"""


EMPTY = "truncate workflow.workflow_outbox; analyze workflow.workflow_outbox"


@pytest.fixture
def driver(tmp_path):
    """A driver whose planner has seen empty tables, where any plan costs the same."""
    clock = Clock()
    driver = StoreDriver(make(clock, tmp_path), clock)
    database()[1].execute(EMPTY)
    yield driver
    driver.close()
    database()[1].execute(EMPTY)


@pytest.fixture
def session(driver):
    session = Session(driver.clock.now)
    yield session
    session.close()


def looks(session, *asks):
    """The pages that calls read, each in a transaction that is rolled back."""
    found = []
    for ask in asks:
        pages = []
        for _ in range(3):
            session.begin()
            pages.append(session.pages(*ask))
            session.roll_back()
        found.append(min(pages))
    return found


@pytest.mark.slow
@pytest.mark.spec("OUT-1")
def test_a_relay_does_not_pay_for_messages_that_it_cannot_take(driver, session):
    """Messages that are sent, dead, of other sinks, backing off, or behind a held one. Plans are made before
    they come.
    """
    ask, now = RelayAsk(relay="r", sinks=("mail",), limit=8), session.run("select clock()")[0][0]
    sent_by(driver, message("m1", key="k"))
    (held,) = relay(driver)
    sent_by(driver, message("m2"))
    said = [Relayed(id=held.id, fence=held.fence, answer="sent")]
    asks = (
        ("relay", ask),
        ("relay_at", ["mail"], "null", True),
        ("relay_at", ["mail"], ["default", "acme"], True),
        ("relayed", said),
        ("put_messages", RUN, "default", [Outbound(id="new", sink="mail", key="k")], now),
    )
    before = looks(session, *asks)
    session.run(FILL, RUN, MANY)
    assert max(looks(session, *asks)) < max(before) + 40
    session.run("analyze workflow_outbox")
    assert max(looks(session, *asks)) < max(before) + 40
    assert session.call("relayed", said) == [True]
    _, following = session.call("relay", ask)
    assert (following["key"], following["attempt"]) == ("k", 1)


@pytest.mark.slow
@pytest.mark.spec("OUT-1")
def test_a_line_that_has_gone_on_for_long_goes_on_as_fast(driver, session):
    """Sent messages stay in the index while a transaction is open; an answer does not read all of them."""
    session.run(FILL, RUN, MANY)
    looking_back = Session(driver.clock.now)
    looking_back.run("begin isolation level repeatable read; select 1")
    session.run("update workflow_outbox set status = 'sent', behind = false where key = 'k'")
    sent_by(driver, message("m1", key="k"), message("m2", key="k"))
    (held,) = relay(driver)
    asks = (("relayed", [Relayed(id=held.id, fence=held.fence, answer="sent")]),)
    assert max(looks(session, *asks)) < 70
    looking_back.close()


@pytest.mark.slow
@pytest.mark.spec("OUT-1")
def test_a_relay_of_one_tenant_does_not_walk_along_the_messages_of_others(driver, session):
    """12,000 messages of others are due before its own."""
    ask = RelayAsk(relay="r", sinks=("pager",), tenants=("acme",), limit=8)
    asks = (("relay", ask), ("relay_at", ["pager"], ["acme"], True))
    before = looks(session, *asks)
    session.run(FILL, RUN, MANY)
    assert max(looks(session, *asks)) < max(before) + 20
    session.run("analyze workflow_outbox")
    assert max(looks(session, *asks)) < max(before) + 20
    assert session.call("relay", ask) == []


@pytest.mark.slow
@pytest.mark.spec("OUT-1")
def test_a_backlog_is_not_counted_to_its_end(driver, session):
    """Three times as many messages cost the same, whether the planner has statistics or not."""
    costs = []
    looks(session, ("backlog",))
    for part in range(3):
        session.run(FILL.replace("select status", f"select '{part}' || status"), RUN, MANY)
        costs += looks(session, ("backlog",))
    session.run("analyze workflow_outbox")
    costs += looks(session, ("backlog",))
    assert max(costs[1:]) < 1.2 * costs[0]
    counts = {one.sink: (one.pending, one.dead) for one in driver.run(driver.store.backlog())}
    assert counts == {"mail": (10_000, 10_000), "pager": (10_000, 0)}
