"""Live trails of single runs: history, then news, then the end; no row is lost and none comes twice."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.engine.live import subscriptions
from holdfast.engine.live.live import Live
from holdfast.engine.live.news import Closed, Ended, Gone
from holdfast.errors import TooManySubscribers, Unavailable, UnknownRun, UsageError
from holdfast.lifecycle import FINAL, Status
from holdfast.records import ANY
from tests.engine.live.kit import Collector, Job, collected, held, numbers

pytestmark = pytest.mark.spec("TRAIL-3")


async def test_a_subscriber_gets_history_then_news_then_the_end(live, store, world):
    """Rows come within a second, ends within a moment."""
    job = await held(store, world)
    trail = await collected(live.trail(job.id, "default"))
    await asyncio.sleep(1)
    assert trail.types == ["created", "leased"]
    await job.log(2)
    await asyncio.sleep(1.1)
    assert trail.types == ["created", "leased", "log", "log", "step_succeeded"]
    await job.complete()
    ended = Ended(Status.SUCCEEDED, job.id)
    assert (await trail.all(0.2))[-2:] == [(await store.trail(job.id, ANY))[-1], ended]
    assert trail.seqs == await numbers(store, job.id)
    assert (live.subscribers, live.buffered) == (0, 0)


@pytest.mark.parametrize("end", ["complete", "fail", "cancel"])
async def test_a_run_that_has_ended_before_is_given_with_its_end_at_once(live, store, world, end):
    """From any place, without the reader."""
    job = await held(store, world)
    await (store.cancel(job.id, ANY) if end == "cancel" else getattr(job, end)())
    there = await numbers(store, job.id)
    for after, rows in ((0, there), (there[1], there[2:]), (there[-1], []), (10**9, [])):
        before = store.reads.total()
        began = world.monotonic()
        *entries, ended = await Collector(live.trail(job.id, "default", after)).all()
        assert ([entry.seq for entry in entries], ended.status in FINAL) == (rows, True)
        assert world.monotonic() == began
        assert store.reads.total() == before + 1


async def test_a_run_that_continued_names_the_present_run(live, store, world):
    job, later = await held(store, world), world.uuid7()
    trail = await collected(live.trail(job.id, ANY))
    await job.complete(continues_as=later)
    assert (await trail.all())[-1] == Ended(Status.SUCCEEDED, later)


async def test_a_run_that_is_retried_before_anybody_looked_has_not_ended(live, store, world):
    """The status and the rows of an answer are of one instant."""
    job = await held(store, world)
    trail = await collected(live.trail(job.id, ANY))
    await asyncio.sleep(1)
    await job.fail()
    await store.retry_run(job.id, ANY)
    await asyncio.sleep(1)
    assert trail.types[-2:] == ["failed", "retried"]
    await store.cancel(job.id, ANY)
    assert (await trail.all())[-1].status is Status.CANCELLED


async def test_a_row_that_is_committed_while_the_history_is_read_is_not_lost(live, store, world):
    """The answer of the first read does not have it, and its hint came before the subscription was live."""
    job = await held(store, world)
    store.held.add("follow")
    trail = Collector(live.trail(job.id, "default"))
    await asyncio.sleep(0.5)
    await job.log()
    await asyncio.sleep(0.5)
    assert trail.news == []
    store.let_go()
    await asyncio.sleep(0.2)
    assert trail.types == ["created", "leased", "log", "step_succeeded"]
    await job.complete()
    await trail.all()
    assert trail.seqs == await numbers(store, job.id)


async def test_subscribers_at_different_places_share_a_read(live, store, world):
    """Each gets what it does not have; one that comes during a read gets nothing twice and misses nothing."""
    job = await held(store, world)
    await job.log(20)
    there = await numbers(store, job.id)
    trails = [await collected(live.trail(job.id, ANY, after)) for after in (0, *there[::5], there[-1])]
    await asyncio.sleep(1)
    before = store.reads["follow"]
    await job.log(5)
    await asyncio.sleep(0.05)
    assert store.reads["follow"] <= before + 1
    store.held.add("follow")
    await job.log(5)
    await asyncio.sleep(0.2)
    late = Collector(live.trail(job.id, ANY, there[3]))
    await asyncio.sleep(0.2)
    await job.log(5)
    store.let_go()
    await job.complete()
    there = await numbers(store, job.id)
    for trail in (*trails, late):
        await trail.all()
        assert trail.seqs == there[-len(trail.seqs) :]
    assert [len(trail.seqs) for trail in (trails[0], late)] == [len(there), len(there) - 4]


async def test_a_deletion_ends_a_trail(live, store, world):
    """Also one that is at its first page, and for a deletion while nobody listens."""
    jobs = [await held(store, world) for _ in range(3)]
    trails = [await collected(live.trail(job.id, ANY)) for job in jobs]
    await asyncio.sleep(1)
    await store.delete(jobs[0].id, ANY)
    assert await trails[0].all(0.2) == [*trails[0].news[:-1], Gone()]
    assert trails[0].types[:-1] == ["created", "leased"]
    store.deaf = True
    await asyncio.sleep(20)
    await store.delete(jobs[1].id, ANY)
    assert (await trails[1].all(1.2))[-1] == Gone()
    assert not trails[2].task.done()


@pytest.mark.parametrize("tenant", ["default", "acme"])
async def test_an_unknown_run_and_one_of_another_tenant_are_refused(live, store, world, tenant):
    job = await Job(store, world, "acme" if tenant == "default" else "default").start()
    for run in (job.id, world.uuid7()):
        with pytest.raises(UnknownRun):
            async with live.trail(run, tenant):
                pytest.fail("it began")
    assert live.subscribers == 0


async def test_without_hints_rows_come_with_the_next_poll(live, store, world):
    """Polls are at most a second apart."""
    store.deaf = True
    job = await held(store, world)
    trail = await collected(live.trail(job.id, ANY))
    await asyncio.sleep(60)
    await job.log()
    await asyncio.sleep(1.1)
    assert trail.types[-1] == "step_succeeded"
    await job.complete()
    await trail.all(0.2)  # something was found, so the next poll came soon


async def test_a_slow_subscriber_reads_on_by_itself_and_loses_nothing(live, store, world, monkeypatch):
    """Its buffer is bounded; another subscriber of the run does not wait for it."""
    monkeypatch.setattr(subscriptions, "BUFFER_ROWS", 10)
    monkeypatch.setattr(subscriptions, "PAGE_ROWS", 7)
    job = await held(store, world)
    quick = await collected(live.trail(job.id, ANY))
    async with live.trail(job.id, ANY) as slow:
        got = []
        for _ in range(10):
            await job.log(9)
            await asyncio.sleep(0.3)
            got.append((await anext(slow)).seq)
            assert len(slow._buffer) <= 10
        assert not slow.is_live
        assert quick.seqs == await numbers(store, job.id)
        while len(got) < len(quick.seqs):
            got.append((await anext(slow)).seq)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await anext(slow)
        assert slow.is_live
        await job.complete()
        got.append((await anext(slow)).seq)
        assert (await anext(slow)).status is Status.SUCCEEDED
        with pytest.raises(StopAsyncIteration):
            await anext(slow)
    await quick.all()
    assert got == quick.seqs == await numbers(store, job.id)
    assert live.buffered == 0


@pytest.mark.parametrize(("name", "bound"), [("BUFFER_BYTES", 5000), ("BUFFERS_BYTES", 8000)])
async def test_buffers_are_bounded_in_bytes(live, store, world, monkeypatch, name, bound):
    """Each, and all together; a row that is larger than that is given alone."""
    monkeypatch.setattr(subscriptions, name, bound)
    job = await held(store, world)
    async with live.trail(job.id, ANY) as first, live.trail(job.id, ANY) as second:
        for size in (1000, 1000, 1000, 1000, 1000, 1000, 20_000, 10):
            await job.log(1, size)
            await asyncio.sleep(0.3)
            assert max(len(first._buffer), len(second._buffer)) <= 8
            assert live.buffered <= 2 * bound
        await job.complete()
        for trail in (first, second):
            got = [one async for one in trail]
            assert [one.seq for one in got[:-1]] == await numbers(store, job.id)


async def test_a_subscriber_may_stop_waiting_and_go_on_later(live, store, world):
    """A cancelled wait loses nothing; a server that sends signs of life waits in short spans."""
    job = await held(store, world)
    got = []
    async with live.trail(job.id, ANY) as trail:
        for turn in range(200):
            try:
                async with asyncio.timeout(0.05):
                    got.append(await anext(trail))
            except TimeoutError:
                if turn < 100:
                    await job.log(3)
        await job.complete()
        got += [one async for one in trail]
    assert len(got) > 50
    assert [one.seq for one in got[:-1]] == await numbers(store, job.id)


async def test_a_follower_that_is_cancelled_leaves_nothing_behind(live, store, world):
    """Nor does one that is cancelled during its first read; then the reader ends too."""
    job = await held(store, world)
    trail = await collected(live.trail(job.id, ANY))
    store.held.add("follow")
    other = Collector(live.trail(job.id, ANY))
    await asyncio.sleep(0.5)
    for one in (trail, other):
        one.task.cancel()
    store.let_go()
    await asyncio.sleep(1)
    assert (live.subscribers, live.buffered, live._reading.done()) == (0, 0, True)
    before = store.reads.total()
    await asyncio.sleep(100)
    assert store.reads.total() == before
    assert (await collected(live.trail(job.id, ANY))).types == ["created", "leased"]


async def test_a_store_that_is_away_for_a_while_only_delays(live, store, world, monkeypatch, caplog):
    """The reader and slow subscribers retry, further and further apart; a new subscriber is told."""
    monkeypatch.setattr(subscriptions, "BUFFER_ROWS", 5)
    job = await held(store, world)
    quick = await collected(live.trail(job.id, ANY))
    async with live.trail(job.id, ANY) as slow:
        await job.log(20)
        await asyncio.sleep(1)
        assert not slow.is_live
        store.broken = True
        await job.log(20)
        got = asyncio.ensure_future(_all(slow))
        before = store.reads.total()
        await asyncio.sleep(100)
        assert 30 <= store.reads.total() - before < 80
        with pytest.raises(Unavailable):
            await live.trail(job.id, ANY).__aenter__()
        await job.complete()
        store.broken = False
        async with asyncio.timeout(10):
            assert [one.seq for one in (await got)[:-1]] == await numbers(store, job.id)
    await quick.all()
    assert quick.seqs == await numbers(store, job.id)
    assert "cannot read news now, will retry: not now" in caplog.text


async def _all(trail):
    return [one async for one in trail]


async def test_a_close_ends_all_subscribers_at_once(live, store, world):
    """Those that wait, those that read, and those that have not read what is there."""
    job = await held(store, world)
    waits = await collected(live.trail(job.id, ANY))
    async with live.trail(job.id, ANY) as slow:
        await asyncio.sleep(1)
        store.held.add("follow")
        slow.is_live = False  # it reads a page of its own
        reads = asyncio.ensure_future(_all(slow))
        await asyncio.sleep(1)
        assert not reads.done()
        began = world.monotonic()
        await live.close()
        await live.close()
        assert (await waits.all(0.0))[-1] == Closed()
        assert (await reads)[-1] == Closed()
        assert world.monotonic() == began
    assert (await Collector(live.trail(job.id, ANY)).all()) == [Closed()]
    assert (live.subscribers, live.buffered) == (0, 0)


async def test_a_first_read_that_hangs_is_given_up_and_ends_with_the_process(live, store, world):
    """A new subscriber is told that the store is away, also when it waits for its turn behind others."""
    job = await held(store, world)
    store.held |= {"follow", "get"}
    began = world.monotonic()
    firsts = [Collector(live.trail(job.id, ANY)).task for _ in range(10)]
    firsts += [asyncio.ensure_future(live.ended(job.id, ANY, 100)) for _ in range(10)]
    for first in firsts:
        with pytest.raises(Unavailable, match="has not answered within 15 s"):
            await first
    assert (world.monotonic() - began, live.subscribers) == (15, 0)
    late, wait = Collector(live.trail(job.id, ANY)), asyncio.ensure_future(live.ended(job.id, ANY, 100))
    await asyncio.sleep(1)
    await live.close()
    assert (await late.all(0.0), await wait) == ([Closed()], None)


async def test_the_number_of_subscribers_is_limited(store, world):
    """A place is free again when a subscriber has left."""
    live, job = Live(store, world, limit=2), await held(store, world)
    async with live.trail(job.id, ANY):
        async with live.trail(job.id, ANY):
            with pytest.raises(TooManySubscribers, match="this process has 2 subscribers"):
                await live.trail(job.id, ANY).__aenter__()
            with pytest.raises(TooManySubscribers):
                await live.ended(job.id, ANY, 1.0)
        async with live.trail(job.id, ANY):
            pass
    for wrong in (0, -1, True, 1.5):
        with pytest.raises(UsageError):
            Live(store, world, limit=wrong)


@pytest.mark.parametrize(
    ("run", "after"), [("not an id", 0), (None, 0), (7, 0), *((None, n) for n in (-1, 1.5, True, 2**63))]
)
async def test_bad_arguments_are_refused(live, world, run, after):
    with pytest.raises(UsageError):
        live.trail(world.uuid7() if run is None and after else run, ANY, after)
