"""Cost of an event: for the runs that it wakes, not for their other waits; and bounded commits."""

from __future__ import annotations

import pytest

from holdfast.bounds import BATCH_BYTES
from holdfast.lifecycle import Move, Status
from holdfast.records import NewEvent
from holdfast.testing.contract.driver import call, hear, listen
from tests.stores.postgres.kit import database
from tests.stores.postgres.session import Session

FEW, MANY = 10, 1000
LARGE = '"' + "x" * (3 * 2**20) + '"'
BUCKETS = "select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()"


@pytest.fixture
def session(driver):
    session = Session(driver.clock.now)
    yield session
    session.close()


def waiting_for(driver, count):
    """A run that waits for many events at once, each on its own topic."""
    claim = driver.held()
    driver.park(claim, *(listen(f"w{count}-{n}", f"{count}-{n}") for n in range(count)))
    return claim.id


def handed_over(session, topic):
    """The pages that the delivery of one event reads, and the buckets that it locks."""
    session.call("emit_at_once", NewEvent(topic=topic, id=topic))
    session.begin()
    pages = session.pages("deliver_event", "default", topic, None, 100)
    ((buckets,),) = session.run(BUCKETS)
    session.commit()
    return pages, buckets


@pytest.mark.slow
@pytest.mark.spec("EVENT-3")
def test_an_event_does_not_pay_for_what_else_its_run_waits_for(driver, session):
    """While the run waits, and when it is pending: one topic is locked, and no other wait is read."""
    waiting_for(driver, FEW)
    run = waiting_for(driver, MANY)
    for n in range(5):  # plans and catalogs are warm by then
        few, many = handed_over(session, f"{FEW}-{n}"), handed_over(session, f"{MANY}-{n}")
    assert driver.status(run) is Status.PENDING
    assert (few[1], many[1]) == (1, 1)
    assert many[0] <= few[0] + 30


@pytest.mark.slow
@pytest.mark.spec("EVENT-3", "EVENT-4")
def test_a_park_locks_only_topics_that_it_opens_or_where_something_has_come(driver, session):
    """A run with many open waits parks again after each event; the other topics are free meanwhile."""
    run = waiting_for(driver, MANY)
    driver.emit(f"{MANY}-0")
    claim = driver.take(run)
    session.begin()
    parks = driver.item(claim, Move.PARK, listen("new", "new"), known=claim.steps[-1].seq)
    (verdict,) = session.call("commit", [parks], None, None, None, False)["verdicts"]
    ((buckets,),) = session.run(BUCKETS)
    session.commit()
    assert (verdict["status"], buckets <= 2) == ("waiting", True)


@pytest.mark.spec("EVENT-4")
def test_a_plan_that_goes_on_has_the_topics_of_its_next_rows(driver, session):
    """The plan opens the next wait in the commit that settles the last one."""
    driver.plan(hear("A", "first"), hear("B", "second"), "C")
    assert handed_over(session, "first")[1] == 2


@pytest.mark.slow
@pytest.mark.spec("EVENT-3")
def test_a_large_event_is_handed_over_a_few_megabytes_a_commit(driver, session):
    """Without slices, 600 waits of 3.9 MB would be one commit of 2 GB."""
    claims = [driver.held() for _ in range(5)]
    for claim in claims:
        driver.park(claim)
    session.call("emit_at_once", NewEvent(topic="parcel", id="e", payload=LARGE))
    slices, left = [], None
    while not slices or left is not None:
        slices.append(session.call("deliver_event", "default", "e", left, 100))
        left = slices[-1]["left"]
    assert [(one["woken"], len(one["runs"])) for one in slices] == [(3, 3), (5, 2)]


@pytest.mark.slow
@pytest.mark.spec("EVENT-3", "FLOW-10")
def test_ends_of_children_with_large_results_are_told_a_few_megabytes_a_commit(driver, session):
    """A slice must not read whole rows of children, with params and results."""
    parents = [driver.held() for _ in range(5)]
    for parent in parents:
        driver.park(parent, call("c", driver.id()))
    for claim in driver.claim():
        driver.complete(claim, result=LARGE)
    slices, left = [], '{"owing":"00000000-0000-0000-0000-000000000000"}'
    while left is not None:
        slices.append(session.call("deliver", left, 100))
        left = slices[-1]["left"]
    assert [one["woken"] for one in slices if one["woken"]] == [3, 2]


def test_the_database_and_the_contract_have_one_bound():
    ((bytes_,),) = database()[1].execute("select workflow.slice_bytes()")
    assert bytes_ == BATCH_BYTES
