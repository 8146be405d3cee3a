"""Kept counts: user SQL, caller transactions and raw statements are counted like the verbs."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import sql

from holdfast.contract import FOLD_MAX, FOLD_SECONDS
from holdfast.records import Chore
from holdfast.testing.contract.driver import LEASE, TYPE
from holdfast.testing.contract.test_counts import assert_counts, totals
from tests.stores.postgres.kit import database
from tests.stores.postgres.user_sql.user_sql import refused, started


def by_status(driver):
    return {status: number for status, number in driver.counts().by_status().items() if number}


def held(user_sql, **values):
    run = started(user_sql, **values)
    assert user_sql("take", type=TYPE, me="p1")
    return run


def _start(driver, user_sql):
    started(user_sql, key="k")
    assert user_sql("start", type=TYPE, payload="1", key="k") == []
    user_sql("start_later", type=TYPE, payload="1", key="l", tenant="acme")
    return {"pending": 2}, {"started": 2}


def _cancel(driver, user_sql):
    user_sql("cancel", id=started(user_sql))
    user_sql("cancel", id=held(user_sql))
    return {"cancelled": 2}, {"started": 2, "cancelled": 2}


def _take(driver, user_sql):
    run = held(user_sql)
    user_sql("heartbeat", id=run, me="p1")
    return {"leased": 1}, {"started": 1}


def _take_by_prefix(driver, user_sql):
    started(user_sql)
    user_sql("take_by_prefix", prefix="shop.%", runtime="go", me="p1")
    return {"leased": 1}, {"started": 1}


def _succeed(driver, user_sql):
    assert user_sql("succeed", id=held(user_sql), me="p1", result="1")
    return {"succeeded": 1}, {"started": 1, "succeeded": 1}


def _fail(driver, user_sql):
    assert user_sql("fail", id=held(user_sql), me="p1", error="no")
    return {"failed": 1}, {"started": 1, "failed": 1}


def _retry(driver, user_sql):
    assert user_sql("retry", id=held(user_sql), me="p1", error="no", seconds=1) == [("pending",)]
    return {"pending": 1}, {"started": 1, "retried": 1}


def _retry_too_often(driver, user_sql):
    run = held(user_sql)
    for attempt in range(3):
        answer = user_sql("retry", id=run, me="p1", error="no", seconds=0)
        if attempt < 2:
            user_sql("take", type=TYPE, me="p1")
    assert answer == [("failed",)]
    return {"failed": 1}, {"started": 1, "retried": 2, "failed": 1}


def _give_back(driver, user_sql):
    assert user_sql("give_back", id=held(user_sql), me="p1")
    return {"pending": 1}, {"started": 1}


def _expire(driver, user_sql):
    held(user_sql)
    driver.clock.turn(LEASE + 1)
    user_sql("keep")
    return {"pending": 1}, {"started": 1, "expired": 1}


def _delete(driver, user_sql):
    for run in (started(user_sql), held(user_sql)):
        assert user_sql("delete", id=run) == [(run,)]
    kept = started(user_sql)
    assert user_sql("delete", id=kept) == user_sql("restore", id=kept) == [(kept,)]
    return {"pending": 1}, {"started": 3}


def _change(driver, user_sql):
    assert user_sql("hurry", id=started(user_sql))
    return {"pending": 1}, {"started": 1}


def _tell(driver, user_sql):
    """A trail row of a worker is its own word: it is no happening."""
    run = started(user_sql)
    for what in ("retried", "lease_expired", "succeeded"):
        user_sql("tell", id=run, what=what, data="{}")
    return {"pending": 1}, {"started": 1}


def _many(driver, user_sql):
    """One statement that moves many runs, each in its own way."""
    for _ in range(4):
        started(user_sql)
    held(user_sql)
    assert (
        user_sql(
            "update workflow.workflow_run set status = 'cancelled' where status in ('pending', 'leased')"
        )
        == 5
    )
    return {"cancelled": 5}, {"started": 5, "cancelled": 5}


def _refused(driver, user_sql):
    run = started(user_sql)
    refused(user_sql, "cannot", "update workflow.workflow_run set status = 'paused' where id = :'id'", id=run)
    refused(
        user_sql, "has rows in other tables", "delete from workflow.workflow_run where id = :'id'", id=run
    )
    return {"pending": 1}, {"started": 1}


def _rolled_back(driver, user_sql):
    started(user_sql)
    user_sql("begin")
    held(user_sql)
    user_sql("rollback")
    return {"pending": 1}, {"started": 1}


def _removed(driver, user_sql):
    """The owner removes rows by hand, the trail first."""
    run = started(user_sql)
    started(user_sql)
    user_sql("delete from workflow.workflow_event where workflow_id = :'id'", id=run)
    assert user_sql("delete from workflow.workflow_run where id = :'id'", id=run) == 1
    return {"pending": 1}, {"started": 2}


def _truncated(driver, user_sql):
    held(user_sql)
    driver.clock.turn(FOLD_SECONDS)
    driver.tick(only=Chore.COUNT)
    started(user_sql)
    user_sql("truncate workflow.workflow_event, workflow.workflow_run")
    return {}, {"started": 2}


WAYS = {
    one.__name__.removeprefix("_"): one
    for one in (
        _start, _cancel, _take, _take_by_prefix, _succeed, _fail, _retry, _retry_too_often, _give_back,
        _expire, _delete, _change, _tell, _many, _refused, _rolled_back, _removed, _truncated,
    )
}  # fmt: skip


@pytest.mark.spec("SQL-1", "SQL-2", "SQL-4", "SQL-12", "READ-4")
@pytest.mark.parametrize("way", WAYS)
def test_user_sql_is_counted(driver, user_sql, way):
    """In the same commit as its change, and no differently after it is folded."""
    statuses, happenings = WAYS[way](driver, user_sql)
    for _ in range(2):
        assert (by_status(driver), totals(driver)) == (statuses, happenings)
        assert_counts(driver, "acme")
        driver.clock.turn(FOLD_SECONDS)
        user_sql("select workflow.fold_counts(:'most'::integer)", most=FOLD_MAX)


@pytest.mark.spec("READ-4")
def test_the_view_shows_the_counts_of_each_tenant(driver, user_sql):
    started(user_sql)
    held(user_sql)
    user_sql("start_later", type=TYPE, payload="1", key="l", tenant="acme")
    for _ in range(2):
        assert user_sql("counts") == [(TYPE, "leased", 1), (TYPE, "pending", 1)]
        driver.clock.turn(FOLD_SECONDS)
        assert driver.tick(only=Chore.COUNT).folded in {0, 4}


WRITES = (
    "insert into workflow.workflow_count_change (tenant, type, number, at) values ('a', 'b', 1, now())",
    "delete from workflow.workflow_count_change",
    "insert into workflow.workflow_count values ('a', 'b', 'c', 1)",
    "update workflow.workflow_count set number = 7",
    "update workflow.workflow_rate set number = 7",
    "update workflow.workflow_count_fold set past = 7",
    "select workflow.recount(true)",
    "select setval('workflow.workflow_count_change_seq_seq', 1)",
)
# Names that the triggers would find first, if they did not say which they mean.
SHADOWS = """
create temp table new_rows (id uuid);
create temp table old_rows (id uuid);
create temp table workflow_count_change (
    tenant text, type text, from_status text, to_status text, what text, number bigint, at timestamptz
);
create function {0}.clock() returns timestamptz language sql as 'select timestamptz ''infinity''';
create function {0}.is_no(text, text) returns boolean language plpgsql as $$ begin raise 'mine'; end $$;
create function {0}.is_no(oid, oid) returns boolean language plpgsql as $$ begin raise 'mine'; end $$;
create function {0}.is_no(bigint, integer) returns boolean language plpgsql as $$ begin raise 'mine'; end $$;
create operator {0}.= (function = {0}.is_no, leftarg = text, rightarg = text);
create operator {0}.<> (function = {0}.is_no, leftarg = text, rightarg = text);
create operator {0}.<> (function = {0}.is_no, leftarg = oid, rightarg = oid);
create operator {0}.= (function = {0}.is_no, leftarg = bigint, rightarg = integer);
set search_path = {0}, pg_temp, workflow, pg_catalog;
set standard_conforming_strings = off;
"""


@pytest.fixture
def role(driver, user_sql):
    """User SQL with the rights of the page, and with a schema of its own to create things in."""
    name = f"counted_{user_sql.connection.info.dbname}"
    words = {"role": sql.Identifier(name), "own": sql.Identifier(f"of_{name}")}
    script = "drop role if exists {role}; create role {role}; create schema {own} authorization {role}"
    user_sql.connection.execute(sql.SQL(script).format(**words))
    user_sql("grants", role=name)
    user_sql.connection.execute(
        sql.SQL(
            "grant usage on schema turned to {role}; grant temporary on database {database} to {role}"
        ).format(database=sql.Identifier(user_sql.connection.info.dbname), **words)
    )
    user_sql.connection.execute(sql.SQL("set role {role}").format(**words))
    yield name
    user_sql.connection.execute("reset role; reset search_path")
    user_sql.connection.execute(sql.SQL("drop owned by {role} cascade; drop role {role}").format(**words))


@pytest.mark.spec("SQL-12")
def test_a_role_for_user_sql_is_counted_and_writes_no_counts_itself(driver, user_sql, role):
    assert user_sql("succeed", id=held(user_sql), me="p1", result="1")
    assert user_sql("counts") == [(TYPE, "succeeded", 1)]
    for text in WRITES:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            user_sql(text)
    assert_counts(driver)


@pytest.mark.spec("SQL-12")
def test_tables_functions_and_operators_of_the_role_deceive_no_trigger_of_the_counts(driver, user_sql, role):
    """One row at a time, and several in one statement."""
    user_sql.connection.execute(sql.SQL(SHADOWS).format(sql.Identifier(f"of_{role}")))
    add = "insert into workflow.workflow_run (type) values " + ", ".join(["(:'type')"] * 3)
    take = (
        "update workflow.workflow_run set status = 'leased', leased_by = 'p1', "
        "lease_until = workflow.clock() + '9 s'"
    )
    end = "update workflow.workflow_run set status = 'succeeded' where status operator(pg_catalog.=) 'leased'"
    assert [user_sql(text, type=TYPE) for text in (add, take, end)] == [3, 3, 3]
    one = user_sql.one("insert into workflow.workflow_run (type) values (:'type') returning id", type=TYPE)
    by_id = "where id operator(pg_catalog.=) :'id'"
    assert [user_sql(f"{text} {by_id}", id=one) for text in (take, end.partition(" where")[0])] == [1, 1]
    assert (by_status(driver), totals(driver)) == ({"succeeded": 4}, {"started": 4, "succeeded": 4})
    assert user_sql.one("select pg_catalog.count(*) from pg_temp.workflow_count_change") == 0


@pytest.mark.spec("SQL-12")
def test_a_trigger_of_the_counts_serves_no_other_table(driver):
    """Its rows could have types of someone else."""
    _, admin = database()
    admin.execute("create schema other; create table other.t (like workflow.workflow_run)")
    try:
        for name, event, table in (
            ("count_added", "insert", "new table as new_rows"),
            ("count_removed", "delete", "old table as old_rows"),
        ):
            admin.execute(
                f"create trigger {name} after {event} on other.t referencing {table}"
                f" for each statement execute function workflow.{name}()"
            )
        with pytest.raises(psycopg.Error, match="is for workflow_run alone"):
            admin.execute("delete from other.t")
        with pytest.raises(psycopg.Error, match="is for workflow_run alone"):
            admin.execute("insert into other.t select * from workflow.workflow_run")
    finally:
        admin.execute("drop schema other cascade")
