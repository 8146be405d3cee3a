"""Cost of chores and purges: they pay for rows that are due or expired, not for other rows."""

from __future__ import annotations

import pytest

from holdfast.contract import TTL_SECONDS
from holdfast.testing.contract.driver import TYPE
from tests.stores.postgres.kit import database
from tests.stores.postgres.session import Session

MANY = 20_000
TERMS = '{"ttl_seconds": 1000000}'

# Runs that ended now, a third of them with a time of its own, and pending ones.
FILL = """
insert into workflow_run (
    id, type, status, run_at, max_attempts, finished_at, expires_at, timeout_at, rev, created_at, updated_at
)
select gen_random_uuid(), %s, case when n %% 2 = 0 then 'succeeded' else 'pending' end, clock() + '1 year', 3,
    case when n %% 2 = 0 then clock() + n * interval '1 us' end,
    case when n %% 6 = 0 then clock() + '30 days' + n * interval '1 us' end, clock() + '1 year', 1,
    clock(), clock()
from generate_series(1, %s) as n
"""
EXPIRED = """
update workflow_run
set finished_at = finished_at - interval '60 days', expires_at = expires_at - interval '60 days',
    rev = rev + 1
where finished_at is not null
"""
ROWS = """
select coalesce(sum(seq_tup_read + idx_tup_fetch), 0)::integer from pg_stat_xact_user_tables
where schemaname = 'workflow'
"""


@pytest.fixture
def session(driver):
    """A session whose plans were made while the tables were empty, and stay so: without new statistics."""
    session = Session(driver.clock.now)
    session.run("alter table workflow_run set (autovacuum_enabled = off)")
    for verb, given in (("purge", TERMS), ("expire", 500), ("time_out", 500)):
        for _ in range(10):
            session.call(verb, given)
    yield session
    session.run("alter table workflow_run reset (autovacuum_enabled)")
    session.close()


def filled(session):
    session.run(FILL, TYPE, MANY)


def touched(session, verb, given):
    """The rows that a call has read, and its answer; rolled back."""
    session.begin()
    ((before,),) = session.run(ROWS)
    answer = session.call(verb, given)
    ((after,),) = session.run(ROWS)
    session.roll_back()
    return after - before, answer


@pytest.mark.spec("TTL-1", "LEASE-15")
@pytest.mark.parametrize(("verb", "given"), [("purge", TERMS), ("expire", 500), ("time_out", 500)])
def test_to_find_nothing_costs_nothing_however_much_is_there(session, verb, given):
    """Open and finished runs are not read."""
    filled(session)
    assert touched(session, verb, given)[0] <= 10


@pytest.mark.spec("TTL-1")
def test_a_slice_of_a_purge_pays_for_its_own_runs(session):
    """One slice of a hundred among many expired runs. Runs that have not expired, and later ones, cost
    nothing.
    """
    filled(session)
    session.run(EXPIRED)
    filled(session)
    read, answer = touched(session, "purge", TERMS)
    assert answer["gone"]["runs"] == 100
    assert read < 1500


@pytest.mark.spec("TTL-1")
def test_the_next_slice_goes_on_where_the_last_one_stopped(session):
    """It does not read rows that are deleted and not vacuumed yet."""
    filled(session)
    session.run(EXPIRED)
    pasts = [None]
    for _ in range(10):
        answer = session.call("purge", {"ttl_seconds": TTL_SECONDS, "past": pasts[-1]})
        assert answer["gone"]["runs"] == 100
        pasts.append(answer["past"])
    assert len({(past["at"], past["id"]) for past in pasts[1:]}) == 10
    assert touched(session, "purge", {"ttl_seconds": TTL_SECONDS, "past": pasts[-1]})[0] < 1500


@pytest.mark.spec("LEASE-6")
def test_leases_are_walked_over_once_a_round_and_nothing_else(driver, session):
    """Leases have no index by time, so that a renewal changes no index."""
    held = 200
    for _ in range(held):
        driver.start()
    assert len(driver.claim(limit=held)) == held
    filled(session)
    read, answer = touched(session, "expire", 500)
    assert (answer["done"], read <= held + 10) == (0, True)


LINKS = """
insert into workflow_run (id, chain, type, status, run_at, max_attempts, finished_at, deleted_at, rev)
select gen_random_uuid(), %s, %s, 'succeeded', clock(), 3, clock(), case when %s then clock() end, 1
from generate_series(1, %s) as n
"""
UNLIKE = "select cardinality(unlike_first(w, 500)) from workflow_run as w where w.id = %s"


@pytest.mark.spec("FLOW-24")
@pytest.mark.parametrize("deleted", [True, False])
def test_to_delete_or_restore_a_chain_walks_over_no_run_that_is_done(driver, session, deleted):
    """With many done and five left, these five are read."""
    first = driver.start()
    if deleted:
        driver.delete(first)
    for done, count in ((deleted, 3000), (not deleted, 5)):
        session.run(LINKS, first, TYPE, done, count)
    session.begin()
    ((before,),) = session.run(ROWS)
    ((found,),) = session.run(UNLIKE, first)
    ((after,),) = session.run(ROWS)
    session.roll_back()
    assert found == 5
    assert after - before <= 20


@pytest.mark.parametrize("verb", ["purge", "expire", "time_out"])
def test_no_statistics_make_a_chore_read_or_sort_all_there_is(verb):
    """Statistics of an empty table say that there is one row, however many come later."""
    ((settings,),) = database()[1].execute(
        "select proconfig from pg_proc where proname = %s and pronamespace = 'workflow'::regnamespace",
        (verb,),
    )
    needed = {"enable_seqscan=off", "jit=off"} | ({"enable_sort=off"} if verb == "purge" else set())
    assert needed <= set(settings)
