"""Updates by user SQL: a cancel, small changes, and the refusal of every other move."""

from __future__ import annotations

import re

import psycopg
import pytest

from holdfast.lifecycle import FINAL, Status
from holdfast.testing.contract.driver import TYPE, call, done, listen
from tests.stores.postgres.user_sql.user_sql import refused, started


@pytest.mark.spec("SQL-2")
def test_an_update_to_cancelled_is_a_whole_cancel(driver, user_sql):
    """Steps, fence, lease, trail, parent and children: the same as with the verb."""
    claim, child = driver.held(), driver.id()
    driver.checkpoint(claim, done("a"), listen("b"), call("c", child))
    assert user_sql("cancel", id=claim.id) == [(claim.id,)]
    shown = driver.get(claim.id)
    assert (shown.status, shown.fence, shown.leased_by) == (Status.CANCELLED, claim.fence + 1, None)
    assert shown.finished_at == shown.updated_at
    assert driver.shape(claim.id) == [("a", "succeeded"), ("b", "cancelled"), ("c", "cancelled")]
    assert driver.last(claim.id, "cancelled") == {"by": "sql:postgres"}
    driver.assert_replayed(claim.id)
    assert driver.complete(claim).answer == "cancelled"
    driver.deliver()
    assert driver.status(child) is Status.CANCELLED
    driver.assert_replayed(child)


@pytest.mark.spec("SQL-2")
def test_a_cancelled_child_tells_its_parent(driver, user_sql):
    claim, child = driver.held(), driver.id()
    driver.park(claim, call("c", child), known=0)
    user_sql("cancel", id=child)
    driver.deliver()
    assert (driver.status(claim.id), driver.step(claim.id, "c").status) == (Status.PENDING, "failed")


@pytest.mark.spec("SQL-2")
@pytest.mark.parametrize("status", list(Status))
def test_any_open_run_can_be_cancelled_and_no_other(driver, user_sql, status):
    run = in_status(driver, user_sql, status)
    assert user_sql("cancel", id=run) == ([] if status in FINAL else [(run,)])
    if status in FINAL:
        before = driver.snapshot(run)
        text = "update workflow.workflow_run set status = 'cancelled', updated_at = now() where id = :'id'"
        if status is Status.CANCELLED:
            user_sql(text, id=run)
        else:
            assert (
                refused(user_sql, f"cannot cancel run {run} by an update: it is {status}", text, id=run)
                == "HF002"
            )
            assert driver.snapshot(run) == before
        return
    assert driver.status(run) is Status.CANCELLED
    driver.assert_replayed(run)


def in_status(driver, user_sql, status):
    """A run in that status; a leased one is held by user SQL."""
    if status is Status.LEASED:
        started(user_sql)
        return user_sql.one("take", type=TYPE, me="p1")[0]
    if status in {Status.PENDING, Status.PAUSED}:
        run = driver.start()
        return driver.pause(run).id if status is Status.PAUSED else run
    claim = driver.held()
    if status is Status.WAITING:
        driver.park(claim, known=0)
    elif status is Status.CANCELLED:
        driver.cancel(claim.id)
    else:
        (driver.complete if status is Status.SUCCEEDED else driver.fail)(claim)
    return claim.id


LEGAL = {
    (Status.PENDING, Status.LEASED),
    *((Status.LEASED, to) for to in (Status.SUCCEEDED, Status.FAILED, Status.PENDING)),
    *((source, Status.CANCELLED) for source in Status if source not in FINAL),
}


@pytest.mark.spec("MOVE-1", "MOVE-3", "SQL-4")
@pytest.mark.parametrize("to", list(Status))
@pytest.mark.parametrize("source", list(Status))
def test_an_update_makes_no_move_that_there_is_not(driver, user_sql, source, to):
    """An illegal move is refused with the true status, and changes nothing; a legal one is in the trail."""
    if source is to:
        return
    run = in_status(driver, user_sql, source)
    before = driver.snapshot(run)
    lease = ", leased_by = 'p1', lease_until = now() + interval '9 seconds'" if to is Status.LEASED else ""
    text = f"update workflow.workflow_run set status = '{to}'{lease} where id = :'id'"
    if (source, to) in LEGAL:
        assert user_sql(text, id=run) == 1
        assert driver.status(run) is to
    else:
        assert refused(user_sql, f"run {run} by an update: it is {source}", text, id=run) == "HF002"
        assert driver.snapshot(run) == before
    driver.assert_replayed(run)


@pytest.mark.spec("SQL-4")
def test_of_a_pending_run_priority_time_and_labels_may_be_set(driver, user_sql):
    first, second = driver.start(), driver.start()
    assert user_sql("hurry", id=second) == [(second,)]
    assert [claim.id for claim in driver.claim()] == [second, first]
    third = driver.start()
    text = "update workflow.workflow_run set priority = -1 where id = :'id'"
    assert refused(user_sql, "0 to 999", text, id=third) == "HF007"


@pytest.mark.spec("SQL-4", "START-13", "TRAIL-1")
def test_the_trail_tells_of_another_priority_and_of_no_other_change(driver, user_sql):
    run = driver.start()
    user_sql(
        "update workflow.workflow_run set labels = '{\"a\": \"b\"}', priority = 100 where id = :'id'", id=run
    )
    assert driver.told(run) == ["created"]
    user_sql("hurry", id=run)
    assert driver.told(run) == ["created", "reprioritized"]
    assert driver.last(run, "reprioritized") == {"by": "sql:postgres", "priority": 1}
    driver.assert_replayed(run)


@pytest.mark.spec("SQL-4", "RETRY-9")
def test_a_run_that_is_put_off_does_not_time_out_before_it_is_due(driver, user_sql):
    run, other = driver.start(timeout_seconds=60.0), driver.start(timeout_seconds=60.0)
    driver.clock.turn(30)
    user_sql("update workflow.workflow_run set run_at = now() + interval '1 hour' where id = :'id'", id=run)
    user_sql("hurry", id=other)  # that does not extend its timeout
    driver.clock.turn(31)
    driver.tick()
    assert (driver.status(run), driver.status(other)) == (Status.PENDING, Status.FAILED)
    driver.clock.turn(3600 - 31)
    assert driver.take(run).id == run
    driver.clock.turn(61)
    driver.tick()
    assert driver.get(run).error.kind == "timeout"


@pytest.mark.spec("SQL-2", "CANC-5", "REW-3")
@pytest.mark.parametrize("keep", [True, False])
def test_a_cancel_that_was_rewound_cancels_no_child_of_the_next_execution(driver, user_sql, keep):
    """A cancel by user SQL owes the cancels of the children, and no keeper comes before the rewind."""
    claim, former, new = driver.held(), driver.id(), driver.id()
    driver.park(claim, call("c", former), known=0)
    user_sql("cancel", id=claim.id)
    user_sql(f"select workflow.rewind(:'id', null, null, 'ann', {str(not keep).lower()})", id=claim.id)
    again = next(one for one in driver.claim() if one.id == claim.id)
    driver.park(again, call("c", new), known=0)
    driver.tick()
    assert driver.status(new) is Status.PENDING
    assert (driver.status(former) is Status.CANCELLED) is not keep
    assert driver.status(claim.id) is Status.WAITING


@pytest.mark.parametrize("status", list(Status))
@pytest.mark.parametrize(
    "change",
    [
        "payload = '7'",
        "fence = fence + 1",
        "max_attempts = 9",
        "type = 'a.b.v1'",
        "tenant = 'x'",
        "owes = 1",
        "attempt = 0 - 1",
        "id = gen_random_uuid()",
    ],
)
def test_what_the_database_keeps_is_not_set(driver, user_sql, status, change):
    run = in_status(driver, user_sql, status)
    before = driver.snapshot(run)
    text = f"update workflow.workflow_run set {change} where id = :'id'"
    refused(user_sql, "leave it out|only priority, run_at and labels", text, id=run)
    assert driver.snapshot(run) == before


@pytest.mark.spec("SQL-12")
@pytest.mark.parametrize(
    ("change", "way"),
    [
        ("payload = '7', fence = 9", "sets payload, fence, .*: leave it out; payload: when a run is started"),
        ("leased_by = 'p1'", "leased_by: with status = 'leased', by a claim or a heartbeat"),
        ("result = '7'", "result: by the worker that holds the run, with a heartbeat or an end"),
        ("pause_asked_by = 'ann'", r"pause_asked_by: by select workflow\.pause\(run, tenant, who\)"),
        (
            "deleted_at = now(), priority = 1",
            "the delete of run .* sets priority.*; priority: while the run is p",
        ),
        ("fence = 9", "which only the database writes: leave it out$"),
    ],
)
def test_a_refused_column_names_the_way_that_works(driver, user_sql, change, way):
    text = f"update workflow.workflow_run set {change} where id = :'id'"
    with pytest.raises(psycopg.Error) as caught:
        user_sql(text, id=driver.start())
    assert re.search(way, caught.value.diag.message_primary), caught.value


@pytest.mark.spec("SQL-12")
def test_what_is_set_only_while_a_run_is_pending_says_so(driver, user_sql):
    run = driver.pause(driver.start()).id
    text = "update workflow.workflow_run set priority = 1 where id = :'id'"
    refused(user_sql, "is paused: only priority.*; priority: while the run is pending", text, id=run)


DELETE = "update workflow.workflow_run set deleted_at = now() where id = :'id'"
RESTORE = "update workflow.workflow_run set deleted_at = null where id = :'id'"


@pytest.mark.spec("SQL-12", "MOVE-5")
@pytest.mark.parametrize("status", list(Status))
def test_delete_and_restore_by_user_sql_are_those_of_the_verbs(driver, user_sql, status):
    """The row, the trail and the fence are the same, except for the name of the person."""
    mine, theirs = in_status(driver, user_sql, status), in_status(driver, user_sql, status)
    fences = {run: driver.get(run).fence for run in (mine, theirs)}
    assert user_sql(DELETE, id=mine) == 1
    driver.delete(theirs, by="ann")
    assert driver.get(mine) is None
    assert user_sql(DELETE, id=mine) == len(user_sql("cancel", id=mine)) == 0
    assert user_sql(RESTORE, id=mine) == 1
    driver.restore(theirs, by="ann")
    assert user_sql(RESTORE, id=mine) == 1  # it is not deleted: no trail row is written
    shown, like = driver.get(mine), driver.get(theirs)
    assert (shown.status, shown.leased_by, shown.attempt) == (like.status, like.leased_by, like.attempt)
    assert shown.fence - fences[mine] == like.fence - fences[theirs]
    assert driver.told(mine) == driver.told(theirs)
    who = driver.last(mine, "deleted").pop("by")
    assert (who[:4], driver.last(mine, "deleted") | {"by": "ann"}) == ("sql:", driver.last(theirs, "deleted"))
    driver.assert_replayed(mine)


@pytest.mark.spec("SQL-12", "LEASE-5")
def test_a_delete_by_user_sql_fences_the_holder(driver, user_sql):
    """A run that the engine holds, with a pause that was asked for: it becomes paused."""
    claim = driver.held()
    driver.pause(claim.id, by="ann")
    assert user_sql(DELETE, id=claim.id) == 1
    assert driver.complete(claim).answer == "lost"
    user_sql(RESTORE, id=claim.id)
    assert driver.status(claim.id) is Status.PAUSED
    assert driver.told(claim.id)[-3:] == ["deleted", "paused", "restored"]
    driver.assert_replayed(claim.id)


@pytest.mark.spec("SQL-12")
@pytest.mark.parametrize("at", ["'-infinity'", "'infinity'", "now() - interval '9 years'"])
def test_the_time_of_a_delete_by_user_sql_is_that_of_the_store(driver, user_sql, at):
    run = driver.start()
    user_sql(f"update workflow.workflow_run set deleted_at = {at} where id = :'id'", id=run)
    ((deleted_at, now),) = user_sql("select deleted_at, workflow.clock() from workflow.workflow_run")
    assert deleted_at == now
    assert driver.restore(run).status is Status.PENDING


@pytest.mark.spec("SQL-12")
@pytest.mark.parametrize("status", list(Status))
def test_a_raw_delete_is_refused_with_the_way_that_works(driver, user_sql, status):
    run = in_status(driver, user_sql, status)
    before = driver.everything()
    said = "has rows in other tables: set deleted_at = now.*holdfast purge.*workflow.purge"
    assert refused(user_sql, said, "delete from workflow.workflow_run where id = :'id'", id=run) == "HF007"
    assert driver.everything() == before


def test_a_status_that_nobody_knows_is_refused(driver, user_sql):
    driver.start()
    refused(
        user_sql,
        "'done' is not a status: pending, leased",
        "update workflow.workflow_run set status = 'done'",
    )


def test_a_deleted_run_is_not_changed(driver, user_sql):
    run = driver.start()
    driver.delete(run)
    assert user_sql("cancel", id=run) == []
    driver.restore(run)
    assert driver.status(run) is Status.PENDING


def test_updates_want_read_committed(driver, user_sql):
    """An older snapshot would hide steps that were written since."""
    run = driver.start()
    user_sql.connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    with user_sql.connection.transaction():
        refused(user_sql, "READ COMMITTED", "cancel", id=run)
