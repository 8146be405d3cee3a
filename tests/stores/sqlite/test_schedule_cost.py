"""Cost of a firing: the same, however many runs of the schedule are open."""

from __future__ import annotations

from uuid import uuid4

import pytest

from holdfast.records import SECOND, Fire, FiredBy, Firing, NewSchedule, Overlap
from holdfast.stores.sqlite.schedules import fire
from tests.stores.sqlite.files import TYPE, new_run, with_store

FILL = """
insert into workflow_run (id, type, run_at, created_at, updated_at)
with recursive n (i) as (select 1 union all select i + 1 from n where i < 20000)
select printf('%08d-0000-7000-8000-%012d', i, 1), 'else.v1', 0, 0, 0 from n
"""
OF_IT = "insert into workflow_firing select ?, id from workflow_run where type = 'else.v1'"

ENDED = "update workflow_run set status = 'cancelled', finished_at = ?"


def steps_taken(db, work):
    """Return how many instructions SQLite's virtual machine executes."""
    counted = []
    db.connection.set_progress_handler(lambda: bool(counted.append(1)), 1)
    try:
        work()
    finally:
        db.connection.set_progress_handler(None)
    return len(counted)


async def made(store, overlap):
    now = await store.now()
    return await store.schedule(
        NewSchedule(
            id=uuid4(),
            name="s",
            type=TYPE,
            every_us=SECOND,
            anchor_at=now - 10 * SECOND,
            next_at=now,
            overlap=overlap,
        )
    )


def firing(one, by, now):
    return Firing(
        schedule=one.id, name=one.name, tenant=one.tenant, rev=one.rev, by=by,
        fires=(Fire(now, new_run()),), next_at=now + SECOND,
    )  # fmt: skip


async def cost(store, by):
    (one,) = await store.schedules("default")
    return await store._write(lambda db, now: steps_taken(db, lambda: fire(db, now, firing(one, by, now))))


@pytest.mark.spec("SCHED-1")
@pytest.mark.parametrize(
    ("overlap", "by"),
    [(Overlap.ALLOW, FiredBy.RHYTHM), (Overlap.SKIP, FiredBy.HAND), (Overlap.SKIP, FiredBy.RHYTHM)],
)
def test_a_firing_costs_the_same_beside_any_number_of_open_runs(tmp_path, overlap, by):
    """Twenty thousand, as a day's runs that are held back; forgetting those that ended goes in slices."""

    async def story(store):
        one = await made(store, overlap)
        await cost(store, by)
        before = await cost(store, by)
        await store._write(lambda db, _: db.run(FILL))
        await store._write(lambda db, _: db.run(OF_IT, (str(one.id),)))
        assert await cost(store, by) < before + 5000
        if by is FiredBy.HAND:  # which looks at none of them to know whether it may
            await store._write(lambda db, now: db.run(ENDED, (now,)))
            assert await cost(store, by) < before + 10_000

    with_store(tmp_path / "holdfast.db", story)


@pytest.mark.spec("SCHED-1")
def test_allow_keeps_no_run_in_mind(tmp_path):
    """There is no row that would have to be forgotten again."""

    async def story(store):
        await made(store, Overlap.ALLOW)
        await cost(store, FiredBy.RHYTHM)
        assert (await store.schedules("default"))[0].fired == 1
        assert await store._write(lambda db, _: db.all("select * from workflow_firing")) == []

    with_store(tmp_path / "holdfast.db", story)
