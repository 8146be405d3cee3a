"""Starts of concurrent tasks share commits, and what becomes of one is nobody else's business."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import KeyReused, Unavailable, UsageError
from holdfast.records import DEFAULT_TENANT
from holdfast.records.sizes import start_bytes
from tests.engine.faulty import Faulty

TYPE = "shop.order.v1"
TASKS = 16


class Watched(Faulty):
    """Remembers what each call of `start` brought, and answers when it is told to."""

    def __init__(self, store):
        super().__init__(store)
        self.brought, self.gate, self.poison = [], asyncio.Event(), None
        self.gate.set()

    async def start(self, runs, connection=None):
        self.brought.append([run.params for run in runs])
        await self.gate.wait()
        if self.poison is not None and any(run.params == '"poison"' for run in runs):
            return await self.poison(runs)
        return await self.inner.start(runs)


@pytest.fixture
def watched(app):
    app.store = Watched(app.store)
    return app.store


async def resting(turns=20):
    for _ in range(turns):
        await asyncio.sleep(0)


async def begun(app, *values, **options):
    """Tasks that start a run each, and how each ended: the handle, or what was raised."""
    tasks = [asyncio.ensure_future(app.start(TYPE, value, **options)) for value in values]
    await resting()
    return tasks


def ended(tasks):
    return asyncio.gather(*tasks, return_exceptions=True)


def raises(error):
    async def poison(runs):
        raise error

    return poison


@pytest.mark.spec("START-12")
async def test_starts_of_one_loop_turn_are_one_call(app, watched):
    handles = await ended(await begun(app, *range(TASKS)))
    assert watched.brought == [[str(n) for n in range(TASKS)]]
    assert len({handle.id for handle in handles}) == TASKS
    shown = [(await app.get(handle.id)).params for handle in handles]
    assert shown == list(range(TASKS))


@pytest.mark.spec("START-12")
async def test_a_lone_start_goes_straight(app, watched):
    """One call each, and no task but the caller's own."""
    before = asyncio.all_tasks()
    seen = []
    start = watched.start

    async def counted(runs, connection=None):
        seen.append(asyncio.all_tasks() - before)
        return await start(runs)

    watched.start = counted
    for n in range(3):
        await app.start(TYPE, n)
    assert watched.brought == [["0"], ["1"], ["2"]]
    assert seen == [set()] * 3


@pytest.mark.spec("START-12")
async def test_what_comes_while_a_start_is_on_its_way_goes_with_the_next(app, watched):
    watched.gate.clear()
    first = await begun(app, 0)
    rest = [*await begun(app, 1, 2), *await begun(app, 3)]
    assert watched.brought == [["0"]]
    watched.gate.set()
    assert all(handle.created for handle in await ended([*first, *rest]))
    assert watched.brought == [["0"], ["1", "2", "3"]]


@pytest.mark.spec("START-12")
async def test_a_conflict_is_told_to_its_own_caller(app, watched):
    """The same key in one batch: the run that is there; with another value it is refused, and only that."""
    await app.start(TYPE, 1, key="k")
    same, other = await begun(app, 1, 2, key="k")
    (free,) = await begun(app, 3)
    same, other, free = await ended([same, other, free])
    assert (same.created, type(other), free.created) == (False, KeyReused, True)


@pytest.mark.spec("START-12")
async def test_what_a_caller_gives_wrongly_is_refused_before_it_is_queued(app, watched):
    found = await ended(await begun(app, 1, float("nan"), "x" * 5_000_000, 2))
    assert [isinstance(one, UsageError) for one in found] == [False, True, True, False]
    assert watched.brought == [["1", "2"]]


@pytest.mark.spec("START-12")
@pytest.mark.parametrize("error", [UsageError("this one is refused"), RuntimeError("this one is odd")])
async def test_one_that_the_store_refuses_harms_no_other(app, watched, error):
    """A call that is refused as a whole is sent one by one."""
    watched.poison = raises(error)
    found = await ended(await begun(app, 1, "poison", 2))
    assert [type(one).__name__ for one in found] == ["Handle", type(error).__name__, "Handle"]
    assert watched.brought == [["1", '"poison"', "2"], ["1"], ['"poison"'], ["2"]]


@pytest.mark.spec("START-12")
async def test_what_a_failed_call_has_started_all_the_same_is_found_by_its_id(app, watched):
    """Nobody is told that its own run stands in its way."""

    async def poison(runs):
        if len(runs) > 1:
            await watched.inner.start(runs)
            raise RuntimeError("the answer cannot be read")
        return await watched.inner.start(runs)

    watched.poison = poison
    found = await ended(await begun(app, 1, "poison", 2))
    assert [handle.created for handle in found] == [True] * 3
    assert (await app.store.stats()).by_status["pending"] == 3


@pytest.mark.spec("START-12")
async def test_a_store_that_cannot_be_reached_is_told_to_all(app, watched):
    watched.poison = raises(Unavailable("gone"))
    found = await ended(await begun(app, 1, "poison", 2))
    assert [type(one) for one in found] == [Unavailable] * 3
    assert len(watched.brought) == 1
    watched.poison = None
    assert (await app.start(TYPE, 4)).created


@pytest.mark.spec("START-12")
async def test_one_that_would_wait_for_somebody_is_sent_alone_and_holds_up_no_other(app, watched):
    """As Postgres answers a key that stands in an open transaction."""
    let_go = asyncio.Event()

    async def poison(runs):
        if len(runs) == 1:
            await let_go.wait()
        answers = await watched.inner.start(
            [run for run in runs if run.params != '"poison"' or len(runs) == 1]
        )
        return [
            Unavailable("busy") if run.params == '"poison"' and len(runs) > 1 else answers.pop(0)
            for run in runs
        ]

    watched.poison = poison
    one, held, two = await begun(app, 1, "poison", 2)
    assert (one.done(), held.done(), two.done()) == (True, False, True)
    assert (await app.start(TYPE, 3)).created
    let_go.set()
    assert (await held).created
    found = await app.start_many([(TYPE, 4), (TYPE, "poison"), (TYPE, 5)])
    assert [handle.created for handle in found] == [True] * 3


@pytest.mark.spec("START-12")
async def test_a_lone_start_that_hangs_holds_up_others_for_a_moment_only(app, watched):
    let_go = asyncio.Event()

    async def poison(runs):
        await let_go.wait()
        return await watched.inner.start(runs)

    watched.poison = poison
    (held,) = await begun(app, "poison")
    others = await begun(app, 1, 2)
    later = await ended(others)
    assert [handle.created for handle in later] == [True, True]
    assert not held.done()
    let_go.set()
    assert (await held).created


@pytest.mark.spec("START-12")
@pytest.mark.parametrize("when", ["first", "waiting", "sent"])
async def test_a_caller_that_is_cancelled_harms_no_other(app, watched, when):
    """Before its start is sent it is left out; after that the start goes its way, with the others."""
    tasks = []
    if when == "first":
        tasks = [asyncio.ensure_future(app.start(TYPE, n)) for n in range(4)]
        for _ in range(50):
            if not app._starts._by_loop:
                await asyncio.sleep(0)
        gone = 0
    else:
        watched.gate.clear()
        tasks = [*await begun(app, 0), *await begun(app, 1, 2, 3)]
        gone = 2
        if when == "sent":
            watched.gate.set()
            while len(watched.brought) < 2:
                watched.gate.clear()
                await asyncio.sleep(0)
    tasks[gone].cancel()
    await asyncio.sleep(0)
    watched.gate.set()
    found = await ended(tasks)
    assert [type(one).__name__ for one in found] == [
        "CancelledError" if n == gone else "Handle" for n in range(4)
    ]
    pending = (await app.store.stats()).by_status["pending"]
    assert pending == (4 if when == "sent" else 3)


@pytest.mark.spec("START-12")
async def test_a_batch_of_starts_is_bounded_in_runs_and_bytes(app, watched, monkeypatch):
    """Large ones go by themselves, and hold up nobody."""
    monkeypatch.setattr("holdfast.engine.gathering.BATCH_BYTES", 1000)
    monkeypatch.setattr("holdfast.engine.gathering.LARGE_BYTES", 500)
    monkeypatch.setattr("holdfast.engine.gathering.STARTS_MAX", 8)
    sizes = []
    start = watched.start

    async def weighed(runs, connection=None):
        sizes.append([start_bytes(run) for run in runs])
        return await start(runs)

    watched.start = weighed
    values = ["x" * 300] * 7 + ["y" * 600] * 2 + [1] * 20
    assert all(handle.created for handle in await ended(await begun(app, *values)))
    assert sum(map(len, sizes)) == len(values)
    assert max(map(len, sizes)) == 8
    assert all(sum(one) <= 1000 or len(one) == 1 for one in sizes)
    assert sum(len(one) == 1 and one[0] > 600 for one in sizes) == 2


@pytest.mark.spec("START-12")
async def test_starts_of_tenants_are_told_apart_in_one_batch(app, watched):
    tasks = [
        asyncio.ensure_future(app.start(TYPE, 1, key="k", tenant=tenant))
        for tenant in (DEFAULT_TENANT, "acme")
    ]
    found = await ended(tasks)
    assert [handle.created for handle in found] == [True, True]
    assert len(watched.brought) == 1
