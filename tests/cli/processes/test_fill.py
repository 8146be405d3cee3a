"""`demo --fill`: a store with runs in all statuses, for looking at the pages."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from holdfast import App
from holdfast.cli.demo.fill import filled
from holdfast.lifecycle import Status


@pytest.mark.slow
def test_a_filled_store_has_runs_in_all_statuses_and_the_rest(tmp_path):
    url = f"sqlite:///{tmp_path}/demo.db"
    number = asyncio.run(filled(url, hours=0.5))
    asyncio.run(_check(url, number))


async def _check(url, number):
    app = App(url)
    runs = await app.list(limit=1000)
    assert len(runs) == number
    assert {one.status for one in runs} == set(Status)
    assert any(one.parent for one in runs)
    assert any(one.present != one.id for one in runs)
    assert any(one.labels for one in runs)
    assert len(await app.schedules()) == 3
    assert len(await app.limits()) == 2
    assert await app.outbox()
    assert await app.approvals()
    assert [one async for one in _logs(app, runs)]
    now = datetime.now(UTC)
    assert max(one.created_at for one in runs) <= now
    assert min(one.created_at for one in runs) < now - timedelta(minutes=20)
    await app.close()


async def _logs(app, runs):
    for run in runs:
        for entry in await app.trail(run.id, types=("log",)):
            yield entry
