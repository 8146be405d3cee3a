"""A worker in user SQL: it claims, renews, ends and gives back, and the database writes the rest."""

from __future__ import annotations

import psycopg
import pytest

from holdfast.lifecycle import Status
from holdfast.testing.contract.driver import LEASE, TYPE, call, done, listen, task
from tests.stores.postgres import kit
from tests.stores.postgres.user_sql.user_sql import UserSqlSession

ENDS = {
    "heartbeat": {},
    "succeed": {"result": "7"},
    "fail": {"error": "no stock"},
    "retry": {"error": "no stock", "seconds": 5},
    "give_back": {},
}
GREEDY = """
update workflow.workflow_run
set status = 'leased', leased_by = 'p1', lease_until = now() + interval '9 seconds'
"""


def take(driver, user_sql, me="p1", **fields):
    """A new run, held by user SQL."""
    run = driver.start(**fields)
    assert user_sql.one("take", type=TYPE, me=me)[0] == run
    return run


def end(user_sql, how, run, me="p1", **values):
    return user_sql(how, id=run, me=me, **{**ENDS[how], **values})


@pytest.mark.spec("SQL-4", "MOVE-5")
def test_a_worker_in_user_sql_claims_renews_and_ends_a_run(driver, user_sql):
    """Attempt, fence, times and trail are written by the database; started_at is the time of the claim."""
    run = driver.start(params='{"n":1}')
    assert user_sql.one("take", type=TYPE, me="p1") == (run, {"n": 1})
    taken = driver.get(run)
    assert (taken.status, taken.leased_by, taken.attempt) == (Status.LEASED, "p1", 1)
    driver.clock.turn(10)
    assert end(user_sql, "heartbeat", run) == [(None,)]
    assert (driver.get(run).lease_until - taken.lease_until).total_seconds() == 10
    driver.clock.turn(10)
    assert end(user_sql, "succeed", run, result='{"paid": 1.0}') == [(run,)]
    shown = driver.get(run)
    assert (shown.status, shown.result_json, shown.leased_by) == (Status.SUCCEEDED, '{"paid": 1.0}', None)
    assert (shown.started_at, shown.finished_at) == (taken.updated_at, shown.updated_at)
    assert (shown.fence, shown.attempt) == (taken.fence, 1)
    assert driver.told(run) == ["created", "leased", "started", "succeeded"]
    assert driver.last(run, "leased") == {"worker": "p1", "attempt": 1, "fence": taken.fence}
    assert user_sql.one("look", id=run) == ("succeeded", {"paid": 1.0}, None, 1)
    driver.assert_replayed(run)


@pytest.mark.spec("SQL-4")
def test_a_worker_in_user_sql_fails_a_run_for_good(driver, user_sql):
    run = take(driver, user_sql)
    assert end(user_sql, "fail", run) == [(run,)]
    shown = driver.get(run)
    assert (shown.status, shown.last_error, shown.error.kind) == (Status.FAILED, "no stock", "fatal")
    tried = {"attempt": 1, "max_attempts": 3}
    assert driver.last(run, "failed") == {"kind": "fatal", "message": "no stock", **tried}
    driver.assert_replayed(run)
    assert driver.retry_run(run).status is Status.PENDING


@pytest.mark.spec("SQL-4", "RETRY-1")
def test_a_retry_counts_and_the_last_one_is_a_failure(driver, user_sql):
    """Also when each error is the same as the one before; a run that is not due is not taken."""
    run = take(driver, user_sql, max_attempts=3)
    for attempt in (1, 2):
        assert end(user_sql, "retry", run) == [("pending",)]
        assert driver.last(run, "retried")["attempt"] == attempt
        assert (driver.last(run, "retried")["delay"], driver.last(run, "retried")["status"]) == (5, "pending")
        assert user_sql("take", type=TYPE, me="p1") == []
        assert user_sql(GREEDY + " where status = 'pending'") == 0
        driver.clock.turn(5)
        assert user_sql.one("take", type=TYPE, me="p1")[0] == run
    assert end(user_sql, "retry", run) == [("failed",)]
    shown = driver.get(run)
    assert (shown.status, shown.attempt, shown.error.kind) == (Status.FAILED, 3, "exhausted")
    assert shown.last_error == "no stock"
    driver.assert_replayed(run)


@pytest.mark.spec("SQL-4")
def test_an_error_alone_is_a_retry_too(driver, user_sql):
    """A repeated error is not taken for giving the run back."""
    run = take(driver, user_sql, max_attempts=2)
    says = "update workflow.workflow_run set status = 'pending', last_error = 'no stock'"
    text = says + " where id = :'id' returning status"
    assert user_sql.one(text, id=run) == "pending"
    assert user_sql.one("take", type=TYPE, me="p1")[0] == run
    assert user_sql.one(text, id=run) == "failed"


@pytest.mark.spec("SQL-4")
def test_a_run_that_is_given_back_costs_no_attempt(driver, user_sql):
    run = take(driver, user_sql)
    assert end(user_sql, "give_back", run) == [(run,)]
    assert (driver.status(run), driver.get(run).attempt, driver.told(run)[-1]) == (
        Status.PENDING,
        0,
        "released",
    )
    driver.assert_replayed(run)
    assert driver.take(run).attempt == 1


@pytest.mark.spec("SQL-4")
def test_the_last_attempt_can_be_given_back_too(driver, user_sql):
    run = take(driver, user_sql, max_attempts=1)
    assert end(user_sql, "give_back", run) == [(run,)]
    assert driver.status(run) is Status.PENDING


@pytest.mark.spec("SQL-4", "LEASE-4", "LEASE-5")
@pytest.mark.parametrize("how", ENDS)
def test_a_lease_that_has_passed_changes_no_row(driver, user_sql, how):
    """At its last instant the lease still holds."""
    late, last = take(driver, user_sql), take(driver, user_sql, "p2")
    driver.clock.turn(LEASE)
    assert end(user_sql, how, last, "p2") != []
    driver.clock.turn(0.000001)
    before = driver.snapshot(late)
    assert end(user_sql, how, late) == []
    assert driver.snapshot(late) == before


@pytest.mark.spec("SQL-4", "LEASE-4")
@pytest.mark.parametrize("how", ENDS)
def test_a_run_that_a_worker_of_the_engine_holds_is_not_changed(driver, user_sql, how):
    """Not under the same worker name either, nor after user SQL held it."""
    run = take(driver, user_sql)
    end(user_sql, "give_back", run)
    claim = driver.take(run, worker="p1")
    before = driver.snapshot(run)
    assert end(user_sql, how, run) == []
    assert user_sql("update workflow.workflow_run set priority = 5 where id = :'id'", id=run) == 0
    assert driver.snapshot(run) == before
    assert driver.complete(claim).answer == "applied"


@pytest.mark.spec("SQL-4")
def test_a_plan_with_open_steps_is_not_taken(driver, user_sql):
    """Only verbs can write its steps."""
    run = driver.plan(task("A"), task("B"))
    assert user_sql("take", type=TYPE, me="p1") == []
    assert user_sql(GREEDY) == 0
    driver.take(run)


@pytest.mark.spec("SQL-4", "REG-2")
def test_a_type_that_is_switched_off_is_not_taken(driver, user_sql):
    run = driver.start()
    driver.run(driver.store.register(TYPE, enabled=False))
    assert user_sql("take", type=TYPE, me="p1") == []
    driver.run(driver.store.register(TYPE, enabled=True))
    assert user_sql.one("take", type=TYPE, me="p1")[0] == run


@pytest.mark.spec("SQL-4")
@pytest.mark.parametrize(
    ("lease", "words"),
    [
        ("leased_by = 'p', lease_until = now()", "a time from now to a day ahead"),
        ("leased_by = 'p', lease_until = now() + interval '2 days'", "a time from now to a day ahead"),
        ("leased_by = 'p', lease_until = 'infinity'", "a time from now to a day ahead"),
        ("leased_by = 'p'", "a time from now to a day ahead"),
        ("lease_until = now() + interval '9 seconds'", "leased_by '': 1 to 255"),
        ("leased_by = 'p', lease_until = now() + interval '9 seconds', fence = 9", "sets fence"),
    ],
)
def test_a_lease_has_a_holder_and_an_end_that_is_near(driver, user_sql, lease, words):
    run = driver.start()
    before = driver.snapshot(run)
    with pytest.raises(psycopg.Error, match=words):
        user_sql(f"update workflow.workflow_run set status = 'leased', {lease}")
    assert driver.snapshot(run) == before


@pytest.mark.spec("SQL-4")
def test_between_two_workers_in_user_sql_only_the_name_protects(driver, user_sql):
    run = take(driver, user_sql)
    assert end(user_sql, "succeed", run, "p2") == []
    with pytest.raises(psycopg.Error, match=r"the heartbeat of run .* sets leased_by"):
        user_sql("update workflow.workflow_run set leased_by = 'p2' where id = :'id'", id=run)
    assert user_sql("update workflow.workflow_run set status = 'succeeded' where id = :'id'", id=run) == 1


@pytest.mark.spec("SQL-4", "LEASE-2")
def test_two_who_take_at_the_same_time_get_two_runs(driver, user_sql):
    runs = {driver.start(), driver.start()}
    other = UserSqlSession(kit.database()[0], driver.clock)
    with user_sql.connection.transaction():
        mine = user_sql.one("take", type=TYPE, me="p1")[0]
        theirs = other.one("take", type=TYPE, me="p2")[0]
        assert other("take", type=TYPE, me="p3") == []
    assert {mine, theirs} == runs
    other.close()


@pytest.mark.spec("SQL-4", "LEASE-6")
def test_a_worker_in_user_sql_that_dies_is_noticed_by_a_keeper(driver, user_sql):
    """By the statement of the page, or any keeper; the former worker can never write again."""
    run = take(driver, user_sql)
    driver.clock.turn(LEASE + 1)
    user_sql("keep")
    assert (driver.status(run), driver.get(run).crashes) == (Status.PENDING, 1)
    claim = driver.take(run)
    assert end(user_sql, "succeed", run) == []
    driver.complete(claim)
    driver.assert_replayed(run)


@pytest.mark.spec("SQL-4", "PAUSE-3")
@pytest.mark.parametrize("how", ["retry", "give_back"])
def test_a_pause_that_was_asked_for_takes_the_run(driver, user_sql, how):
    run = take(driver, user_sql)
    driver.pause(run, by="ann")
    assert end(user_sql, "heartbeat", run) == [("ann",)]
    end(user_sql, how, run)
    assert (driver.status(run), driver.last(run, "paused")) == (Status.PAUSED, {"by": "ann"})
    driver.assert_replayed(run)
    assert driver.resume(run).status is Status.PENDING


@pytest.mark.spec("SQL-4", "PAUSE-3")
@pytest.mark.parametrize("how", ["succeed", "fail"])
def test_an_end_wins_over_a_pause(driver, user_sql, how):
    run = take(driver, user_sql)
    driver.pause(run, by="ann")
    end(user_sql, how, run)
    assert driver.get(run).status in {Status.SUCCEEDED, Status.FAILED}
    assert driver.get(run).pause_asked_by is None


@pytest.mark.spec("TRAIL-2", "SQL-4")
def test_heartbeats_are_in_the_trail_once_a_minute(driver, user_sql):
    run = take(driver, user_sql)
    for _ in range(13):
        driver.clock.turn(10)
        assert end(user_sql, "heartbeat", run)
    assert driver.told(run).count("heartbeat") == 2
    assert driver.last(run, "heartbeat") == {"worker": "p1"}


@pytest.mark.spec("SQL-4")
@pytest.mark.parametrize("how", ["succeed", "fail"])
def test_what_an_engine_has_left_open_ends_with_the_run(driver, user_sql, how):
    claim = driver.held()
    driver.checkpoint(claim, done("a"), listen("b"))
    driver.release(claim)
    assert user_sql.one("take", type=TYPE, me="p1")[0] == claim.id
    end(user_sql, how, claim.id)
    assert driver.shape(claim.id) == [("a", "succeeded"), ("b", "cancelled")]
    driver.assert_replayed(claim.id)


@pytest.mark.spec("SQL-4")
@pytest.mark.parametrize(("how", "status"), [("succeed", "succeeded"), ("fail", "failed")])
def test_the_end_of_a_child_reaches_its_parent(driver, user_sql, how, status):
    claim, child = driver.held(), driver.id()
    driver.park(claim, call("c", child), known=0)
    assert user_sql.one("take", type=TYPE, me="p1")[0] == child
    end(user_sql, how, child)
    user_sql("keep")
    assert (driver.status(claim.id), driver.step(claim.id, "c").status) == (Status.PENDING, status)


@pytest.mark.spec("SQL-4")
def test_an_error_can_be_told_in_full_and_progress_too(driver, user_sql):
    run = take(driver, user_sql)
    user_sql("update workflow.workflow_run set progress = '{\"done\": 3}' where id = :'id'", id=run)
    assert driver.get(run).progress_json == '{"done": 3}'
    text = "update workflow.workflow_run set status = 'failed', error = :'error' where id = :'id'"
    with pytest.raises(psycopg.Error, match="an object, as in"):
        user_sql(text, id=run, error='"boom"')
    user_sql(text, id=run, error='{"kind": "no_stock", "message": "none left", "type": "Stock"}')
    shown = driver.get(run)
    assert (shown.error.kind, shown.error.type, shown.last_error) == (
        "no_stock",
        "Stock",
        "no_stock: none left",
    )


@pytest.mark.spec("SQL-5")
def test_the_verbs_are_functions_with_json_in_and_out(driver, user_sql):
    """Start, claim, renew, commit, pause, resume, cancel: as the page calls them."""
    (started,) = user_sql.one("start_by_function", type=TYPE, payload='{"n":1}', digest="d")
    run = started["id"]
    (claim,) = user_sql.one("claim", me="p1", type=TYPE)
    assert (claim["id"], claim["params"], claim["attempt"]) == (run, '{"n":1}', 1)
    renewal = user_sql.one("renew", me="p1", id=run, fence=claim["fence"])
    held = {"answer": "applied", "renewed": True, "pause_asked": False, "settled": [], "more": False}
    assert renewal == {"held": [held], "strays": []}
    answer = user_sql.one("commit", id=run, fence=claim["fence"], result="7")
    assert (answer["verdicts"][0]["answer"], driver.get(run).result_json) == ("applied", "7")
    other = driver.start()
    assert user_sql.one("pause", id=other, me="ann")["status"] == "pending"
    assert user_sql.one("cancel_by_function", id=other, me="ann")["status"] == "cancelled"
    driver.assert_replayed(other)
