"""The writer thread: jobs that are queued together share a commit, and no job fails because of another."""

from __future__ import annotations

import asyncio
import threading
from functools import partial

import pytest

from holdfast.errors import Unavailable, UnknownRun
from holdfast.records import ANY, Item, Lease, NewEvent, StepWrite
from holdfast.records.moves import CHECKPOINT
from holdfast.records.sizes import ROW
from tests.stores.sqlite.files import TYPE, ask, new_run, opened, raw_connection, until, with_store

PATIENCE = 10.0


class Gate:
    """A job that keeps the writer busy until it is told to go on."""

    def __init__(self):
        self.entered, self.go = threading.Event(), threading.Event()

    def __call__(self, db, now):
        self.entered.set()
        assert self.go.wait(PATIENCE)

    async def close_behind(self, store):
        """Wait until the writer is inside. Jobs that are queued from now on share a commit."""
        task = asyncio.ensure_future(store._write(self))
        await until(self.entered.is_set)
        return task


async def queued(*works):
    tasks = [asyncio.ensure_future(work) for work in works]
    await asyncio.sleep(0)
    return tasks


@pytest.fixture
def path(tmp_path):
    return tmp_path / "holdfast.db"


@pytest.mark.spec("STORE-2")
def test_what_queued_while_a_commit_ran_shares_the_next_one(path):
    """Twenty callers, one commit; and one call into their event loop."""

    async def story(store):
        gate, calls = Gate(), []
        first = await gate.close_behind(store)
        tasks = await queued(*(store.start([new_run()]) for _ in range(20)))
        loop, before = asyncio.get_running_loop(), store._transactor.commits
        into_loop = loop.call_soon_threadsafe
        loop.call_soon_threadsafe = lambda *args: (calls.append(args), into_loop(*args))
        gate.go.set()
        await asyncio.gather(first, *tasks)
        return store._transactor.commits - before, len(calls)

    assert with_store(path, story) == (2, 2)


@pytest.mark.spec("STORE-2")
def test_a_job_that_raises_fails_alone(path):
    """Its own writes are rolled back. Those of the jobs before and after it are there."""

    def bad(db, now):
        db.run("delete from workflow_run")
        raise ZeroDivisionError

    async def story(store):
        gate = Gate()
        first = await gate.close_behind(store)
        tasks = await queued(store.start([new_run()]), store._write(bad), store.start([new_run()]))
        gate.go.set()
        return await asyncio.gather(first, *tasks, return_exceptions=True)

    _, before, failed, behind = with_store(path, story)
    assert (before[0].created, behind[0].created) == (True, True)
    assert isinstance(failed, ZeroDivisionError)
    with raw_connection(path) as db:
        assert db.execute("select count(*) from workflow_run").fetchone() == (2,)


def test_a_refusal_is_an_answer_and_nobody_starts_again(path):
    """A verb that is refused before it has written does not make the other jobs run again."""
    runs = []

    def counting(db, now):
        runs.append(1)

    async def story(store):
        gate = Gate()
        first = await gate.close_behind(store)
        tasks = await queued(store._write(counting), store.cancel(new_run().id, ANY))
        gate.go.set()
        return await asyncio.gather(first, *tasks, return_exceptions=True)

    answers = with_store(path, story)
    assert isinstance(answers[2], UnknownRun)
    assert runs == [1]


@pytest.mark.spec("STORE-2", "LEASE-8")
def test_a_renewal_goes_before_what_is_queued(path):
    """It came last and is served first, in a commit of its own."""
    order = []

    def note(what):
        return lambda *_: order.append(what)

    async def story(store):
        gate = Gate()
        first = await gate.close_behind(store)
        tasks = await queued(*(store._write(note("queued")) for _ in range(3)))
        renewal = threading.Thread(target=store._writer.write_now, args=(note("renewal"),))
        renewal.start()
        await until(lambda: store._writer._urgent)
        gate.go.set()
        await asyncio.gather(first, *tasks)
        renewal.join(PATIENCE)

    with_store(path, story)
    assert order == ["renewal", "queued", "queued", "queued"]


@pytest.mark.spec("LEASE-8")
def test_a_blocked_event_loop_does_not_starve_the_renewal(path):
    """The loop hangs in user code; the lease is renewed all the same."""

    async def story(store):
        await store.start([new_run()])
        (claim,) = await store.claim(ask())
        answers = []

        def renew():
            answers.append(store.renew("w", [Lease(run=claim.id, fence=claim.fence)], 60.0))

        thread = threading.Thread(target=renew)
        thread.start()
        thread.join(PATIENCE)
        after = await store.get(claim.id, ANY)
        return claim, answers[0], after

    claim, renewal, run = with_store(path, story)
    assert renewal.held[0].answer == "applied"
    assert run.lease_until.timestamp() * 1e6 > claim.lease_until


def test_a_cancelled_waiter_takes_no_other_job_with_it(path):
    """A cancelled caller's job is done, and the others get their answers."""
    run = new_run()

    async def story(store):
        gate = Gate()
        first = await gate.close_behind(store)
        gone, stays = await queued(store.start([run]), store.start([new_run()]))
        gone.cancel()
        gate.go.set()
        await asyncio.gather(first, stays)
        return await store.get(run.id, ANY)

    assert with_store(path, story).type == TYPE


def test_closing_finishes_what_is_queued_and_refuses_what_comes_after(path):
    """Everything accepted is durable; a closed store says so. Opening and closing twice is fine."""
    runs = [new_run() for _ in range(5)]

    async def story():
        async with opened(path) as store:
            await store.open()
            tasks = await queued(*(store.start([run]) for run in runs))
        await store.close()
        await asyncio.gather(*tasks)
        with pytest.raises(Unavailable, match="not open"):
            await store.start([new_run()])
        with pytest.raises(Unavailable, match="not open"):
            await store.get(runs[0].id, ANY)
        await store.open()
        found = [await store.get(run.id, ANY) for run in runs]
        await store.close()
        return found

    assert [run.id for run in asyncio.run(story())] == [run.id for run in runs]


def test_local_news_is_hinted_and_plain_checkpoints_are_not(path):
    """A start and an end are news for whoever listens; an ended listener hears nothing more."""
    run = new_run()
    checkpoint = Item(run=run.id, fence=1, number=1, move=CHECKPOINT, steps=(StepWrite(key="a", output="1"),))

    async def story(store):
        heard = []
        end = store.listen(lambda: heard.append(1))
        store._hints._watches[0].stop()  # only local hints: the timer sees every commit of the file
        counts = []
        for act in (
            store.start([run]),
            store.claim(ask()),
            store.commit([checkpoint]),
            store.cancel(run.id, ANY),
        ):
            await act
            await asyncio.sleep(0)
            counts.append(len(heard))
        end()
        await store.start([new_run()])
        await asyncio.sleep(0)
        return [*counts, len(heard)]

    assert with_store(path, story) == [1, 1, 1, 2, 2]


def test_whatever_a_commit_ends_in_its_callers_are_answered_and_the_thread_lives(path, monkeypatch):
    """No caller waits for a thread that is gone. The error says that the outcome of the write is unknown."""

    async def story(store):
        with monkeypatch.context() as patched:
            patched.setattr(store._transactor, "_together", lambda _: 1 / 0)
            async with asyncio.timeout(PATIENCE):
                with pytest.raises(Unavailable, match="not known whether"):
                    await store.start([new_run()])
        return (await store.start([new_run()]))[0].created

    assert with_store(path, story)


async def behind_a_gate(store, *works):
    """Return how jobs that queued behind a gate were divided into commits, by their sizes."""
    gate, batches = Gate(), []
    first = await gate.close_behind(store)
    commit = store._transactor.commit
    store._transactor.commit = lambda jobs: (batches.append([job.size for job in jobs]), commit(jobs))
    tasks = await queued(*(work() for work in works))
    gate.go.set()
    await asyncio.gather(first, *tasks)
    return batches


def test_a_commit_is_bounded_in_bytes_and_large_jobs_do_not_go_with_small_ones(path, monkeypatch):
    monkeypatch.setattr("holdfast.stores.sqlite.connection.writer.BATCH_BYTES", 8000)
    monkeypatch.setattr("holdfast.stores.sqlite.connection.writer.LARGE_BATCH_BYTES", 7500)
    monkeypatch.setattr("holdfast.stores.sqlite.connection.writer.LARGE_BYTES", 1000)
    small, large = f'"{"x" * 498}"', f'"{"x" * 3498}"'

    async def story(store):
        starts = [small] * 20 + [large] * 5
        return await behind_a_gate(store, *(partial(store.start, [new_run(params=one)]) for one in starts))

    batches = with_store(path, story)
    assert max(map(sum, batches)) <= 8000
    assert all(max(batch) < 1000 or min(batch) >= 1000 for batch in batches)
    assert [len(batch) for batch in batches] == [15, 2, 5, 2, 1]
    with raw_connection(path) as db:
        assert db.execute("select count(*) from workflow_run").fetchone() == (25,)


def test_commits_events_and_starts_say_how_large_they_are(path):
    async def story(store):
        await store.start([run := new_run()])
        (claim,) = await store.claim(ask())
        step = StepWrite(key="a", output=f'"{"x" * 998}"')
        item = Item(run=run.id, fence=claim.fence, number=1, move=CHECKPOINT, steps=(step,))
        event = NewEvent(topic="t", id="e", payload=f'"{"x" * 1998}"')
        works = (partial(store.commit, [item]), partial(store.emit, event))
        return await behind_a_gate(store, *works)

    (sizes,) = with_store(path, story)[:1]
    assert sizes[0] in range(1000, 1010)
    assert sizes[1] in range(2000 + ROW, 2010 + ROW)
