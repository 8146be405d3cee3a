"""Cost of claims: a look writes nothing, and rows that are not due are not read."""

from __future__ import annotations

import pytest

from holdfast.records import SECOND, Definition
from holdfast.stores.sqlite.claiming import claim as claiming
from tests.stores.sqlite.files import TYPE, ask, new_run, raw_connection, with_store

HOUR = 3600 * SECOND

FILL = """
insert into workflow_run (id, tenant, type, status, priority, run_at, created_at, updated_at, finished_at)
with recursive n (i) as (select 1 union all select i + 1 from n where i < :count)
select printf('%08d-0000-7000-8000-00000000000%d', i, :salt), :tenant, :type, :status, :priority, :run_at,
    0, 0, iif(:status = 'succeeded', 1, null)
from n
"""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "holdfast.db"


def fill(store, salt, **fields):
    """Add rows that no claim of the test may read, by SQL, because the verbs would take minutes."""
    row = {"count": 12_500, "salt": salt, "tenant": "default", "type": TYPE, "status": "pending"}
    row |= {"priority": 1, "run_at": 0} | fields
    return store._write(lambda db, _: db.run(FILL, row))


def steps_taken(store, question):
    """Return how many instructions SQLite's virtual machine executes for a claim."""
    counted = []

    def count():
        counted.append(1)
        return False

    db = store._reader
    db.connection.set_progress_handler(count, 1)
    try:
        found = list(claiming.candidates(db, store._clock(), question))
    finally:
        db.connection.set_progress_handler(None)
    return len(counted), len(found)


@pytest.mark.slow
@pytest.mark.spec("LEASE-13")
@pytest.mark.parametrize("tenants", [None, ("default",)])
def test_a_claim_does_not_pay_for_what_is_not_due(path, tenants):
    """Later runs at a better priority, other types, other tenants, finished ones: 50,000 do not matter."""

    async def story(store):
        await store.start([new_run() for _ in range(5)])
        question = ask(tenants=tenants)
        before = steps_taken(store, question)
        later = store._clock() + HOUR
        await fill(store, 1, run_at=later)
        await fill(store, 2, type="other.work.v1")
        await fill(store, 3, status="succeeded")
        await fill(store, 4, tenant="other", run_at=later)
        return before, steps_taken(store, question)

    (before, found), (after, still_found) = with_store(path, story)
    assert found == still_found == 5
    # One more priority to walk over, and one more level in each tree.
    assert after <= before + 60


@pytest.mark.spec("LEASE-13")
@pytest.mark.parametrize("name", ["next_priority", "due", "next_run_at"])
@pytest.mark.parametrize("prefix", ["", "lane_", "keyed_"])
def test_claims_walk_their_index_and_sort_nothing(path, name, prefix):
    """The plan is a search in the claim index, for every statement of a claim."""

    async def story(store):
        with raw_connection(path) as db:
            sql = "explain query plan " + claiming._SQL[prefix + name]
            values = dict.fromkeys(("tenant", "type", "key", "priority", "now"), 1)
            return [row[3] for row in db.execute(sql, values)]

    indexes = {"": "claim", "lane_": "tenant_claim", "keyed_": "keyed_claim"}
    index = f"idx_workflow_run_{indexes[prefix]}"
    plan = with_store(path, story)
    assert len(plan) == 1
    assert index in plan[0]
    assert plan[0].startswith("SEARCH")


@pytest.mark.spec("LEASE-15")
def test_finding_nothing_writes_nothing(path):
    """Claim, tick, deliver, renewal and a repeated publish leave the file and its log as they are."""

    def state(store):
        files = [file for file in sorted(path.parent.iterdir()) if not file.name.endswith("-shm")]
        sizes = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
        return sizes, store._transactor.db.connection.total_changes(), store._transactor.commits

    async def story(store):
        await store.start([new_run(run_at=store._clock() + HOUR), new_run(type="other.work.v1")])
        before = state(store)
        for _ in range(3):
            assert await store.claim(ask()) == []
            assert (await store.tick()).total == 0
            assert await store.deliver() == 0
            assert store.renew("w", [], 30.0).held == ()
        return before, state(store)

    before, after = with_store(path, story)
    assert before == after


def test_publishing_the_same_again_writes_nothing_and_a_change_is_taken_over(path):
    """A worker that starts tells what it can do; only what is new is written."""
    first, changed = Definition(type=TYPE), Definition(type=TYPE, max_attempts=7)

    async def story(store):
        total = store._transactor.db.connection.total_changes
        counts = [total()]
        for definition in (first, first, changed, changed):
            await store.publish([definition])
            counts.append(total() - counts[0])
        return counts[1:], await store.definitions()

    assert with_store(path, story) == ([1, 1, 2, 2], [changed])


@pytest.mark.spec("STORE-2")
def test_the_settings_that_everything_relies_on(path):
    """WAL, every commit synced, a busy timeout, no trust in the schema; a reader that cannot write."""

    async def story(store):
        def setting(db, name):
            return db.one(f"pragma {name}")[0]

        names = ("journal_mode", "synchronous", "busy_timeout", "trusted_schema", "query_only")
        writer, reader = store._transactor.db, store._reader
        return [setting(writer, name) for name in names], [setting(reader, name) for name in names]

    writer, reader = with_store(path, story)
    assert writer == ["wal", 2, 5000, 0, 0]
    assert reader == ["wal", 2, 5000, 0, 1]
