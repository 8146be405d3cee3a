"""Cost of a firing on Postgres: the same, however many runs of the schedule are open."""

from __future__ import annotations

import pytest

from holdfast.records import FiredBy, Overlap
from holdfast.testing.contract.driver import EPOCH, Clock, StoreDriver
from holdfast.testing.contract.schedules import HOUR, firing, made, seen
from tests.stores.postgres.kit import database, make
from tests.stores.postgres.session import Session

MANY = 8_000
EMPTY = """
truncate workflow.workflow_run, workflow.workflow_firing;
analyze workflow.workflow_run; analyze workflow.workflow_firing
"""
FILL = """
insert into workflow_run (id, type, max_attempts, rev)
select new_id(), 'else.v1', 1, 1 from generate_series(1, %s)
"""
OF_IT = "insert into workflow_firing select %s, id from workflow_run where type = 'else.v1'"
ENDED = "update workflow_run set status = 'cancelled', finished_at = clock(), rev = rev + 1"


@pytest.fixture
def driver(tmp_path):
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


def cost(driver, session, by):
    """Pages that a firing reads, rolled back."""
    one = seen(driver)
    found = []
    for n in range(3):
        session.begin()
        found.append(session.pages("fire_schedule", firing(driver, one, EPOCH + n * HOUR, by=by)))
        session.roll_back()
    return min(found)


@pytest.mark.slow
@pytest.mark.spec("SCHED-1")
@pytest.mark.parametrize(
    ("overlap", "by"),
    [(Overlap.ALLOW, FiredBy.RHYTHM), (Overlap.SKIP, FiredBy.HAND), (Overlap.SKIP, FiredBy.RHYTHM)],
)
def test_a_firing_costs_the_same_beside_any_number_of_open_runs(driver, session, overlap, by):
    """Twenty thousand runs, like a day's runs that are held back; ended ones are forgotten in slices."""
    one = made(driver, overlap=overlap)
    before = cost(driver, session, by)
    session.run(FILL, MANY)
    session.run(OF_IT, one.id)
    assert cost(driver, session, by) < before + 600  # it checks a hundred of them for their end
    session.run("analyze workflow_run; analyze workflow_firing")
    assert cost(driver, session, by) < before + 600
    if by is FiredBy.HAND:  # by hand it checks none of them
        session.run(ENDED)
        assert cost(driver, session, by) < before + 1200


def looks(session):
    return min(session.pages("due_schedules", 100, None) for _ in range(3))


@pytest.mark.slow
@pytest.mark.spec("SCHED-1")
def test_a_look_for_due_schedules_does_not_pay_for_those_that_are_not(driver, session):
    """Ten thousand schedules that come later, or are paused."""
    made(driver)
    before = looks(session)
    session.run(
        "insert into workflow_schedule (name, id, type, next_at, paused)"
        " select 's' || n, new_id(), 'else.v1', clock() + interval '1 day' * (n %% 2), n %% 2 = 0"
        " from generate_series(1, 10000) as n where %s",
        True,
    )
    assert looks(session) < before + 10
    session.run("analyze workflow_schedule")
    assert looks(session) < before + 10
    assert session.call("due_schedules", 100, None) == []
    session.run("truncate workflow_schedule; analyze workflow_schedule")
