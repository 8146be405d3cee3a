"""What the outbox costs on Postgres: pages looked at, before the planner knows what is there and after."""

from __future__ import annotations

from uuid import UUID

import pytest

from holdfast.records import Outbound, RelayAsk, Relayed
from holdfast.testing.contract.hand import Clock, Hand
from holdfast.testing.contract.post import message, relay, sent_by
from tests.stores.postgres.kit import database, make
from tests.stores.postgres.sessions import Session

RUN = UUID("018bcfe5-0000-7000-8000-000000000001")
MANY = 20_000
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
def hand(tmp_path):
    """The planner has seen that nothing is there, and any way to it costs the same."""
    clock = Clock()
    hand = Hand(make(clock, tmp_path), clock)
    database()[1].execute(EMPTY)
    yield hand
    hand.close()
    database()[1].execute(EMPTY)


@pytest.fixture
def session(hand):
    session = Session(hand.clock.now)
    yield session
    session.close()


def looks(session, *asks):
    """Each in transactions that are undone."""
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
def test_nobody_pays_for_what_he_cannot_take(hand, session):
    """Sent, dead, of other sinks, backing off, behind one that is held: plans are made before they come."""
    ask, now = RelayAsk(relay="r", sinks=("mail",), limit=8), session.run("select clock()")[0][0]
    sent_by(hand, message("m1", key="k"))
    (held,) = relay(hand)
    sent_by(hand, message("m2"))
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
def test_a_line_that_has_gone_on_for_long_goes_on_as_fast(hand, session):
    """What was sent stands in the index while somebody looks back: it is not walked along for each answer."""
    session.run(FILL, RUN, MANY)
    looking_back = Session(hand.clock.now)
    looking_back.run("begin isolation level repeatable read; select 1")
    session.run("update workflow_outbox set status = 'sent', behind = false where key = 'k'")
    sent_by(hand, message("m1", key="k"), message("m2", key="k"))
    (held,) = relay(hand)
    asks = (("relayed", [Relayed(id=held.id, fence=held.fence, answer="sent")]),)
    assert max(looks(session, *asks)) < 60
    looking_back.close()


@pytest.mark.slow
@pytest.mark.spec("OUT-1")
def test_a_relay_of_one_tenant_does_not_walk_along_the_messages_of_others(hand, session):
    """20,000 of them, due before its own."""
    ask = RelayAsk(relay="r", sinks=("pager",), tenants=("acme",), limit=8)
    asks = (("relay", ask), ("relay_at", ["pager"], ["acme"], True))
    before = looks(session, *asks)
    session.run(FILL, RUN, MANY)
    assert max(looks(session, *asks)) < max(before) + 20
    session.run("analyze workflow_outbox")
    assert max(looks(session, *asks)) < max(before) + 20
    assert session.call("relay", ask) == []
