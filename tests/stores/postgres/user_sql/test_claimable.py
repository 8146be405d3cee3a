"""Claims by prefix in user SQL: the view of claimable runs, its locks and its cost."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast.testing.contract.driver import task
from tests.stores.postgres import kit
from tests.stores.postgres.session import Session
from tests.stores.postgres.user_sql.user_sql import UserSqlSession

SEEN = """
select id from workflow.workflow_run_claimable where type like 'billing.%'
    and (runtime is null or runtime = 'go') order by priority, run_at, id limit 1 for update skip locked
"""
NAIVE = """
select id from workflow.workflow_run
where type like 'billing.%' and status = 'pending' and run_at <= workflow.clock() and deleted_at is null
order by priority, run_at, id limit 1 for update skip locked
"""


@pytest.fixture
def other(driver):
    session = UserSqlSession(kit.database()[0], driver.clock)
    yield session
    session.close()


def take(user_sql, me="p1"):
    return [row[0] for row in user_sql("take_by_prefix", prefix="billing.%", runtime="go", me=me)]


@pytest.mark.spec("SQL-12")
def test_a_claim_by_prefix_never_stays_behind_what_may_not_be_claimed(driver, user_sql):
    """Such runs are older and more urgent. The table would return them for ever, the view does not."""
    driver.publish(task("A"), type="billing.plan.v1")
    for number, blocker in enumerate(["billing.off.v1", "billing.java.v1", "billing.plan.v1"]):
        driver.start(blocker, priority=number)
    user_sql('select workflow.register(\'billing.off\', \'{"is_enabled": false, "runtime": "go"}\')')
    user_sql("select workflow.register('billing.java.v1', '{\"runtime\": \"java\"}')")
    driver.start("billing.late.v1", priority=0, delay_seconds=60.0)
    driver.delete(driver.start("billing.gone.v1", priority=0))
    driver.start("shop.order.v1", priority=0)
    mine = driver.start("billing.invoice.v1")
    assert user_sql.one(NAIVE) != mine
    assert take(user_sql) == [mine]
    assert take(user_sql) == []
    user_sql("select workflow.register('billing.off', '{\"is_enabled\": true}')")
    assert len(take(user_sql)) == 1


@pytest.mark.spec("SQL-12")
def test_runs_come_in_the_order_of_the_queue(driver, user_sql):
    """By priority, then by due time, over all types of the prefix."""
    runs = [
        driver.start(f"billing.{name}.v1", priority=priority, delay_seconds=delay)
        for name, priority, delay in [("b", 5, 3.0), ("a", 5, 2.0), ("a", 1, 4.0), ("b", 5, 1.0)]
    ]
    driver.clock.turn(10)
    assert [take(user_sql)[0] for _ in runs] == [runs[n] for n in (2, 3, 1, 0)]


@pytest.mark.spec("SQL-12")
def test_the_view_names_the_runtime(driver, user_sql):
    run = driver.start("billing.a.v1")
    text = "select id, runtime, payload::text from workflow.workflow_run_claimable"
    assert user_sql.one(text) == (run, None, "null")
    user_sql("select workflow.register('billing.a', '{\"runtime\": \"go\"}')")
    assert user_sql.one(text)[1] == "go"


@pytest.mark.spec("SQL-12")
def test_a_claim_locks_the_run_that_it_answers_and_no_other(driver, user_sql, other):
    first, second = driver.start("billing.a.v1"), driver.start("billing.a.v1")
    with user_sql.connection.transaction():
        assert user_sql.one(SEEN) == first
        assert other.one(SEEN) == second
        free = "select id from workflow.workflow_run order by id for update skip locked"
        assert other(free) == [(second,)]


@pytest.mark.spec("SQL-12")
def test_a_run_that_another_has_taken_meanwhile_is_not_taken_again(driver, user_sql, other):
    """The state before the lock does not count: here the other session commits in between."""
    first, second = driver.start("billing.a.v1"), driver.start("billing.a.v1")
    waits = SEEN.replace(" skip locked", "")
    with ThreadPoolExecutor(1) as pool:
        with user_sql.connection.transaction():
            assert take(user_sql, "p1") == [first]
            asked = pool.submit(other, waits)
            while not held_up(other):
                pass
        assert asked.result(20) in ([(second,)], [])
    assert take(other, "p2") == [second]


def held_up(other):
    pid = other.connection.info.backend_pid
    return kit.database()[1].execute("select cardinality(pg_blocking_pids(%s))", (pid,)).fetchone()[0]


@pytest.mark.slow
@pytest.mark.spec("SQL-12", "SQL-4")
def test_two_workers_in_user_sql_execute_each_run_once(driver, user_sql, other):
    runs = {driver.start(f"billing.{n % 3}.v1", priority=n % 2) for n in range(60)}
    driver.start("shop.order.v1")

    def work(session, me):
        done = []
        while found := take(session, me):
            done += found
            assert session("succeed", id=found[0], me=me, result="1") == [(found[0],)]
        return done

    with ThreadPoolExecutor(2) as pool:
        one, two = pool.map(work, [user_sql, other], ["p1", "p2"])
    assert sorted([*one, *two]) == sorted(runs)
    for run in runs:
        assert driver.told(run) == ["created", "leased", "started", "succeeded"]


FILL = """
insert into workflow_run (
    type, priority, run_at, status, max_attempts, rev, finished_at, leased_by, lease_until
)
select type, priority, clock() + hours * interval '1 hour', status, 3, 1,
    case when status = 'succeeded' then clock() end, case when status = 'leased' then 'w' end,
    case when status = 'leased' then clock() + interval '1 hour' end
from generate_series(1, %s) as n cross join (values
    ('billing.a.v1', 100, -1, 'succeeded'), ('billing.a.v1', 1, -1, 'waiting'),
    ('billing.a.v1', 1, 1, 'pending'),
    ('billing.a.v1', 1, -1, 'leased'), ('other.b.v1', 1, -1, 'pending'), ('billing.off.v1', 1, -1, 'pending'),
    ('billing.a.v1', 100, -1, 'pending')
) as of (type, priority, hours, status)
"""
EMPTY = "truncate workflow.workflow_run; analyze workflow.workflow_run"


@pytest.mark.slow
@pytest.mark.spec("SQL-12")
@pytest.mark.parametrize("known", ["nothing", "empty", "all"])
def test_nobody_pays_for_runs_that_may_not_be_claimed(driver, user_sql, known):
    """Ended, waiting, due later, held, of other types, of a disabled type: 3,000 of each."""
    admin = kit.database()[1]
    admin.execute(EMPTY)
    session = Session(driver.clock.now)
    session.run("select register('billing.off', '{\"is_enabled\": false}')")

    def pages():
        found = []
        for _ in range(3):
            plan = session.run("explain (analyze, buffers, format json) " + SEEN)[0][0][0]["Plan"]
            found.append(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])
        return min(found)

    try:
        session.run(FILL, 100)
        if known == "empty":
            admin.execute(EMPTY)
            session.run(FILL, 100)
        few = pages()
        session.run(FILL, 3_000)
        if known == "all":
            session.run("analyze workflow_run")
        assert pages() < few + 300 < 900
    finally:
        session.close()
        admin.execute(EMPTY)
