"""The shared reader: few reads, however many subscribers, runs and hints there are."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from holdfast.contract import FOLLOWED_MAX
from holdfast.engine.live.live import Live
from holdfast.engine.live.news import Ended
from holdfast.errors import UnknownRun, UsageError
from holdfast.lifecycle import Status
from holdfast.records import ANY, NewRun
from tests.engine.live.kit import TYPE, Collector, Job, collected, held, numbers

pytestmark = pytest.mark.spec("TRAIL-3")


async def rate(store, seconds):
    """Return the reads in each second."""
    before = store.reads.total()
    await asyncio.sleep(seconds)
    return (store.reads.total() - before) / seconds


async def test_an_idle_store_is_read_once_a_second_or_less(live, store, world):
    """For any number of subscribers; where hints work, long polls alone cost a read in ten seconds."""
    jobs = [await Job(store, world).start() for _ in range(50)]
    waits = [asyncio.ensure_future(live.ended(job.id, ANY, 10_000)) for job in jobs]
    await asyncio.sleep(20)
    assert await rate(store, 100) <= 1.1
    trails = [await collected(live.trail(job.id, ANY)) for job in jobs]
    await asyncio.sleep(20)
    assert await rate(store, 100) <= 1.1
    for one in (*trails, *waits):
        (one.task if isinstance(one, Collector) else one).cancel()
    store._store.traits = replace(store.traits, poll_seconds=10.0)
    live = Live(store, world)
    waits = [asyncio.ensure_future(live.ended(job.id, ANY, 10_000)) for job in jobs]
    await asyncio.sleep(60)
    assert await rate(store, 100) <= 0.11
    trail = await collected(live.trail(jobs[0].id, ANY))
    await asyncio.sleep(20)
    assert await rate(store, 100) <= 1.1
    assert not trail.task.done()


async def test_hints_cause_at_most_ten_looks_a_second(live, store, world):
    """All subscribers get everything all the same."""
    jobs = [await held(store, world) for _ in range(10)]
    trails = [await collected(live.trail(job.id, ANY)) for job in jobs]
    await asyncio.sleep(5)
    before = store.reads.total()
    for _ in range(100):
        for job in jobs:
            await job.log()
        await asyncio.sleep(0.01)
    assert store.reads.total() - before <= 11
    await asyncio.sleep(0.3)
    for job, trail in zip(jobs, trails, strict=True):
        assert trail.seqs == await numbers(store, job.id)


async def test_many_runs_are_read_in_slices(live, store, world):
    """Each slice is one read."""
    runs = [NewRun(id=world.uuid7(), type=TYPE) for _ in range(2 * FOLLOWED_MAX + 1)]
    await store.start(runs)
    waits = [asyncio.ensure_future(live.ended(run.id, ANY, 1000)) for run in runs]
    await asyncio.sleep(10)
    before = len(store.asked)
    await store.cancel(runs[-1].id, ANY)
    assert (await waits[-1]).status is Status.CANCELLED
    sizes = [len(args[0]) for _, name, args in store.asked[before:] if name == "follow"]
    assert sizes[:3] == [FOLLOWED_MAX, FOLLOWED_MAX, 1]
    for wait in waits:
        wait.cancel()


async def test_a_run_with_much_news_does_not_keep_others_waiting(live, store, world, monkeypatch):
    """Rows that do not fit into one read come after the news of the others; the end comes last."""
    monkeypatch.setattr("holdfast.engine.live.reader.ROWS_MAX", 100)
    busy, quiet = await held(store, world), await held(store, world)
    trails = [await collected(live.trail(job.id, ANY)) for job in (busy, quiet)]
    await asyncio.sleep(5)
    before = len(store.asked)
    await busy.log(250)
    await quiet.log(3)
    await busy.complete()
    await asyncio.sleep(0.2)
    reads = [[run for run, _ in args[0]] for _, _, args in store.asked[before:]]
    assert reads[:2] == [[busy.id, quiet.id], [quiet.id, busy.id]]
    assert trails[1].seqs == await numbers(store, quiet.id)
    assert [*trails[0].seqs, Ended(Status.SUCCEEDED, busy.id)] == [
        *await numbers(store, busy.id),
        (await trails[0].all())[-1],
    ]


@pytest.mark.parametrize("verb", ["follow", "follow_all"])
async def test_a_late_first_page_and_a_read_from_a_later_place_leave_no_gap(live, store, world, verb):
    """The shared read that was under way began behind the rows that the new subscriber lacks."""
    job = await held(store, world)

    def subscribed():
        return live.trail(job.id, ANY) if verb == "follow" else live.tenant_trail(ANY, 0)

    early = await collected(subscribed())
    await asyncio.sleep(1)
    first_page = store.hold(verb)
    late = Collector(subscribed())
    await asyncio.sleep(0.2)
    await job.log()
    await asyncio.sleep(1.1)
    assert early.seqs == await numbers(store, job.id)
    shared = store.hold(verb)
    await job.log()
    await asyncio.sleep(1.1)
    first_page.set()
    await late.began.wait()
    shared.set()
    await asyncio.sleep(1.1)
    assert late.seqs == early.seqs == await numbers(store, job.id)


async def test_a_run_that_cannot_be_read_fails_its_own_subscribers_only(live, store, world):
    """Somebody may have written rows into the store that no reader can decode."""
    jobs = [await held(store, world) for _ in range(9)]
    trails = [await collected(live.trail(job.id, ANY)) for job in jobs]
    wait = asyncio.ensure_future(live.ended(jobs[4].id, ANY, 1000))
    await asyncio.sleep(1)
    store.poisoned.add(jobs[4].id)
    for job in jobs:
        await job.complete()
    with pytest.raises(ValueError, match="out of range"):
        await trails[4].all(1.0)
    assert (await wait).status is Status.SUCCEEDED  # the run itself can be read
    for job, trail in zip(jobs, trails, strict=True):
        if job is not jobs[4]:
            await trail.all(1.0)
            assert trail.seqs == await numbers(store, job.id)


async def test_the_trail_of_a_tenant_begins_now_or_at_a_place(live, store, world):
    """It has no end; deleted runs and other tenants are left out."""
    job = await held(store, world)
    theirs = await Job(store, world, "acme").start()
    now, whole, audit = [
        await collected(live.tenant_trail(tenant, after))
        for tenant, after in (("default", None), ("default", 0), (ANY, None))
    ]
    await asyncio.sleep(1)
    assert (now.types, whole.types, audit.types) == ([], ["created", "leased"], [])
    await job.log()
    await store.cancel(theirs.id, ANY)
    await asyncio.sleep(0.3)
    assert now.types == ["log", "step_succeeded"]
    assert whole.types == ["created", "leased", "log", "step_succeeded"]
    assert audit.types == ["log", "step_succeeded", "cancelled"]
    await live.close()
    for trail in (now, whole, audit):
        await trail.all(0.0)


async def test_trails_of_the_same_tenant_and_types_share_one_read(live, store, world):
    """And a source without news is not read from its old place again and again."""
    trails = [
        await collected(live.tenant_trail("default", None, types)) for types in [("a", "b"), ("b", "a")] * 10
    ]
    assert store.reads["follow_all"] <= 22
    await asyncio.sleep(20)
    assert await rate(store, 100) <= 1.1
    for _ in range(5):
        await Job(store, world).start()
        await asyncio.sleep(2)
    end = (await store.trail(None, ANY))[-1].seq
    assert [args[2] for _, name, args in store.asked if name == "follow_all"][-1] == end
    assert all(trail.news == [] for trail in trails)


async def test_a_slow_subscriber_of_a_tenant_loses_nothing(live, store, world, monkeypatch):
    monkeypatch.setattr("holdfast.engine.live.subscriptions.BUFFER_ROWS", 10)
    monkeypatch.setattr("holdfast.engine.live.subscriptions.PAGE_ROWS", 7)
    monkeypatch.setattr("holdfast.bounds.SCAN_ROWS", 5)
    async with live.tenant_trail("default", None, ["created"]) as slow:
        for _ in range(10):
            for tenant in ("default", "acme") * 10:
                await Job(store, world, tenant).start()
            await asyncio.sleep(0.3)
        assert not slow.is_live
        got = [(await anext(slow)).seq for _ in range(100)]
    assert got == [entry.seq for entry in await store.trail(None, "default")]


@pytest.mark.parametrize(
    ("after", "types"), [(-1, ()), (1.5, ()), (None, "log"), (None, [7]), (0, ["x"] * 101)]
)
async def test_bad_arguments_of_a_tenants_trail_are_refused(live, after, types):
    with pytest.raises(UsageError):
        live.tenant_trail("default", after, types)


# Long polls.


async def test_a_long_poll_returns_the_final_run(live, store, world):
    """At once if it has ended; soon after its end; None after the time."""
    job = await held(store, world)
    assert await live.ended(job.id, "default", 0) is None
    began = world.monotonic()
    assert await live.ended(job.id, "default", 30) is None
    assert world.monotonic() - began == pytest.approx(30)
    waits = [asyncio.ensure_future(live.ended(job.id, "default", 30)) for _ in range(20)]
    await asyncio.sleep(5)
    assert store.reads["get"] == 22
    await job.complete()
    async with asyncio.timeout(0.2):
        found = await asyncio.gather(*waits)
    assert {(run.id, run.status, run.result) for run in found} == {(job.id, Status.SUCCEEDED, "done")}
    assert (await live.ended(str(job.id), "default", 0)).status is Status.SUCCEEDED
    assert live.subscribers == 0


async def test_a_long_poll_of_a_chain_returns_its_last_run(live, store, world):
    """Asked by any run of the chain."""
    first, second, third = await held(store, world), Job(store, world), Job(store, world)
    wait = asyncio.ensure_future(live.ended(first.id, ANY, 100))
    await asyncio.sleep(1)
    await first.complete(continues_as=second.id)
    await asyncio.sleep(1)
    await (await second.take()).complete(continues_as=third.id)
    await asyncio.sleep(1)
    later = asyncio.ensure_future(live.ended(second.id, ANY, 100))
    assert not wait.done()
    await (await third.take()).complete()
    async with asyncio.timeout(0.5):
        assert {(await one).id for one in (wait, later)} == {third.id}
    assert store.reads["get"] <= 10


async def test_a_long_poll_goes_on_when_the_run_is_open_again(live, store, world):
    """A run that was rewound before the final run could be read has not ended."""
    job = await held(store, world)
    wait = asyncio.ensure_future(live.ended(job.id, ANY, 100))
    await asyncio.sleep(1)
    store.held.add("get")
    await job.fail()
    store.held.add("follow")
    await asyncio.sleep(0.01)
    await store.retry_run(job.id, ANY)
    store.let_go()
    await asyncio.sleep(5)
    assert not wait.done()
    await store.cancel(job.id, ANY)
    assert (await wait).status is Status.CANCELLED


async def test_a_long_poll_of_an_unknown_or_deleted_run_is_refused(live, store, world):
    job = await Job(store, world).start()
    for run, tenant in ((world.uuid7(), ANY), (job.id, "acme")):
        with pytest.raises(UnknownRun):
            await live.ended(run, tenant, 10)
    wait = asyncio.ensure_future(live.ended(job.id, ANY, 100))
    await asyncio.sleep(1)
    await store.delete(job.id, ANY)
    with pytest.raises(UnknownRun):
        async with asyncio.timeout(0.2):
            await wait
    assert live.subscribers == 0


async def test_long_polls_outlive_trouble_and_end_with_the_process(live, store, world):
    """A store that is away is waited for; a close ends the wait at once."""
    job, other = await held(store, world), await held(store, world)
    wait, rest = [asyncio.ensure_future(live.ended(one.id, ANY, 1000)) for one in (job, other)]
    await asyncio.sleep(1)
    store.broken = True
    await job.complete()
    await asyncio.sleep(60)
    assert not wait.done()
    store.broken = False
    async with asyncio.timeout(10):
        assert (await wait).status is Status.SUCCEEDED
    began = world.monotonic()
    await live.close()
    assert await rest is None
    assert await live.ended(other.id, ANY, 10) is None
    assert world.monotonic() == began


@pytest.mark.parametrize("wait", [-1, float("nan"), "soon", None])
async def test_a_wait_is_a_duration(live, world, wait):
    with pytest.raises(UsageError):
        await live.ended(world.uuid7(), ANY, wait)
