"""Code of a restricted role of docs/sql.md never runs with the rights of the schema's owner."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import sql

from holdfast.testing.contract.driver import TYPE

# The check of a type is code. PL/pgSQL keeps the types of its variables for the session.
EVIL = """
create function {0}.evil(anyelement) returns pg_catalog.bool language plpgsql
set search_path = pg_catalog as $$
begin
    if current_user <> {1} then
        raise exception 'code of the role runs as %', current_user;
    end if;
    return true;
end $$;
"""
TYPES = ("text", "uuid", "json", "jsonb", "timestamptz", "refcursor", "tid")
ROWS = ("workflow_run", "workflow_step", "workflow_definition", "workflow_inbox", "workflow_registry")
FUNCTIONS = """
select p.oid::regprocedure::text, array(select t::regtype::text from unnest(p.proargtypes) as t)
from pg_proc as p where p.pronamespace = 'workflow'::regnamespace and p.prorettype <> 'trigger'::regtype
order by 1
"""
# Functions that a view, an index or a column default calls.
FOR_ALL = {"clock()", "new_id()", "entries_of(text[])", "claimable_types()", "claimable_runs(text)"}
FOR_ALL |= {"readable(json)", "fingerprint(json)", "is_odd_id(uuid,timestamp with time zone)"}


@pytest.fixture(params=["as granted", "with every function"])
def role(request, driver, user_sql):
    """The role of the page, with its own schema. An app's role may also execute all functions."""
    name = f"code_{user_sql.connection.info.dbname}"
    words = [
        sql.Identifier(name),
        sql.Identifier(f"of_{name}"),
        sql.Identifier(user_sql.connection.info.dbname),
    ]
    user_sql.connection.execute(
        sql.SQL("drop role if exists {0}; create role {0}; create schema {1} authorization {0}").format(
            *words
        )
    )
    user_sql("grants", role=name)
    user_sql("grants_events", role=name)
    more = "grant usage on schema turned to {0}; grant temporary on database {2} to {0};"
    if request.param == "with every function":
        more += "grant execute on all functions in schema workflow to {0};"
    user_sql.connection.execute(sql.SQL(more + "set role {0}").format(*words))
    yield name
    user_sql.connection.execute("reset role; reset search_path")
    user_sql.connection.execute(sql.SQL("drop owned by {0} cascade; drop role {0}").format(*words))


@pytest.mark.slow
@pytest.mark.spec("SQL-12")
@pytest.mark.parametrize("place", ["pg_temp", "a schema"])
def test_types_of_the_role_are_not_those_of_a_trigger(driver, user_sql, role, place):
    """The role calls every function first, with a search path that finds its own types."""
    where = sql.Identifier("pg_temp" if place == "pg_temp" else f"of_{role}")
    run = user_sql.connection.execute
    functions = run(FUNCTIONS).fetchall()
    run("create temp table here ()")
    run(sql.SQL(EVIL).format(where, sql.Literal(role)))
    for schema, names in (("pg_catalog", TYPES), ("workflow", ROWS)):
        for name in names:
            run(
                sql.SQL("create domain {0}.{1} as {2}.{1} check ({0}.evil(value))").format(
                    where, sql.Identifier(name), sql.Identifier(schema)
                )
            )
    run(sql.SQL("set search_path = {0}, pg_catalog, workflow").format(where))
    for function, types in functions:
        name = function.split("(")[0]
        arguments = ", ".join(
            f"null::{one}" if one.startswith("workflow.") else f"null::pg_catalog.{_plain(one)}"
            for one in types
        )
        _tried(user_sql.connection, f"select {name}({arguments})")
    _tried(user_sql.connection, "select workflow.checked_value('x'::pg_catalog.text, '1'::pg_catalog.json)")
    run("set search_path = turned, pg_catalog")
    first = user_sql.one("start", type=TYPE, payload='{"a": [1e150]}', key="k")
    user_sql("take", type=TYPE, me="p1")
    user_sql("heartbeat", id=first, me="p1")
    user_sql("tell", id=first, what="note", data="{}")
    assert user_sql("retry", id=first, me="p1", error="no", seconds=0) == [("pending",)]
    assert user_sql("delete", id=first) == user_sql("restore", id=first) == [(first,)]
    assert user_sql("cancel", id=first) == [(first,)]
    user_sql("emit", topic="parcel", event="e1", payload="1")
    user_sql("keep")
    assert user_sql("select count(*) from workflow.workflow_run_live") == [(1,)]
    driver.assert_replayed(first)


def _plain(name):
    """The name as the catalog has it: a name with a schema cannot be one of the long ones."""
    longer = {
        "integer": "int4",
        "bigint": "int8",
        "boolean": "bool",
        "double precision": "float8",
        "timestamp with time zone": "timestamptz",
    }
    base = name.removesuffix("[]")
    return longer.get(base, base) + name[len(base) :]


def _tried(connection, text):
    said = ""
    try:
        connection.execute(text)
    except psycopg.Error as error:
        said = str(error)
    assert "code of the role runs as" not in said, text


TABLE = """
create domain {0}.said as json check ({0}.evil(value));
create table {0}.t (like workflow.{1});
alter table {0}.t alter {2} type {0}.said;
create trigger t before insert or update or delete on {0}.t for each row execute function workflow.{3}();
insert into {0}.t select * from workflow.{1};
"""


@pytest.mark.spec("SQL-12")
@pytest.mark.parametrize(
    ("of", "column", "function"),
    [
        ("workflow_event", "data", "plain_tell"),
        ("workflow_run", "payload", "plain_start"),
        ("workflow_run", "payload", "plain_started"),
        ("workflow_run", "payload", "plain_update"),
        ("workflow_run", "payload", "plain_remove"),
    ],
)
def test_a_trigger_function_is_of_no_use_on_a_table_of_the_role(driver, user_sql, role, of, column, function):
    driver.start()
    own = sql.Identifier(f"of_{role}")
    user_sql.connection.execute(sql.SQL(EVIL).format(own, sql.Literal(role)))
    words = [own, *map(sql.Identifier, (of, column, function))]
    with pytest.raises(
        psycopg.Error, match=r"permission denied for function|this trigger is for workflow_\w+ alone"
    ):
        user_sql.connection.execute(sql.SQL(TABLE).format(*words))


@pytest.mark.spec("SQL-12")
def test_what_declares_variables_has_a_search_path_and_little_is_for_everyone(driver, user_sql):
    """A function that is added later must follow both rules."""
    found = user_sql(
        """
        select p.oid::regprocedure::text, p.proconfig
        from pg_proc as p join pg_language as l on l.oid = p.prolang
        where p.pronamespace = 'workflow'::regnamespace and l.lanname = 'plpgsql'
            and p.prosrc ~* '\\mdeclare\\M'
        """
    )
    assert found
    assert [name for name, settings in found if "search_path=workflow, pg_temp" not in (settings or [])] == []
    everyones = user_sql(
        """
        select p.oid::regprocedure::text from pg_proc as p
        cross join aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) as a
        where p.pronamespace = 'workflow'::regnamespace and a.grantee = 0 and a.privilege_type = 'EXECUTE'
        """
    )
    of_tests = {"wipe()", "moment(bigint)"}  # for the clock that tests set
    assert {name.removeprefix("workflow.") for (name,) in everyones} - of_tests == FOR_ALL
