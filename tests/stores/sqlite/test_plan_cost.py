"""Cost of plans on SQLite: no read walks over unrelated gates, waits and steps."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

from holdfast.records import SECOND, Chore, Definition, Item, PlanStep, StepWrite
from holdfast.records.moves import Advance
from holdfast.stores.sqlite import people
from holdfast.stores.sqlite.chores import timeouts
from tests.stores.sqlite.files import TYPE, ask, new_run, with_store

# Unrelated rows, written by SQL, because the verbs would take minutes.
RUNS = """
insert into workflow_run (id, tenant, type, kind, status, run_at, created_at, updated_at)
with recursive n (i) as (select 1 union all select i + 1 from n where i < :count)
select printf('%08d-0000-7000-8000-000000000001', i), :tenant, 'other.plan.v1', 'plan', 'waiting', 0, 0, 0
from n
"""
WAITS = """
insert into workflow_step (run_id, seq, key, kind, status, tenant, topic, due_at, timeout_seconds, on_timeout)
select id, 0, 'W', :kind, 'waiting', tenant, iif(:kind = 'approval', null, 't'), :due_at,
    iif(:kind = 'task', null, 60.0), 'reject'
from workflow_run where type = 'other.plan.v1'
"""
DONE = "update workflow_step set status = 'succeeded', finished_at = 1 where run_id = ? and seq < ?"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "holdfast.db"


def fill(store, count=10_000, *, tenant="other", **wait):
    def insert(db, _):
        db.run(RUNS, {"count": count, "tenant": tenant})
        db.run(WAITS, wait)

    return store._write(insert)


@contextmanager
def counted(db):
    """Collect the instructions that SQLite's virtual machine executes, one element each."""
    instructions = []

    def count():
        instructions.append(1)
        return False

    db.connection.set_progress_handler(count, 1)
    try:
        yield instructions
    finally:
        db.connection.set_progress_handler(None)


def work(store, look):
    """Return the number of instructions, and the answer."""
    with counted(store._reader) as instructions:
        found = look(store._reader)
    return len(instructions), found


@pytest.mark.slow
@pytest.mark.spec("APPR-7", "LEASE-13")
@pytest.mark.parametrize("tenant", ["default", None])
def test_a_list_of_open_gates_does_not_pay_for_those_of_other_tenants(path, tenant):
    """Ten thousand gates of others come before the first own one. A page over all tenants is one page."""

    async def story(store):
        steps = (PlanStep(name="G", kind="approval"),)
        await store.publish([Definition(type=TYPE, kind="plan", steps=steps)])
        await store.start([new_run() for _ in range(3)])
        before = work(store, lambda db: len(people.approvals(db, tenant, 3, None)))
        await fill(store, kind="approval", due_at=None)
        return before, work(store, lambda db: len(people.approvals(db, tenant, 3, None)))

    (before, found), (after, still_found) = with_store(path, story)
    assert found == still_found == 3
    assert after <= before + 20


@pytest.mark.slow
@pytest.mark.spec("PLAN-7", "LEASE-13")
@pytest.mark.parametrize("kind", ["event", "task"])
@pytest.mark.parametrize("is_due", [True, False])
def test_a_keeper_that_leaves_the_deadlines_of_plans_alone_does_not_look_at_them(path, kind, is_due):
    """Due or not, thousands of them: what it does look for is found at once."""

    async def story(store):
        now = store._clock()

        def look(db):
            return timeouts.next_at(db, Chore.LAPSE, wait_timeouts=False), timeouts.lapse(
                db, now, 9, wait_timeouts=False
            )

        before = work(store, look)
        await fill(store, kind=kind, due_at=now + (-1 if is_due else 60) * SECOND)
        after = work(store, look)
        assert timeouts.next_at(store._reader, Chore.LAPSE) is not None
        return before, after

    (before, found), (after, still_found) = with_store(path, story)
    assert found == still_found == (None, ([], False))
    assert after <= before + 20


@pytest.mark.slow
@pytest.mark.spec("PLAN-5", "PLAN-13")
def test_the_last_steps_of_a_long_plan_cost_no_more_than_its_first(path):
    """The current row of a plan is found by the index of open steps, not by a walk over finished ones."""

    async def advance(store, claim, number):
        done = (StepWrite(key=f"T{number}", output="1"),)
        item = Item(
            run=claim.id, fence=claim.fence, number=number + 1, move=Advance(in_place=True), steps=done
        )  # fmt: skip
        with counted(store._transactor.db) as instructions:
            (verdict,) = await store.commit([item])
        assert (verdict.answer, verdict.settled[0].key) == ("applied", f"T{number + 1}")
        return len(instructions)

    async def story(store):
        steps = tuple(PlanStep(name=f"T{number}") for number in range(10_000))
        await store.publish([Definition(type=TYPE, kind="plan", steps=steps)])
        await store.start([new_run()])
        (claim,) = await store.claim(ask())
        first = await advance(store, claim, 0)
        await store._write(lambda db, _: db.run(DONE, (str(claim.id), 9_998)))
        return first, await advance(store, claim, 9_998)

    first, last = with_store(path, story)
    assert last <= first + 20
