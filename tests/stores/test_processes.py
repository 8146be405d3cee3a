"""Several processes on one file: they make one schema, share the work, take turns, and notice each other."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.stores import process
from tests.stores.files import live, new_run, opened, plain, until

pytestmark = pytest.mark.slow


@pytest.fixture
def path(tmp_path):
    return tmp_path / "holdfast.db"


@pytest.mark.spec("STORE-5")
def test_eight_processes_open_one_new_file_at_once(path):
    """The schema is made once, and every one of them can work."""
    assert process.crowd(process.open_and_start, path, 8) == [True] * 8
    with plain(path) as db:
        assert db.execute("select count(*) from workflow_run").fetchone() == (8,)
        assert db.execute("pragma integrity_check").fetchone() == ("ok",)


@pytest.mark.spec("LEASE-2")
def test_claimers_in_several_processes_get_disjoint_sets(path):
    """Every run is claimed, and none of them twice."""
    runs = [new_run() for _ in range(120)]
    live(path, lambda store: store.start(runs))
    taken = process.crowd(process.claim_all, path, 2)
    assert sorted(run for each in taken for run in each) == sorted(str(run.id) for run in runs)


@pytest.mark.spec("STORE-2")
def test_a_hot_writer_does_not_starve_its_neighbour(path):
    """Whoever has just written lets the one who waits go first."""

    async def story():
        waits = []
        async with opened(path) as store:
            for _ in range(40):
                begun = time.perf_counter()
                await store.start([new_run()])
                waits.append(time.perf_counter() - begun)
        return max(waits)

    with process.beside(process.write_hotly, path):
        assert asyncio.run(story()) < 0.5


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

    with process.beside(process.start_when_told, path) as go:
        stats = asyncio.run(story(go))
    assert stats.by_status["pending"] == 1
