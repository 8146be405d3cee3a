"""Cost of limits: nothing if none is set, and nothing for the runs that are held back."""

from __future__ import annotations

from itertools import islice

import pytest

from holdfast.stores.sqlite.claiming import claim as claiming
from tests.stores.sqlite.claiming.test_claim_cost import steps_taken
from tests.stores.sqlite.files import TYPE, ask, new_run, raw_connection, with_store

OTHER = "other.work.v1"

REGISTER = """
insert into workflow_registry (workflow_name, is_enabled, created_at, updated_at) values (?, 0, 0, 0)
"""

KEYED = """
insert into workflow_run (id, tenant, type, limit_key, run_at, created_at, updated_at)
with recursive n (i) as (select 1 union all select i + 1 from n where i < :count)
select printf('%08d-0000-7000-8000-%012d', i, :salt), :tenant, :type, :key || iif(:each, i, ''), 0, 0, 0
from n
"""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "holdfast.db"


def keyed(store, count, key, *, tenant="default", salt=1, each=False):
    """Pending runs under a key, or each under a key of its own."""
    row = {"count": count, "key": key, "tenant": tenant, "type": TYPE, "salt": salt, "each": each}
    return store._write(lambda db, _: db.run(KEYED, row))


def statements(store, work):
    """Return the statements that the reader executes."""
    said = []
    store._reader.connection.trace_v2(1, lambda event: said.append(event["sql"]))
    try:
        work(store._reader)
    finally:
        store._reader.connection.trace_v2(0, None)
    return said


def test_where_nothing_is_set_a_claim_executes_what_it_always_did(path):
    """The first statement also reads whether limits are set: two statements for a due run, three to the
    end."""

    async def story(store):
        empty = statements(store, lambda db: claiming.found(db, store._clock(), ask()))
        await store.start([new_run() for _ in range(3)])
        found = statements(store, lambda db: claiming.found(db, store._clock(), ask()))
        end = statements(store, lambda db: list(claiming.candidates(db, store._clock(), ask())))
        return len(empty), len(found), len(end)

    assert with_store(path, story) == (1, 2, 3)


@pytest.mark.slow
@pytest.mark.spec("LIMIT-1", "LEASE-13")
@pytest.mark.parametrize("scope", ["type", "tenant", "key"])
def test_runs_of_a_full_name_are_not_walked_one_by_one(path, scope):
    """Two thousand or a hundred thousand pending ahead of others: the work of a claim is the same."""
    name = {"type": TYPE, "tenant": "acme", "key": "full"}[scope]
    where = {"tenant": "acme"} if scope == "tenant" else {}

    async def story(store):
        await store.limit(scope, name, concurrency=0)
        await store.start([new_run(type=OTHER) for _ in range(5)])
        await store.start([new_run(limit_key="free") for _ in range(5)])
        await keyed(store, 2_000, "full", **where)
        question = ask(types=(TYPE, OTHER))
        before = steps_taken(store, question)
        await keyed(store, 100_000, "full", salt=2, **where)
        return before, steps_taken(store, question)

    (before, found), (after, still_found) = with_store(path, story)
    assert found == still_found == (5 if scope == "type" else 10)
    assert after <= before + 100


@pytest.mark.slow
@pytest.mark.spec("LIMIT-1", "LEASE-13")
def test_keys_that_have_room_are_read_in_plain_order(path):
    """Ten thousand keys with a limit each: a claim of ten reads ten runs, not ten thousand keys."""

    async def story(store):
        await store.limit("key", "k%", concurrency=1)
        await keyed(store, 10_000, "k", each=True)
        now = store._clock()
        return statements(store, lambda db: list(islice(claiming.candidates(db, now, ask()), 10)))

    # Two for the queue, two for the rules, one for each key that was met.
    assert len(with_store(path, story)) <= 15


@pytest.mark.slow
@pytest.mark.spec("LIMIT-2")
def test_a_rate_looks_at_few_of_the_claims_it_counts(path):
    """A window with fifty thousand claims in it costs two looks."""

    async def story(store):
        await store.limit("type", TYPE, rate=(100_000, 86_400.0))
        await store.start([new_run() for _ in range(3)])
        await store.claim(ask(limit=1))
        before = steps_taken(store, ask(limit=1))
        fill_uses = """
            insert into workflow_limit_use (scope, name, at, number, taken, gone_at)
            with recursive n (i) as (select 1 union all select i + 1 from n where i < 50000)
            select 'type', :type, at - 50001 + i, number - 50001 + i, 1, gone_at
            from n, workflow_limit_use
        """
        await store._write(lambda db, _: db.run(fill_uses, {"type": TYPE}))
        return before, steps_taken(store, ask(limit=1))

    (before, _), (after, _) = with_store(path, story)
    assert after <= before + 30


def test_a_change_by_plain_sql_counts_from_the_next_claim_on(path):
    """Triggers change the revision, by which every process knows that its rules are old."""

    async def story(store):
        await store.start([new_run() for _ in range(2)])
        with raw_connection(path) as db:
            db.execute(REGISTER, (TYPE,))
            first = await store.claim(ask())
            db.execute("update workflow_registry set is_enabled = 1")
            second = await store.claim(ask(limit=1))
            db.execute("update workflow_registry set runtime = 'go'")
            third = await store.claim(ask(limit=1))
            db.execute("delete from workflow_registry")
            mark = db.execute("select mark from workflow_limit_mark").fetchall()
        return [len(claims) for claims in (first, second, third, await store.claim(ask()))], mark

    assert with_store(path, story) == ([0, 1, 0, 1], [(None,)])


def test_what_a_rate_does_not_count_any_more_is_removed_with_later_claims(path):
    """The table does not grow with names that are never used again."""

    async def story(store):
        now = [store._clock()]
        store._clock = store._transactor._clock = lambda: now[0]
        await store.limit("key", "%", rate=(1, 1.0))
        for n in range(20):
            await store.start([new_run(limit_key=f"k{n}")])
            await store.claim(ask())
            now[0] += 500_000
        with raw_connection(path) as db:
            return db.execute("select count(*) from workflow_limit_use").fetchall()[0][0]

    assert with_store(path, story) <= 3


def test_however_many_names_a_claim_counts_the_table_does_not_grow_by_them(path):
    """With each claim more go than come, as long as there are some that do not count any more."""

    async def story(store):
        now = [store._clock()]
        store._clock = store._transactor._clock = lambda: now[0]
        await store.limit("key", "%", rate=(1, 1.0))
        for n in range(8):
            await store.start([new_run(limit_key=f"k{n}.{i}") for i in range(200)])
            assert len(await store.claim(ask(limit=200))) == 200
            now[0] += 2_000_000
        with raw_connection(path) as db:
            return db.execute("select count(*) from workflow_limit_use").fetchall()[0][0]

    assert with_store(path, story) <= 400


def test_a_place_is_kept_only_of_those_who_wait(path):
    """A tenant that came once leaves no row behind."""

    async def story(store):
        await store.limit("tenant", "%", weight=1.0)
        for n in range(20):
            await store.start([new_run(tenant=f"t{n:02}"), new_run(tenant="flood")])
            await store.claim(ask(limit=2))
        with raw_connection(path) as db:
            return db.execute("select count(*) from workflow_limit_place").fetchall()[0][0]

    assert with_store(path, story) == 2
