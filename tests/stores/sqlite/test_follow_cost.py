"""Cost of followers on SQLite: lookups in indexes, whatever the planner knows."""

from __future__ import annotations

import asyncio
import threading

import pytest

from holdfast.records import ANY
from holdfast.stores.sqlite import trail
from tests.stores.sqlite.files import new_run, with_store

END = 2**63 - 1


def plan_of(store, name, **values):
    rows = store._reader.all("explain query plan " + trail._SQL[name], values)
    return [row[3] for row in rows]


@pytest.mark.spec("TRAIL-3")
def test_followers_use_indexes(tmp_path):
    """No statement walks over all runs, or over the whole trail."""

    async def story(store):
        await store.start([new_run() for _ in range(50)])
        followed = plan_of(store, "followed", runs="[]", tenant=None)
        return (
            followed,
            plan_of(store, "later", run="x", after=0, limit=1),
            plan_of(store, "scanned", after=0, rows=1),
        )

    followed, later, scanned = with_store(tmp_path / "holdfast.db", story)
    assert [step for step in followed if step.startswith("SCAN")] == ["SCAN asked VIRTUAL TABLE INDEX 1:"]
    lookup = "idx_workflow_event_run (workflow_id=? AND id>?)"
    assert any(lookup in step for step in followed), followed
    assert any(lookup in step for step in later), later
    assert not any(step.startswith("SCAN workflow") for step in scanned)


@pytest.mark.spec("TRAIL-3")
def test_a_read_of_many_runs_is_off_the_loop_and_the_writer(tmp_path):
    """It runs on the thread of large reads."""

    async def story(store):
        runs = [new_run() for _ in range(100)]
        await store.start(runs)
        seen = []
        usual = store._read_on_loader

        def noted(work, *args):
            seen.append(work.__name__)
            return usual(work, *args)

        store._read_on_loader = noted
        found = await store.follow([(run.id, 0) for run in runs], ANY)
        await store.follow([(runs[0].id, END)], ANY)
        await store.follow_all(ANY, after=0)
        return len(found), seen

    assert with_store(tmp_path / "holdfast.db", story) == (100, ["follow", "follow_all"])


@pytest.mark.spec("TRAIL-3")
def test_a_caller_that_stops_waiting_does_not_stop_later_reads(tmp_path):
    """Its read ends for nobody, or is not made at all; the thread of large reads goes on."""

    async def story(store):
        began, free = threading.Event(), threading.Event()
        usual = store._read_on_loader

        def held(work, *args):
            began.set()
            assert free.wait(10)
            return usual(work, *args)

        store._read_on_loader = held
        under_way, queued = (asyncio.ensure_future(store.follow_all(ANY, after=0)) for _ in range(2))
        assert await asyncio.to_thread(began.wait, 10)
        for one in (under_way, queued):
            one.cancel()
        await asyncio.gather(under_way, queued, return_exceptions=True)
        free.set()
        return await asyncio.wait_for(store.follow_all(ANY, after=0), 10)

    assert with_store(tmp_path / "holdfast.db", story).entries == ()
