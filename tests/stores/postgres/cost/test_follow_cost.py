"""Cost of followers on Postgres: some lookups for each run, however large the store and its trail are."""

from __future__ import annotations

import pytest

from holdfast.records import ANY
from tests.stores.postgres import kit
from tests.stores.postgres.session import Session

RUNS, ROWS = 2000, 60  # rows of the trail for each run
END = 2**63 - 1
FILL = """
set search_path = workflow;
insert into workflow_run (id, type, status, max_attempts, rev, run_at)
select new_id(), 'shop.order.v1', 'pending', 3, 5, clock() + interval '1 day' from generate_series(1, 2000);
insert into workflow_event (workflow_id, event_type, told)
select r.id, 'log', false from generate_series(1, 60) as n, workflow_run as r;
"""
EXPLAIN = """
explain (analyze, buffers, format json) select follow(
    array(select id from workflow_run order by id limit %s), array_fill(%s::bigint, array[%s]), null, %s
)
"""


@pytest.fixture(params=["no statistics", "statistics"])
def session(driver, request):
    _, connection = kit.database()
    connection.execute("select workflow.wipe()")
    connection.execute(FILL)
    if request.param == "statistics":
        connection.execute("vacuum analyze workflow.workflow_run, workflow.workflow_event")
    session = Session(driver.clock.now)
    yield session
    session.close()
    connection.execute("select workflow.wipe()")


def pages(session, runs, after, limit=1000):
    """Return the pages of 8 kB that a call reads, when plans and catalogs are warm."""
    for _ in range(3):
        plan = session.run(EXPLAIN, runs, after, runs, limit)[0][0][0]["Plan"]
    return plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]


@pytest.mark.slow
@pytest.mark.spec("TRAIL-3")
def test_a_look_at_many_runs_without_news_is_two_lookups_a_run(session):
    """Each lookup reads a few pages of an index, and one of a row."""
    ((last,),) = session.run("select max(id) from workflow_event")
    for after in (END, last):
        assert pages(session, 1000, after) - pages(session, 1, after) <= 10 * 1000


@pytest.mark.slow
@pytest.mark.spec("TRAIL-3")
def test_rows_cost_as_much_as_are_shown(session):
    """Rows that do not fit are not read; the runs that come after are only asked whether they have rows."""
    few, many = pages(session, 1000, 0, 10), pages(session, 1000, 0, 1000)
    assert few - pages(session, 1000, END) <= 6 * 1000
    assert many - few <= 4 * 1000


@pytest.mark.slow
@pytest.mark.spec("TRAIL-3")
def test_from_now_on_does_not_read_the_history(driver, session):
    """Neither does a page behind which little is new."""
    for _ in range(3):
        read = session.pages("follow_all", {}, None)
    assert read <= 400
    now = driver.run(driver.store.follow_all(ANY)).seq
    assert now >= RUNS * ROWS
    for _ in range(3):
        read = session.pages("follow_all", {"types": ["created"]}, now - 5)
    assert read <= 400
