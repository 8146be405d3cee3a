"""Moves of leased runs by user SQL reach their holders; running steps are in the view of steps."""

from __future__ import annotations

import psycopg
import pytest

from holdfast.records import Running, RunningStep, moment
from holdfast.testing.contract.driver import backing_off, done
from tests.stores.postgres import kit

CHANNEL = "listen holdfast_workflow"
LIVE = (
    "select name, seq is null, status, attempts, started_at is not null, leased_by, run_status "
    "from workflow.workflow_step_live where run_id = :'id' order by seq nulls last, name"
)
MOVES = {
    "an update to cancelled": "update workflow.workflow_run set status = 'cancelled' where id = :'id'",
    "an update of deleted_at": "update workflow.workflow_run set deleted_at = now() where id = :'id'",
    "cancel": "select workflow.cancel(:'id', 'default', 'ann', true)",
    "pause": "select workflow.pause(:'id', 'default', 'ann')",
    "rewind": "select workflow.rewind(:'id', null, 'default', 'ann', true)",
    "delete": "select workflow.delete(:'id', 'default', 'ann')",
}


@pytest.fixture
def heard(driver):
    """A function that returns the payloads of the wake-ups since its last call."""
    with psycopg.connect(kit.database()[0], autocommit=True) as connection:
        connection.execute(CHANNEL)

        def payloads():
            connection.execute("select 1")
            return [one.payload for one in connection.notifies(timeout=0.2)]

        yield payloads


@pytest.mark.slow
@pytest.mark.spec("CANC-6", "SQL-5", "STORE-1")
@pytest.mark.parametrize("move", MOVES)
def test_a_move_of_a_leased_run_by_sql_calls_its_holder(driver, user_sql, heard, move):
    """One NOTIFY a commit: it counts as any other news, too."""
    claim = driver.held()
    heard()
    user_sql(MOVES[move], id=claim.id)
    assert heard() == ["leases"]
    state = driver.lease_states(claim)[0]
    assert state.answer != "applied" or state.pause_asked


@pytest.mark.slow
@pytest.mark.spec("CANC-6", "STORE-1")
@pytest.mark.parametrize("move", MOVES)
def test_a_move_of_a_run_that_nobody_holds_calls_no_holder(driver, user_sql, heard, move):
    run = driver.start()
    heard()
    user_sql(MOVES[move], id=run)
    assert heard() in ([""], [])


@pytest.mark.slow
@pytest.mark.spec("CANC-6", "SQL-2")
def test_a_worker_in_sql_that_ends_its_run_calls_no_holder(driver, user_sql, heard):
    """It is the holder itself."""
    run = driver.start()
    user_sql(
        "update workflow.workflow_run set status = 'leased', leased_by = 'w', lease_until = now() + "
        "interval '30 s' where id = :'id'",
        id=run,
    )
    heard()
    user_sql(
        "update workflow.workflow_run set status = 'succeeded', result = '1' where id = :'id' and "
        "leased_by = 'w'",
        id=run,
    )
    assert heard() == [""]


@pytest.mark.spec("LEASE-20", "SQL-9")
def test_the_view_of_steps_shows_running_ones(driver, user_sql):
    """Also before they have a row; a retried step with its present try."""
    claim = driver.held()
    driver.checkpoint(claim, done("a"))
    failed = backing_off("b", attempts=1, due_at=driver.clock.now)
    driver.retry(claim, failed, delay=0.0, in_place=True, refund=True)
    driver.show_running(claim, ("a", 1), ("b", 2), ("c", 1))
    assert user_sql(LIVE, id=claim.id) == [
        ("a", False, "succeeded", 1, False, None, "leased"),
        ("b", False, "running", 2, True, "w1", "leased"),
        ("c", True, "running", 1, True, "w1", "leased"),
    ]
    driver.release(claim)
    assert [row[:3] for row in user_sql(LIVE, id=claim.id)] == [
        ("a", False, "succeeded"), ("b", False, "ready"),
    ]  # fmt: skip


@pytest.mark.spec("LEASE-20", "SQL-9")
def test_the_running_task_of_a_plan_has_one_row_in_the_view(driver, user_sql):
    claim = driver.begun("A", "B")
    driver.show_running(claim, ("A", 1))
    assert [row[:5] for row in user_sql(LIVE, id=claim.id)] == [
        ("A", False, "running", 1, True), ("B", False, "pending", 0, False),
    ]  # fmt: skip


@pytest.mark.spec("LEASE-20", "LEASE-18")
def test_a_row_that_another_session_keeps_does_not_delay_the_others(driver):
    """It is answered as not written, and the worker sends it again."""
    kept, free = driver.held(), driver.held()
    steps = (RunningStep(step="s", attempt=1, started_at=moment(driver.clock.now)),)
    rows = [Running(run=one.id, fence=one.fence, steps=steps) for one in (kept, free)]
    with psycopg.connect(kit.database()[0]) as other:
        other.execute("select 1 from workflow.workflow_run where id = %s for update", (kept.id,))
        assert driver.run(driver.store.show_running("w1", rows)) == [False, True]
    assert driver.run(driver.store.show_running("w1", rows)) == [True, True]


@pytest.mark.spec("LEASE-20")
def test_a_purge_leaves_no_running_steps_behind(driver, user_sql):
    claim = driver.held()
    driver.show_running(claim, ("charge", 1))
    driver.complete(claim)
    count = "select count(*) from workflow.workflow_running"
    assert user_sql(count) == [(1,)]
    driver.purge(ttl_seconds=0)
    assert (driver.get(claim.id), user_sql(count)) == (None, [(0,)])


@pytest.mark.spec("LEASE-20", "SQL-9")
@pytest.mark.parametrize(
    "steps",
    [
        "null", "7", "{}", "[]", "[7]", "[[]]", "[{}]", '[{"step":"","attempt":1,"started_at":"2026-01-01"}]',
        '[{"step":"a","attempt":0,"started_at":"2026-01-01"}]', '[{"step":"a","attempt":1,"started_at":"x"}]',
        '[{"step":"a","attempt":1e9,"started_at":"infinity"}]', '[{"step":"a","attempt":1}]',
        '[{"step":"a\\u0000","attempt":1,"started_at":"2026-01-01"}]',
        '[{"step":"' + 70_000 * "a" + '","attempt":1,"started_at":"2026-01-01"}]',
    ],
)  # fmt: skip
def test_the_function_refuses_steps_that_readers_could_not_show(driver, user_sql, steps):
    """A view reads the rows of all runs: one bad row would break it for everybody."""
    claim = driver.held()
    row = f'[{{"run":"{claim.id}","fence":{claim.fence},"steps":{steps}}}]'
    with pytest.raises(psycopg.Error, match="array of 1 to 20"):
        user_sql("select workflow.show_running('w1', :'row')", row=row)
    assert user_sql(LIVE, id=claim.id) == []
