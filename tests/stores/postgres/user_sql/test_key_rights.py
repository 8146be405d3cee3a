"""API keys, signing keys and the audit log are for the engine's role alone."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import sql

from holdfast.testing.contract.keys import create
from tests.stores.postgres.user_sql.test_attacks import role  # noqa: F401 - a fixture

TABLES = ("workflow_api_key", "workflow_signing_key", "workflow_audit", "workflow_page_session")
FUNCTIONS = (
    "create_key", "keys", "find_key", "rotate_key", "revoke_key", "use_keys", "signing_keys",
    "add_signing_key", "note_audit", "audit", "key_changed", "note_acts", "put_signing_key",
    "signing_records", "remove_keys", "remove_audit", "lock_key", "lock_api_keys",
    "create_session", "use_session", "end_session", "remove_sessions", "session_record",
)  # fmt: skip
CALLS = {
    "creates a key": "select workflow.create_key('{}', null)",
    "finds the hash of a key": "select workflow.find_key('k00000000001')",
    "rotates a key": "select workflow.rotate_key('k00000000001', null, repeat('0', 64), 0, null)",
    "revokes a key": "select workflow.revoke_key('k00000000001', null, '', null)",
    "lists keys": "select workflow.keys(null, 100, null)",
    "reads the signing keys": "select workflow.signing_keys('')",
    "replaces the signing keys": "select workflow.add_signing_key('')",
    "forges the audit log": "select workflow.note_audit('[]')",
    "reads the audit log": "select workflow.audit('{}', 100)",
    "signs in": "select workflow.create_session('{}')",
    "uses a session": "select workflow.use_session(repeat('0', 64))",
    "counts a run under a key": "insert into workflow.workflow_run (type, api_key) "
    "values ('a.b.v1', 'k00000000001')",
    "frees a place of a key": "update workflow.workflow_run set api_key = null",
}


@pytest.fixture(params=["grants", "grants_events"])
def any_role(request, user_sql, role):  # noqa: F811 - the fixture above
    """The role with the first block of grants, and with both."""
    if request.param == "grants_events":
        user_sql.connection.execute("reset role")
        user_sql("grants_events", role=role)
        user_sql.connection.execute(sql.SQL("set role {}").format(sql.Identifier(role)))
    return role


@pytest.mark.spec("TEN-1", "SQL-12")
@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize(
    "how", ["select * from {}", "delete from {}", "truncate {}", "insert into {} default values"]
)
def test_a_role_for_user_sql_neither_reads_nor_writes_keys(driver, user_sql, any_role, table, how):
    create(driver)
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        user_sql(how.format(f"workflow.{table}"))


@pytest.mark.spec("TEN-1", "SQL-12")
@pytest.mark.parametrize("how", CALLS)
def test_a_role_for_user_sql_calls_no_verb_of_keys(driver, user_sql, any_role, how):
    create(driver)
    driver.start()
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        user_sql(CALLS[how])


@pytest.mark.spec("TEN-1", "SQL-12")
def test_every_function_of_keys_is_closed_to_the_public(driver, user_sql, any_role):
    found = user_sql(
        "select p.proname::text, pg_catalog.has_function_privilege(p.oid, 'execute') "
        "from pg_catalog.pg_proc as p "
        "where p.pronamespace = 'workflow'::regnamespace "
        "and p.proname::text = any(string_to_array(:'names', ' '))",
        names=" ".join(FUNCTIONS),
    )
    assert sorted(name for name, _ in found) == sorted(FUNCTIONS)
    assert not any(may for _, may in found)


@pytest.mark.spec("TEN-3", "SQL-12")
def test_user_sql_counts_no_run_under_a_key(driver, user_sql):
    """Not even the owner's: the column belongs to the verbs."""
    with pytest.raises(psycopg.Error, match="leave out api_key"):
        user_sql("insert into workflow.workflow_run (type, api_key) values ('a.b.v1', 'k00000000001')")
    run = driver.start()
    with pytest.raises(psycopg.Error, match="api_key"):
        user_sql("update workflow.workflow_run set api_key = 'k00000000001' where id = :'id'", id=run)
