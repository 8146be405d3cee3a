"""The queue of starts: starts of concurrent tasks share commits, and one failing start harms no other."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import KeyReused, TooManyRuns, Unavailable, UsageError
from holdfast.engine.app.start_queue import StartQueue
from holdfast.records import DEFAULT_TENANT, NewRun
from holdfast.records.sizes import start_bytes
from holdfast.testing.faulty import Faulty

TYPE = "shop.order.v1"
TASKS = 16


class WatchedStore(Faulty):
    """A store that records the params of each `start` call, and answers when the test opens the gate."""

    def __init__(self, store):
        super().__init__(store)
        self.batches, self.gate, self.poison = [], asyncio.Event(), None
        self.gate.set()

    async def start(self, runs, connection=None):
        self.batches.append([run.params for run in runs])
        await self.gate.wait()
        if self.poison is not None and any(run.params == '"poison"' for run in runs):
            return await self.poison(runs)
        return await self.inner.start(runs)


@pytest.fixture
def watched(app):
    app.store = WatchedStore(app.store)
    return app.store


async def turns_pass(turns=20):
    for _ in range(turns):
        await asyncio.sleep(0)


async def begin_starts(app, *values, **options):
    """Begin one task for each value. Each task starts a run."""
    tasks = [asyncio.ensure_future(app.start(TYPE, value, **options)) for value in values]
    await turns_pass()
    return tasks


def gather_all(tasks):
    return asyncio.gather(*tasks, return_exceptions=True)


def raises(error):
    async def poison(runs):
        raise error

    return poison


@pytest.mark.spec("START-12")
async def test_starts_of_one_loop_turn_share_one_call(app, watched):
    handles = await gather_all(await begin_starts(app, *range(TASKS)))
    assert watched.batches == [[str(n) for n in range(TASKS)]]
    assert len({handle.id for handle in handles}) == TASKS
    shown = [(await app.get(handle.id)).params for handle in handles]
    assert shown == list(range(TASKS))


@pytest.mark.spec("START-12")
async def test_a_lone_start_is_sent_directly(app, watched):
    """A lone start is one call, without a task besides the caller's own."""
    before = asyncio.all_tasks()
    seen = []
    start = watched.start

    async def counted(runs, connection=None):
        seen.append(asyncio.all_tasks() - before)
        return await start(runs)

    watched.start = counted
    for n in range(3):
        await app.start(TYPE, n)
    assert watched.batches == [["0"], ["1"], ["2"]]
    assert seen == [set()] * 3


@pytest.mark.spec("START-12")
async def test_starts_made_during_a_call_share_the_next_call(app, watched):
    watched.gate.clear()
    first = await begin_starts(app, 0)
    rest = [*await begin_starts(app, 1, 2), *await begin_starts(app, 3)]
    assert watched.batches == [["0"]]
    watched.gate.set()
    assert all(handle.created for handle in await gather_all([*first, *rest]))
    assert watched.batches == [["0"], ["1", "2", "3"]]


@pytest.mark.spec("START-12", "TEN-3")
async def test_starts_under_a_limit_share_a_call_with_those_of_their_key_only(app, watched):
    """They wait for each other in the store, one call at a time, and nobody else waits with them."""
    await app.start(TYPE, 0)  # this opens the store
    watched.batches.clear()
    queue = StartQueue(watched, app.world)

    def begun(*values, **limit):
        runs = [NewRun(id=app.world.uuid7(), type=TYPE, params=str(n), **limit) for n in values]
        return [asyncio.ensure_future(queue.start([run])) for run in runs]

    watched.gate.clear()
    one, two = ({"api_key": key * 12, "open_runs_max": 3} for key in "ab")
    tasks = [*begun(1, 2, **one), *begun(3, 4), *begun(5, **two)]
    await turns_pass()
    tasks += [*begun(6, 7, **one), *begun(8)]
    await turns_pass()
    assert sorted(watched.batches) == [["1", "2"], ["3", "4"], ["5"]]
    watched.gate.set()
    answers = [answer for (answer,) in await asyncio.gather(*tasks)]
    assert [isinstance(answer, TooManyRuns) for answer in answers] == [False] * 6 + [True, False]
    assert sorted(watched.batches[3:]) == [["6", "7"], ["8"]]
    assert not queue._by_key


@pytest.mark.spec("START-12")
async def test_a_conflict_is_raised_to_its_own_caller_only(app, watched):
    """The same key in one batch gives the same run. The same key with another value is refused alone."""
    await app.start(TYPE, 1, key="k")
    same, other = await begin_starts(app, 1, 2, key="k")
    (free,) = await begin_starts(app, 3)
    same, other, free = await gather_all([same, other, free])
    assert (same.created, type(other), free.created) == (False, KeyReused, True)


@pytest.mark.spec("START-12")
async def test_a_bad_start_is_refused_before_it_is_queued(app, watched):
    found = await gather_all(await begin_starts(app, 1, float("nan"), "x" * 5_000_000, 2))
    assert [isinstance(one, UsageError) for one in found] == [False, True, True, False]
    assert watched.batches == [["1", "2"]]


@pytest.mark.spec("START-12")
@pytest.mark.parametrize("error", [UsageError("this one is refused"), RuntimeError("this one is odd")])
async def test_a_start_that_the_store_refuses_harms_no_other(app, watched, error):
    """A call that is refused as a whole is sent again one by one."""
    watched.poison = raises(error)
    found = await gather_all(await begin_starts(app, 1, "poison", 2))
    assert [type(one).__name__ for one in found] == ["Handle", type(error).__name__, "Handle"]
    assert watched.batches == [["1", '"poison"', "2"], ["1"], ['"poison"'], ["2"]]


@pytest.mark.spec("START-12")
async def test_runs_that_a_failed_call_started_are_found_by_their_ids(app, watched):
    """No caller sees a conflict with its own run."""

    async def poison(runs):
        if len(runs) > 1:
            await watched.inner.start(runs)
            raise RuntimeError("the answer cannot be read")
        return await watched.inner.start(runs)

    watched.poison = poison
    found = await gather_all(await begin_starts(app, 1, "poison", 2))
    assert [handle.created for handle in found] == [True] * 3
    assert (await app.store.stats()).by_status["pending"] == 3


@pytest.mark.spec("START-12")
async def test_all_callers_see_that_a_store_is_unreachable(app, watched):
    watched.poison = raises(Unavailable("gone"))
    found = await gather_all(await begin_starts(app, 1, "poison", 2))
    assert [type(one) for one in found] == [Unavailable] * 3
    assert len(watched.batches) == 1
    watched.poison = None
    assert (await app.start(TYPE, 4)).created


@pytest.mark.spec("START-12")
async def test_a_start_blocked_by_an_open_transaction_is_sent_alone_and_delays_no_other(app, watched):
    """Postgres answers so for a key in an open transaction."""
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
    one, held, two = await begin_starts(app, 1, "poison", 2)
    assert (one.done(), held.done(), two.done()) == (True, False, True)
    assert (await app.start(TYPE, 3)).created
    let_go.set()
    assert (await held).created
    found = await app.start_many([(TYPE, 4), (TYPE, "poison"), (TYPE, 5)])
    assert [handle.created for handle in found] == [True] * 3


@pytest.mark.spec("START-12")
async def test_a_lone_start_that_hangs_delays_others_for_a_moment_only(app, watched):
    let_go = asyncio.Event()

    async def poison(runs):
        await let_go.wait()
        return await watched.inner.start(runs)

    watched.poison = poison
    (held,) = await begin_starts(app, "poison")
    others = await begin_starts(app, 1, 2)
    later = await gather_all(others)
    assert [handle.created for handle in later] == [True, True]
    assert not held.done()
    let_go.set()
    assert (await held).created


@pytest.mark.spec("START-12")
@pytest.mark.parametrize("when", ["first", "waiting", "sent"])
async def test_a_cancelled_caller_harms_no_other(app, watched, when):
    """A cancelled start that is not sent is left out. A start that was sent is completed with the others."""
    tasks = []
    if when == "first":
        tasks = [asyncio.ensure_future(app.start(TYPE, n)) for n in range(4)]
        for _ in range(50):
            if not app._starts._by_loop:
                await asyncio.sleep(0)
        gone = 0
    else:
        watched.gate.clear()
        tasks = [*await begin_starts(app, 0), *await begin_starts(app, 1, 2, 3)]
        gone = 2
        if when == "sent":
            watched.gate.set()
            while len(watched.batches) < 2:
                watched.gate.clear()
                await asyncio.sleep(0)
    tasks[gone].cancel()
    await asyncio.sleep(0)
    watched.gate.set()
    found = await gather_all(tasks)
    assert [type(one).__name__ for one in found] == [
        "CancelledError" if n == gone else "Handle" for n in range(4)
    ]
    pending = (await app.store.stats()).by_status["pending"]
    assert pending == (4 if when == "sent" else 3)


@pytest.mark.spec("START-12")
async def test_a_batch_of_starts_is_bounded_in_runs_and_bytes(app, watched, monkeypatch):
    """A large start is sent by itself and delays no other."""
    monkeypatch.setattr("holdfast.engine.app.start_queue.BATCH_BYTES", 1000)
    monkeypatch.setattr("holdfast.engine.app.start_queue.LARGE_BYTES", 500)
    monkeypatch.setattr("holdfast.engine.app.start_queue.STARTS_MAX", 8)
    sizes = []
    start = watched.start

    async def weighed(runs, connection=None):
        sizes.append([start_bytes(run) for run in runs])
        return await start(runs)

    watched.start = weighed
    values = ["x" * 300] * 7 + ["y" * 600] * 2 + [1] * 20
    assert all(handle.created for handle in await gather_all(await begin_starts(app, *values)))
    assert sum(map(len, sizes)) == len(values)
    assert max(map(len, sizes)) == 8
    assert all(sum(one) <= 1000 or len(one) == 1 for one in sizes)
    assert sum(len(one) == 1 and one[0] > 600 for one in sizes) == 2


@pytest.mark.spec("START-12")
async def test_starts_of_several_tenants_can_share_a_batch(app, watched):
    tasks = [
        asyncio.ensure_future(app.start(TYPE, 1, key="k", tenant=tenant))
        for tenant in (DEFAULT_TENANT, "acme")
    ]
    found = await gather_all(tasks)
    assert [handle.created for handle in found] == [True, True]
    assert len(watched.batches) == 1
