"""A newer set of functions replaces an older one, also when signatures have changed."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from holdfast.errors import StoreError
from holdfast.stores.postgres import migrate
from tests.stores.postgres.sessions.opened import opened

OLD = """
-- The old function.
create or replace function part(n integer, out a integer, out b text) language sql as $$select n, 'old'$$;
create or replace function verb(n integer) returns text language plpgsql as $$
declare
    got record := part(n);
begin
    return got.b;
end $$;
"""
# Changes of `part`, one each, and how the verb then calls it.
CHANGES = {
    "other columns": (
        "part(n integer, out a integer, out b text, out c text) language sql as $$select n, 'new', ''$$",
        "return (part(n)).b;",
    ),
    "another answer": ("part(n integer) returns text language sql as $$select 'new'$$", "return part(n);"),
    "other names": (
        "part(m integer, out a integer, out b text) language sql as $$select m, 'new'$$",
        "return (part(m => n)).b;",
    ),
    "other types": (
        "part(n text, out a integer, out b text) language sql as $$select 1, 'new'$$",
        "return (part('n')).b;",
    ),
    "one more": (
        "part(n integer, m integer default 0) returns text language sql as $$select 'new'$$",
        "return part(n);",
    ),
    "a set": (
        "part(n integer) returns setof text language sql as $$select 'new'$$",
        "return (select string_agg(p, ',') from part(n) as p);",
    ),
    "no longer out": (
        "part(n integer) returns record language sql as $$select 1, 'new'::text$$",
        "return (select p.b from part(n) as p (a integer, b text));",
    ),
}


def new(change):
    part, call = CHANGES[change]
    return f"""
create or replace function part_of_a_verb(n integer) returns integer language sql as 'select n';
create or replace function {part};
create or replace function verb(n integer) returns text language plpgsql as $$begin {call} end $$;
"""


@pytest.fixture
def admin(postgres_database):
    with psycopg.connect(postgres_database.dsn, autocommit=True) as connection:
        yield connection


@pytest.fixture
def bring(postgres_database, monkeypatch):
    """Open the store with a library of that number, with these functions beside its own."""
    own = migrate.functions()

    def bring(number, text):
        monkeypatch.setattr(migrate, "FUNCTIONS", number)
        monkeypatch.setattr(migrate, "digest", lambda: f"{number}")
        monkeypatch.setattr(migrate, "functions", lambda: own | {"more.sql": text})
        asyncio.run(_opened(postgres_database.url))

    return bring


async def _opened(url):
    async with opened(url):
        pass


def signatures(admin, name):
    ours = "pronamespace = 'workflow'::regnamespace"
    sql = f"select oid::regprocedure::text from pg_proc where {ours} and proname = %s"
    return [row[0] for row in admin.execute(sql, (name,))]


def said(admin):
    admin.execute("set search_path = workflow")
    return admin.execute("select verb(1)").fetchone()[0]


@pytest.mark.spec("STORE-5")
@pytest.mark.parametrize("change", CHANGES)
def test_a_part_whose_signature_has_changed_is_replaced(admin, bring, change):
    """Afterwards there is one function of that name, the new one, and callers get its answer."""
    bring(1, OLD)
    assert said(admin) == "old"
    bring(2, new(change))
    assert len(signatures(admin, "part")) == 1
    assert said(admin) == "new"


def test_a_call_that_could_mean_the_one_of_before_means_the_new_one(admin, bring):
    """It is checked when it is created, in the same file, while the older one still exists."""
    bring(1, OLD.replace("out a integer, out b text", "m integer default 0, out a integer, out b text"))
    bring(2, """
create or replace function part(n integer, m text default '') returns text language sql as $$select 'new'$$;
create or replace function verb(n integer) returns text language sql as $$select part(n)$$;
""")  # fmt: skip
    assert len(signatures(admin, "part")) == 1
    assert said(admin) == "new"


def test_what_a_role_may_do_with_functions_that_can_be_replaced_stays(admin, bring):
    """Only functions that must be dropped are created again."""
    bring(1, OLD)
    admin.execute("revoke execute on function workflow.verb(integer) from public")
    bring(2, new("other columns"))
    may = "select has_function_privilege('public', 'workflow.verb(integer)', 'execute')"
    assert admin.execute(may).fetchone() == (False,)


def test_functions_of_somebody_else_in_the_same_schema_stay(admin, bring):
    """Their names are not in our set."""
    bring(1, OLD)
    admin.execute("create function workflow.theirs(n integer) returns integer language sql as 'select n'")
    bring(2, new("other columns"))
    assert signatures(admin, "theirs") == ["workflow.theirs(integer)"]


def test_a_users_view_of_a_part_is_not_dropped_with_it(admin, bring):
    """The view is named, and nothing has changed."""
    bring(1, OLD)
    admin.execute("create view public.audit as select * from workflow.part(1)")
    words = r"view (public\.)?audit depends on function .*part\(integer\), in functions/more\.sql"
    with pytest.raises(StoreError, match=words) as caught:
        bring(2, new("other columns"))
    assert "\n" not in str(caught.value)
    assert said(admin) == "old"
    assert admin.execute("select functions from workflow.workflow_schema").fetchone() == (1,)


def test_a_whole_set_is_replaced_by_itself(admin, bring):
    """Unchanged functions are neither dropped nor doubled."""
    bring(1, OLD)
    names = "select proname, oid from pg_proc where pronamespace = 'workflow'::regnamespace order by 1, 2"
    before = admin.execute(names).fetchall()
    bring(2, OLD)
    assert admin.execute(names).fetchall() == before
    assert len({name for name, _ in before}) == len(before)
