"""Cost of lanes: skipping runs that are held back, with very many names, and finding none."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from itertools import islice

import pytest

from holdfast.records import SECOND
from holdfast.stores.sqlite.claiming import claim as claiming
from holdfast.stores.sqlite.claiming import next_claim
from tests.stores.sqlite.claiming.test_limit_cost import keyed, path
from tests.stores.sqlite.files import TYPE, ask, new_run, with_store

__all__ = ["path"]  # a fixture

MANY = 10_000
DAY = 86_400 * SECOND
TENANTS = "update workflow_run set tenant = limit_key, limit_key = null where limit_key is not null"


class Work:
    """Count the instructions of SQLite's virtual machine, and the statements, of a connection."""

    steps = statements = 0


@contextmanager
def work_of(db):
    work = Work()

    def step():
        work.steps += 1
        return False  # go on

    def stated(_event):
        work.statements += 1

    db.connection.set_progress_handler(step, 1)
    db.connection.trace_v2(1, stated)
    try:
        yield work
    finally:
        db.connection.set_progress_handler(None)
        db.connection.trace_v2(0, None)


async def blocked(store, ahead, free=MANY):
    """A customer who is full with so many runs ahead, and others who are free."""
    await store.limit("key", "customer.%", concurrency=1)
    await store.limit("key", "customer.full", concurrency=0)
    await keyed(store, ahead, "customer.full", salt=1)
    await store._write(lambda db, _: db.run("update workflow_run set priority = 50"))
    await keyed(store, free, "customer.", salt=2, each=True)


@pytest.mark.slow
@pytest.mark.spec("LIMIT-1", "LEASE-13")
def test_a_full_head_before_very_many_free_names_is_passed_over_in_plain_order(path):
    """Sixty runs of one customer who is full, and ten thousand others: nothing is done for each of them."""

    async def story(store):
        await blocked(store, 60)
        with work_of(store._reader) as work:
            got = list(islice(claiming.candidates(store._reader, store._clock(), ask()), 10))
        return len(got), work.steps, work.statements

    found, steps, statements = with_store(path, story)
    assert found == 10
    assert steps < 5_000
    assert statements <= 20


@pytest.mark.slow
@pytest.mark.spec("LIMIT-1", "LEASE-13")
def test_lanes_are_found_by_one_statement_and_only_those_that_are_taken_are_read(path):
    """With a long full head: some instructions for each name, and no statement and no cursor."""

    async def story(store):
        await blocked(store, 2_000)
        with work_of(store._transactor.db) as work:
            got = await store.claim(ask())
        return len(got), work.steps, work.statements

    found, steps, statements = with_store(path, story)
    assert found == 10
    assert steps < 150 * MANY
    assert statements <= 60


@pytest.mark.slow
@pytest.mark.spec("LIMIT-1")
@pytest.mark.parametrize("scope", ["key", "tenant"])
def test_a_look_at_very_many_full_names_leaves_the_event_loop_to_others(path, scope):
    """It is cut into slices, between which others have their turn; and made once for a state of the file."""

    async def story(store):
        await store.limit(scope, "n%", concurrency=0)
        await keyed(store, MANY, "n", each=True)
        if scope == "tenant":
            await store._write(lambda db, _: db.run(TENANTS))
        turns = 0

        async def beat():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        beating = asyncio.create_task(beat())
        with work_of(store._reader) as first:
            answers = [await store.claim(ask()), (await store.due((TYPE,))).claim_at]
        beating.cancel()
        with work_of(store._reader) as second:
            answers += [await store.claim(ask()), (await store.due((TYPE,))).claim_at]
        await store.start([new_run()])
        return answers, first, turns, second, len(await store.claim(ask()))

    answers, first, turns, second, found = with_store(path, story)
    assert answers == [[], None, [], None]
    assert turns >= MANY / next_claim.SLICE
    assert first.steps < 200 * MANY
    assert second.steps < 200
    assert found == 1


@pytest.mark.slow
@pytest.mark.spec("LIMIT-1", "LIMIT-3", "LEASE-13")
@pytest.mark.parametrize("what", ["keys", "tenants", "weights"])
def test_an_idle_worker_does_nothing_for_each_name_that_has_runs_for_later(path, what):
    """Ten thousand keys or tenants, all due tomorrow: a few statements tell that, and when."""

    async def story(store):
        limits = {"keys": ("key", {"concurrency": 1}), "tenants": ("tenant", {"rate": (1, 60.0)})}
        scope, fields = limits.get(what, ("tenant", {"weight": 1.0}))
        await store.limit(scope, "%", **fields)
        await keyed(store, MANY, "n", each=True)
        later = "update workflow_run set run_at = ?"
        tomorrow = store._clock() + DAY
        await store._write(lambda db, _: db.run(later, (tomorrow,)))
        if what != "keys":
            await store._write(lambda db, _: db.run(TENANTS))
        with work_of(store._reader) as work:
            answers = await store.claim(ask()), (await store.due((TYPE,))).claim_at
        return answers, tomorrow, work

    answers, tomorrow, work = with_store(path, story)
    assert answers == ([], tomorrow)
    assert work.statements <= 25
    assert work.steps < 1_000


@pytest.mark.slow
@pytest.mark.spec("LIMIT-3")
def test_whose_turn_it_is_takes_no_statement_for_each_tenant(path):
    """Ten thousand who wait: some instructions each, and what is written is written once."""

    async def story(store):
        await store.limit("tenant", "%", weight=1.0)
        await keyed(store, MANY, "n", each=True)
        await store._write(lambda db, _: db.run(TENANTS))
        await store.claim(ask())
        changes = store._transactor.db.connection.total_changes()
        with work_of(store._transactor.db) as work:
            got = await store.claim(ask())
        return len(got), work, store._transactor.db.connection.total_changes() - changes

    found, work, changes = with_store(path, story)
    assert found == 10
    assert work.statements <= 80
    assert work.steps < 150 * MANY
    assert changes <= 60


def test_a_lease_is_as_long_as_was_asked_for_however_long_it_took_to_find_the_run(path):
    """It is reckoned from when it is written, not from when the search began."""

    async def story(store):
        now = [store._clock()]
        store._clock = store._transactor._clock = lambda: now[0]
        await store.limit("key", "full", concurrency=0)
        await store.start([new_run(limit_key="full"), new_run()])
        search = claiming._opened

        def slowly(*args, **options):
            answer = search(*args, **options)
            now[0] += 20 * SECOND
            return answer

        claiming._opened = slowly
        try:
            (claim,) = await store.claim(ask(lease_seconds=30.0))
        finally:
            claiming._opened = search
        return claim.lease_until - now[0]

    assert with_store(path, story) == 30 * SECOND
