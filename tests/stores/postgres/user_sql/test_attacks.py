"""The restricted role of docs/sql.md, used by an attacker: it cannot write past the moves."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import sql

from holdfast.lifecycle import Status
from holdfast.testing.contract.driver import TYPE
from tests.stores.postgres.user_sql.user_sql import refused

DENIED = {
    "finishes a run by rev": "update workflow.workflow_run set status = 'succeeded', rev = 9",
    "sets a fence": "update workflow.workflow_run set fence = 1",
    "takes what the engine holds": "update workflow.workflow_run set plain_fence = fence",
    "starts past the trigger": "insert into workflow.workflow_run (type, rev) values ('a', 1)",
    "changes the trail": "update workflow.workflow_event set data = '{}'",
    "removes the trail": "delete from workflow.workflow_event",
    "empties the trail": "truncate workflow.workflow_event",
    "tells as a verb": "insert into workflow.workflow_event (workflow_id, event_type, told) "
    "select id, 'succeeded', false from workflow.workflow_run",
    "tells at another time": "insert into workflow.workflow_event (workflow_id, event_type, created_at) "
    "select id, 'note', now() from workflow.workflow_run",
    "tells by a part of ours": "select workflow.note(id, 'succeeded') from workflow.workflow_run",
    "writes an event": "insert into workflow.workflow_inbox (tenant, topic, event_id) "
    "values ('acme', 't', 'e')",
    "sends an event": """select workflow.emit('{"topic": "t", "id": "e", "tenant": "acme"}')""",
    "records an event": "select workflow.record_event('{\"topic\": \"t\", \"id\": \"e\"}', now(), false)",
    "writes a step": "insert into workflow.workflow_step (run_id, seq, key, kind, status) "
    "select id, 1, 'a', 'task', 'succeeded' from workflow.workflow_run",
    "removes a run": "delete from workflow.workflow_run",
    "calls a verb": "select workflow.cancel(id, null, 'me', true) from workflow.workflow_run",
    "takes a run by a verb": """select workflow.claim('{"worker": "w", "types": ["a.b.v1"], "limit": 1}')""",
    "switches a type off": "select workflow.register('shop', '{\"is_enabled\": false}')",
    "publishes": "insert into workflow.workflow_definition (type) values ('a.b.v1')",
    "locks the table": "do $$ begin lock table workflow.workflow_run in exclusive mode; end $$",
    "counts on": "select setval('workflow.workflow_event_id_seq', 1)",
    "switches triggers off": "alter table workflow.workflow_run disable trigger all",
    "is a replica": "set session_replication_role = replica",
}  # fmt: skip


@pytest.fixture
def role(driver, user_sql):
    """User SQL with the rights of the page, and with a schema of its own to create things in."""
    name = f"plain_{user_sql.connection.info.dbname}"
    script = "drop role if exists {0}; create role {0}; create schema {1} authorization {0}"
    words = [sql.Identifier(name), sql.Identifier(f"of_{name}")]
    user_sql.connection.execute(sql.SQL(script).format(*words))
    user_sql("grants", role=name)
    user_sql.connection.execute(
        sql.SQL("grant usage on schema turned to {0}; grant temporary on database {1} to {0}").format(
            words[0], sql.Identifier(user_sql.connection.info.dbname)
        )
    )
    user_sql.connection.execute(sql.SQL("set role {0}").format(words[0]))
    yield name
    user_sql.connection.execute("reset role; reset search_path")
    user_sql.connection.execute(sql.SQL("drop owned by {0} cascade; drop role {0}").format(words[0]))


@pytest.mark.spec("SQL-12", "TRAIL-1")
@pytest.mark.parametrize("how", DENIED)
def test_a_role_for_user_sql_cannot_write_past_the_moves(driver, user_sql, role, how):
    run = driver.start()
    claim = driver.take(run)
    before = driver.everything()
    user_sql.connection.execute("set search_path = workflow")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        user_sql(DENIED[how])
    assert driver.everything() == before
    assert driver.complete(claim).answer == "applied"
    driver.assert_replayed(run)


@pytest.mark.spec("SQL-12")
def test_the_view_of_what_is_claimable_writes_nothing(driver, user_sql, role):
    driver.start()
    for text in ("update {} set run_at = now()", "delete from {}", "insert into {} (type) values ('a.b.v1')"):
        with pytest.raises(
            (psycopg.errors.ObjectNotInPrerequisiteState, psycopg.errors.InsufficientPrivilege)
        ):
            user_sql(text.format("workflow.workflow_run_claimable"))


SHADOWS = """
create temp table workflow_event (like workflow.workflow_event);
create temp table workflow_run (like workflow.workflow_run);
create temp table workflow_step (like workflow.workflow_step);
create temp table workflow_registry (like workflow.workflow_registry);
create temp table workflow_definition (like workflow.workflow_definition);
insert into workflow_definition (type, kind, description, updated_at)
values ('shop.order.v1', 'code', '', now());
create function {0}.checked_type(type text) returns text language sql as 'select $1';
create function {0}.clock() returns timestamptz language sql as 'select timestamptz ''infinity''';
create function {0}.note(run uuid, what text, data text, at timestamptz) returns bigint
language sql as 'select 1::bigint';
create function {0}.joined(a text, b text) returns text language sql as 'select ''x''';
create operator {0}.|| (function = {0}.joined, leftarg = text, rightarg = text);
set search_path = {0}, pg_temp, workflow, pg_catalog;
set standard_conforming_strings = off;
"""


@pytest.mark.spec("SQL-12", "MOVE-5")
def test_tables_functions_and_settings_of_the_role_deceive_no_trigger(driver, user_sql, role):
    """Tables, functions and operators of the same names, and a search path that finds them first."""
    user_sql.connection.execute(sql.SQL(SHADOWS).format(sql.Identifier(f"of_{role}")))
    assert (
        refused(user_sql, "is not a workflow type", "start", type="shop:order:v1", payload="1", key=None)
        == "HF007"
    )
    run = user_sql.one("start", type=TYPE, payload="1", key="k")
    take = """
    update workflow.workflow_run set status = 'leased', leased_by = 'p1',
        lease_until = pg_catalog.now() + interval '9 seconds' where id = :'id'
    """
    driver.clock.turn(0)
    user_sql(take.replace("pg_catalog.now()", "workflow.clock()"), id=run)
    assert user_sql(
        "update workflow.workflow_run set status = 'succeeded', result = '7' where id = :'id'", id=run
    )
    assert driver.told(run) == ["created", "leased", "started", "succeeded"]
    other = user_sql.one("start", type=TYPE, payload="1", key=None)
    assert user_sql("update workflow.workflow_run set deleted_at = 'now' where id = :'id'", id=other) == 1
    driver.restore(other)
    assert driver.status(other) is Status.PENDING
    for one in (run, other):
        driver.assert_replayed(one)
    assert user_sql.one("select count(*) from pg_temp.workflow_event") == 0


@pytest.mark.spec("SQL-12")
def test_a_role_that_may_send_events_sends_them_by_the_function_alone(driver, user_sql, role):
    """For any tenant: the page says so."""
    user_sql.connection.execute("reset role")
    user_sql("grants_events", role=role)
    user_sql.connection.execute(sql.SQL("set role {0}").format(sql.Identifier(role)))
    user_sql("emit", topic="parcel", event="e1", payload="1")
    user_sql("keep")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        user_sql(DENIED["writes an event"])


def test_who_may_only_look_sends_no_event(driver, user_sql):
    """The functions that write are not granted to every user of the schema."""
    name = f"looks_{user_sql.connection.info.dbname}"
    user_sql.connection.execute(
        sql.SQL(
            "drop role if exists {0}; create role {0}; grant usage on schema workflow to {0};"
            "grant select on all tables in schema workflow to {0}; set role {0}"
        ).format(sql.Identifier(name))
    )
    try:
        for text in (
            DENIED["sends an event"],
            "select workflow.expire(1)",
            "select workflow.deliver(null, 1)",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                user_sql(text)
    finally:
        user_sql.connection.execute("reset role")
        user_sql.connection.execute(sql.SQL("drop owned by {0}; drop role {0}").format(sql.Identifier(name)))
