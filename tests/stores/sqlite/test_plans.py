"""Plans, gates and children on SQLite: use of indexes, single commits, and slices."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from holdfast.errors import Conflict
from holdfast.lifecycle import Status, StepKind, StepStatus
from holdfast.machine import people
from holdfast.records import ANY, Definition, Item, PlanStep, Started, StepWrite
from holdfast.records.moves import PARK, Advance, Complete
from holdfast.stores.sqlite import writes
from holdfast.stores.sqlite.chores import children
from holdfast.stores.sqlite.sql import statements
from holdfast.stores.sqlite.transactions import caller_transaction
from holdfast.stores.sqlite.view import view
from tests.stores.sqlite.files import TYPE, ask, new_run, raw_connection, with_store

CHILD = "shop.part.v1"
GATE = PlanStep(name="G", kind=StepKind.APPROVAL)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "holdfast.db"


async def parked(store, count):
    """Start a run that waits for `count` children."""
    run = new_run()
    await store.start([run])
    (claim,) = await store.claim(ask())
    kids = [new_run(type=CHILD) for _ in range(count)]
    writes = tuple(
        StepWrite(key=f"c{number}", kind=StepKind.CHILD, status=StepStatus.WAITING, child=kid)
        for number, kid in enumerate(kids)
    )
    item = Item(run=run.id, fence=claim.fence, number=1, move=PARK, steps=writes, known=0)
    (verdict,) = await store.commit([item])
    assert verdict.status is Status.WAITING
    return run.id, kids


async def completed(store, count):
    claims = await store.claim(ask(count, types=(CHILD,)))
    items = [
        Item(run=one.id, fence=one.fence, number=1, move=Complete(result="1")) for one in claims
    ]  # fmt: skip
    return await store.commit(items)


@pytest.mark.slow
@pytest.mark.spec("FLOW-7")
def test_a_park_with_thousands_of_children_is_one_commit(path):
    """They are all there with it, and a second is more than it takes."""

    async def story(store):
        before = store._transactor.commits
        await parked(store, 5000)
        commits = store._transactor.commits - before
        return commits, (await store.stats()).by_status["pending"]

    assert with_store(path, story) == (3, 5000)  # of which one is the start, and one the claim


@pytest.mark.spec("MOVE-2")
def test_children_that_end_together_owe_their_parents_the_news_without_a_further_statement(path):
    """The statement that completes many runs at once notes it down."""

    async def completing(store, seen):
        db = store._transactor.db
        usual = db.run

        def noted(sql, *args):
            seen.append(sql)
            return usual(sql, *args)

        db.run = noted
        await completed(store, 3)
        db.run = usual
        return [owes for (owes,) in db.all("select owes from workflow_run where type = ?", (CHILD,))]

    async def story(store):
        with_parent, without = [], []
        run, _ = await parked(store, 3)
        assert await completing(store, with_parent) == [1, 1, 1]
        assert await store.deliver() == 3
        await store.start([new_run(type=CHILD) for _ in range(3)])
        assert await completing(store, without) == [0] * 6
        return with_parent == without, (await store.get(run, ANY)).status

    assert with_store(path, story) == (True, Status.PENDING)


@pytest.mark.spec("CANC-5")
def test_the_children_of_a_cancelled_run_are_cancelled_a_slice_a_commit(path):
    """No commit is long, however many there are."""

    async def story(store):
        run, _ = await parked(store, 10)
        await store.cancel(run, ANY, children=False)
        await store._write(lambda db, _: db.run("update workflow_run set owes = 2 where id = ?", (str(run),)))
        left = []
        while await store._write(lambda db, _: children.owing(db)):
            await store._write(lambda db, now: children.carry_out(db, now, 4))
            left.append((await store.stats()).by_status["pending"])
        return left

    left = with_store(path, story)
    assert left[:3] == [6, 2, 0]


@pytest.mark.spec("MOVE-2")
def test_what_a_run_owes_is_carried_out_by_whoever_opens_the_file_next(path):
    """The process that ended it is gone: what the run owes is recorded in the file."""

    async def ends(store):
        run, _ = await parked(store, 1)
        await completed(store, 1)
        return run

    run = with_store(path, ends)

    async def keeps(store):
        assert (await store.get(run, ANY)).status is Status.WAITING
        ticked = await store.tick()
        return ticked.delivered, (await store.get(run, ANY)).status

    assert with_store(path, keeps) == (1, Status.PENDING)


@pytest.mark.parametrize(
    ("sql", "index"),
    [
        (statements("chores/children")["owing"], "idx_workflow_run_owes"),
        (statements("chores/children")["any_owing"], "idx_workflow_run_owes"),
        (view.SQL["has_open_children"], "idx_workflow_run_parent"),
        (view.SQL["open_children"], "idx_workflow_run_parent"),
        (view.SQL["orphans"], "idx_workflow_run_parent"),
        (statements("people")["open"], "idx_workflow_step_approval"),
        (statements("people")["open_of_all"], "idx_workflow_step_any_approval"),
        (view.SQL["current"], "sqlite_autoindex_workflow_step_1"),
        (view.SQL["after"], "sqlite_autoindex_workflow_step_1"),
        (view.SQL["at_work"], "idx_workflow_step_open"),
        (view.SQL["open"], "idx_workflow_step_open"),
    ],
)
def test_nobody_looks_through_all_runs_for_them(path, sql, index):
    """Each is found by an index that holds little else."""

    async def story(store):
        names = dict.fromkeys(("run", "seq", "limit", "tenant", "small"), 1)
        return store._transactor.db.all("explain query plan " + sql, names)

    first = with_store(path, story)[0][3]
    assert index in first


PLAN = Definition(type=TYPE, kind="plan", steps=(GATE, PlanStep(name="A", max_attempts=7)))
BEGUN = [(0, "G", "waiting", None), (1, "A", "pending", 7)]


async def rows_of(store, run):
    return [(one.seq, one.key, one.status.value, one.max_attempts) for one in await store.steps(run, ANY)]


@pytest.mark.spec("PLAN-1")
@pytest.mark.parametrize("kept", [True, False])
def test_a_plan_can_be_started_in_the_callers_own_transaction(path, kept):
    """With all its rows and its first gate, or without any of it."""
    run = new_run()

    async def story(store):
        await store.publish([PLAN])
        with raw_connection(path) as db:
            db.execute("begin immediate")
            await store.start([run], connection=db)
            db.execute("commit" if kept else "rollback")
        assert (await store.get(run.id, ANY) is not None) == kept
        return await rows_of(store, run.id) if kept else None

    assert with_store(path, story) == (BEGUN if kept else None)


@pytest.mark.spec("PLAN-1")
def test_a_plan_can_be_started_by_a_connection_of_the_standard_library(path):
    """Its values are given by name, each in its place."""
    run = new_run()
    with_store(path, lambda store: store.publish([PLAN]))
    with closing(sqlite3.connect(path)) as db:
        assert writes.start(caller_transaction.Sqlite3Caller(db), 5, [run]) == [Started(run.id, created=True)]
        db.commit()
    assert with_store(path, lambda store: rows_of(store, run.id)) == BEGUN


@pytest.mark.spec("PLAN-12")
def test_a_plan_that_was_changed_is_refused_and_writes_nothing(path):
    """Not even what was published beside it."""

    async def story(store):
        await store.publish([Definition(type=TYPE, kind="plan", steps=(GATE,))])
        changes = store._transactor.db.connection.total_changes
        before = changes()
        changed = Definition(type=TYPE, kind="plan", steps=(GATE, PlanStep(name="A")))
        with pytest.raises(Conflict, match=r"bump its version, as in shop\.order\.v2"):
            await store.publish([Definition(type=CHILD), changed])
        await store.publish([Definition(type=TYPE, kind="plan", steps=(GATE,))])
        return changes() - before, [one.type for one in await store.definitions()]

    assert with_store(path, story) == (0, [TYPE])


@pytest.mark.spec("SQL-3")
def test_a_plans_rows_are_plain_to_read(path):
    """By any program: order, names, kinds, what is asked, how often a task has waited."""
    run = new_run()

    async def story(store):
        ask_ = PlanStep(name="G", kind=StepKind.APPROVAL, ask='{"ask":"Ship it?"}', on_timeout="approve")
        await store.publish([Definition(type=TYPE, kind="plan", steps=(PlanStep(name="A"), ask_))])
        await store.start([run])

    with_store(path, story)
    with raw_connection(path) as db:
        rows = db.execute(
            "select seq, key, kind, status, max_attempts, ask, on_timeout, waits from workflow_step"
        ).fetchall()
    assert rows == [
        (0, "A", "task", "pending", 3, None, "reject", 0),
        (1, "G", "approval", "pending", None, '{"ask":"Ship it?"}', "approve", 0),
    ]


@pytest.mark.spec("TTL-1", "CANC-5")
def test_a_run_stays_until_its_children_are_cancelled(path):
    """The process that cancelled it may have died: only the file knows that they have to be cancelled."""

    async def story(store):
        run, _ = await parked(store, 2)

        def cancel(db, now):
            seen = view.SqliteView(db, now)
            people.cancel(seen, run, None, "", children=True)
            seen.save()

        await store._write(cancel)  # as far as its own commit
        purged = [(await store.purge(ttl_seconds=0.0)).runs]
        await store.tick()
        purged.append((await store.purge(ttl_seconds=0.0)).runs)
        return purged

    assert with_store(path, story) == [0, 3]


@pytest.mark.spec("LEASE-14")
def test_a_gate_that_is_opened_anew_is_no_other_holders_writing(path):
    """A repeat of an item after a rewind gets the first answer."""
    run = new_run()

    async def story(store):
        steps = (PlanStep(name="A"), GATE)
        await store.publish([Definition(type=TYPE, kind="plan", steps=steps)])
        await store.start([run])
        (claim,) = await store.claim(ask())
        done = (StepWrite(key="A", output="1"),)
        item = Item(run=run.id, fence=claim.fence, number=1, move=Advance(), steps=done)
        first = await store.commit([item])
        assert (await store.rewind(run.id, "G", ANY)).fence > claim.fence
        return first, await store.commit([item])

    first, again = with_store(path, story)
    assert again == first
