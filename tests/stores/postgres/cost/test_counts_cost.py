"""Cost of counts: reads and folds pay for types, tenants and due runs, not for other runs."""

from __future__ import annotations

from contextlib import closing

import pytest

from holdfast.contract import FOLD_SECONDS
from holdfast.testing.contract.driver import TYPE
from tests.stores.postgres.kit import database
from tests.stores.postgres.session import Session

MANY = 20_000
OTHERS = 4_000  # of each status
LEASED = 30
# Finished runs, sleeping runs, and runs for later: nothing is due. A few are executed.
FILL = """
insert into workflow_run (
    id, tenant, type, status, priority, run_at, max_attempts, finished_at, waiting_on, deadline_at, rev,
    leased_by, lease_until
)
select gen_random_uuid(), 'tenant-' || n %% 2, 'shop.t' || n %% 2 || '.v1', s.status, 100,
    clock() + interval '1 year' + n * interval '1 us', 3, case when s.status = 'succeeded' then clock() end,
    case when s.status = 'waiting' then 'sleep' end,
    case when s.status = 'waiting' then clock() + interval '1 day' end, 1,
    case when s.status = 'leased' then 'w' end, case when s.status = 'leased' then clock() end
from unnest(array['succeeded', 'waiting', 'pending', 'leased']) as s (status)
cross join generate_series(1, case when s.status = 'leased' then %s else %s end) as n
"""
IDLE = {"types": [TYPE], "wait_timeouts": True}
READS = {
    "counts of all": ("counts", None),
    "counts of a tenant": ("counts", "tenant-1"),
    "rates": ("rates", None, 0, None, 10000),
    "scale of all": ("scale", None, 1000),
    "scale of a tenant": ("scale", "tenant-1", 1000),
    "stats": ("stats", 45.0),
    "due": ("due", IDLE),
}
ROWS = """
select coalesce(sum(seq_tup_read + idx_tup_fetch), 0)::integer from pg_stat_xact_user_tables
where schemaname = 'workflow'
"""


@pytest.fixture
def session(driver):
    """A session whose plans were made while the tables were empty."""
    session = Session(driver.clock.now)
    for verb, *given in READS.values():
        for _ in range(10):
            session.call(verb, *given)
    yield session
    session.close()


def filled(session):
    session.run(FILL, LEASED, OTHERS)
    session.run("select set_config('holdfast.now', (us(clock()) + 10000000)::text, false)")


def touched(session, verb, *given):
    """The rows and pages that a call has read, and its answer; rolled back."""
    session.begin()
    ((before,),) = session.run(ROWS)
    answer = session.call(verb, *given)
    ((after,),) = session.run(ROWS)
    session.roll_back()
    return after - before, session.pages(verb, *given), answer


def costs(session):
    """The rows and pages that each read has read."""
    return {name: touched(session, *call)[:2] for name, call in READS.items()}


def too_much(before, after):
    """The reads that cost more than before, beyond what a few leased runs and new types may cost."""
    return {
        name: (before[name], cost)
        for name, cost in after.items()
        if cost[0] > before[name][0] + 3 * LEASED or cost[1] > before[name][1] + 100
    }


@pytest.mark.spec("READ-4", "OPS-7")
@pytest.mark.slow
@pytest.mark.parametrize("folded", [True, False])
@pytest.mark.parametrize("statistics", ["of empty tables", "of these tables"])
def test_runs_that_are_finished_asleep_or_not_due_cost_nothing(session, statistics, folded):
    """Neither do plans that were made for empty tables."""
    before = costs(session)
    filled(session)
    if folded:
        assert session.call("fold_counts", 5000) > 0
    if statistics == "of these tables":
        session.run("analyze workflow_run")
    assert too_much(before, costs(session)) == {}


@pytest.mark.spec("OPS-7")
@pytest.mark.slow
def test_due_runs_are_read_up_to_the_bound(session):
    """The rest, and runs of the same queue that are not due, are left."""
    filled(session)
    session.run(FILL.replace("interval '1 year'", "interval '-1 hour'"), 0, MANY)
    rows, _, answer = touched(session, "scale", "tenant-1", 1000)
    assert [(one["due"], one["more"]) for one in answer["items"]] == [(10000, False)]
    assert rows <= 10_000 + 4 * LEASED + 100
    session.run(FILL.replace("interval '1 year'", "interval '-1 hour'"), 0, MANY)
    rows, _, answer = touched(session, "scale", "tenant-1", 1000)
    assert [(one["due"], one["more"]) for one in answer["items"]] == [(10000, True)]
    assert rows <= 10_001 + 4 * LEASED + 100


CHANGES = """
insert into workflow_count_change (tenant, type, from_status, to_status, number, at)
select 'default', 'shop.order.v1', 'waiting', 'paused', 1, clock() - interval '1 minute'
from generate_series(1, %s)
"""


@pytest.mark.spec("READ-4")
@pytest.mark.slow
def test_folded_changes_that_vacuum_must_leave_are_not_read_again(driver, session):
    """While a reader's transaction stays open, their index entries stay. Readers begin behind them."""
    with closing(Session(driver.clock.now)) as reader:
        reader.run("begin isolation level repeatable read")
        before = reader.call("counts", None)
        empty = costs(session)
        session.run(CHANGES, MANY)
        for _ in range(5):
            while session.call("fold_counts", 5000):
                pass
            session.run(CHANGES, 1)
        assert too_much(empty, costs(session)) == {}
        assert touched(session, "fold_counts", 5000)[1] <= 150
        assert reader.call("counts", None) == before


@pytest.mark.spec("READ-4")
@pytest.mark.slow
def test_a_fold_reads_what_it_folds(session):
    """However many changes wait behind it, and whatever the planner believes."""
    filled(session)
    session.run(CHANGES, MANY)
    session.run("analyze workflow_count_change")
    rows, _, folded = touched(session, "fold_counts", 100)
    assert (folded, rows <= 400) == (100, True), rows


@pytest.mark.spec("READ-4")
def test_to_find_nothing_to_fold_writes_nothing(driver, session):
    driver.start()
    driver.clock.turn(FOLD_SECONDS)
    later = Session(driver.clock.now)
    try:
        assert [later.call("fold_counts", 5000) for _ in range(2)] == [1, 0]
        later.begin()
        assert later.call("fold_counts", 5000) == 0
        assert later.run("select pg_current_xact_id_if_assigned()") == [(None,)]
        later.roll_back()
    finally:
        later.close()


@pytest.mark.spec("READ-4")
@pytest.mark.parametrize("rows", [1, 1000])
def test_a_statement_adds_one_change_for_runs_that_move_alike(session, rows):
    session.run(
        "insert into workflow_run (id, type, max_attempts, rev) "
        "select gen_random_uuid(), 'shop.order.v1', 3, 1 from generate_series(1, %s)", rows,
    )  # fmt: skip
    session.run("update workflow_run set priority = 7, rev = rev + 1")
    session.run(
        "update workflow_run set status = 'leased', leased_by = 'w', lease_until = clock(), rev = rev + 1"
    )
    found = database()[1].execute(
        "select from_status, to_status, what, number from workflow.workflow_count_change order by seq"
    )
    assert found.fetchall() == [(None, "pending", "started", rows), ("pending", "leased", None, rows)]
