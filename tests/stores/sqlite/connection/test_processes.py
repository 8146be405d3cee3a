"""Several processes on one file: they create one schema, share the work, take turns, and notice commits."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.stores.sqlite.connection import processes
from tests.stores.sqlite.files import new_run, opened, raw_connection, until, with_store

pytestmark = pytest.mark.slow


@pytest.fixture
def path(tmp_path):
    return tmp_path / "holdfast.db"


@pytest.mark.spec("STORE-5")
def test_eight_processes_open_one_new_file_at_once(path):
    """The schema is made once, and every one of them can work."""
    assert processes.crowd(processes.open_and_start, path, 8) == [True] * 8
    with raw_connection(path) as db:
        assert db.execute("select count(*) from workflow_run").fetchone() == (8,)
        assert db.execute("pragma integrity_check").fetchone() == ("ok",)


@pytest.mark.spec("LEASE-2")
def test_claimers_in_several_processes_get_disjoint_sets(path):
    """Every run is claimed, and none of them twice."""
    runs = [new_run() for _ in range(120)]
    with_store(path, lambda store: store.start(runs))
    taken = processes.crowd(processes.claim_all, path, 2)
    assert sorted(run for each in taken for run in each) == sorted(str(run.id) for run in runs)


@pytest.mark.spec("STORE-2")
def test_a_hot_writer_does_not_starve_its_neighbour(path):
    """A process that has just written lets a waiting process go first."""

    async def story():
        waits = []
        async with opened(path) as store:
            for _ in range(40):
                begun = time.perf_counter()
                await store.start([new_run()])
                waits.append(time.perf_counter() - begun)
        return max(waits)

    with processes.beside(processes.write_hotly, path):
        assert asyncio.run(story()) < 0.5


@pytest.mark.spec("STORE-2")
def test_a_write_to_the_file_is_told_as_a_change_and_own_news_as_a_hint(path):
    """A worker that asks for both does less after a change, which may be the presence of a worker."""

    async def story(go):
        hints, changes = [], []
        async with opened(path) as store:
            assert not store.hears()
            end = store.listen(lambda: hints.append(1), None, lambda: changes.append(1))
            assert store.hears()
            go.set()
            await until(lambda: changes)
            assert hints == []
            await store.start([new_run()])
            await until(lambda: hints)
            end()
            assert not store.hears()

    with processes.beside(processes.start_when_told, path) as go:
        asyncio.run(story(go))


@pytest.mark.spec("STORE-2")
def test_another_process_is_noticed(path):
    """Its commit is a hint here, without any table being polled."""

    async def story(go):
        heard = []
        async with opened(path) as store:
            end = store.listen(lambda: heard.append(1))
            await asyncio.sleep(0.05)
            assert heard == []
            go.set()
            await until(lambda: heard)
            end()
            return await store.stats()

    with processes.beside(processes.start_when_told, path) as go:
        stats = asyncio.run(story(go))
    assert stats.by_status["pending"] == 1


@pytest.mark.spec("STORE-2")
def test_a_listener_of_a_closed_store_starts_no_timer(path):
    """Nobody would stop it: it would look at the file for ever."""

    async def story():
        async with opened(path) as store:
            pass
        end = store.listen(lambda: None)
        assert not store.hears()
        end()

    asyncio.run(story())
