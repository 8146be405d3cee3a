"""`show` and `explain` of a run whose step is executed now."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from holdfast import App
from holdfast.records import Ask, Item, Running, RunningStep, StepWrite
from holdfast.records.moves import Checkpoint

TYPE = "shop.order.v1"


async def _hold(url, run, began):
    """Hold the run, record one step of it, and show two others as running."""
    store = App(url).store
    await store.open()
    (claim,) = await store.claim(Ask(worker="w1", types=(TYPE,), limit=1))
    assert claim.id == UUID(run)
    done = StepWrite(key="reserve", output="1", started_at=claim.lease_until - 30_000_000)
    await store.commit([Item(run=claim.id, fence=claim.fence, number=1, move=Checkpoint(), steps=(done,))])
    steps = (
        RunningStep(step="charge", attempt=2, started_at=began),
        RunningStep(step="evil\x1b[31m\nname", attempt=1, started_at=began),
    )
    assert await store.show_running("w1", [Running(run=claim.id, fence=claim.fence, steps=steps)]) == [True]
    await store.close()


@pytest.fixture
def running(cli_):
    run = cli_.start(TYPE)
    asyncio.run(_hold(cli_.url, run, datetime.now(UTC) - timedelta(seconds=80)))
    return run


@pytest.mark.spec("LEASE-20")
def test_show_names_the_steps_that_run_now(cli_, running):
    """In a line of their own, and in the table; names cannot control the terminal."""
    shown = cli_("show", running).stdout
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    assert any(
        line.startswith("executes charge for 80 s, try 2; evil\\x1b[31m\\nname for 80 s") for line in lines
    )
    assert any(line.startswith("reserve task succeeded 1") for line in lines)
    assert any(line.startswith("charge task running 2 - 80 s ago") for line in lines)
    assert "\x1b" not in shown


@pytest.mark.spec("LEASE-20", "CLI-1")
def test_machines_get_the_running_steps_too(cli_, running):
    found = cli_.json("show", running)["running"]
    assert [(one["step"], one["attempt"]) for one in found] == [("charge", 2), ("evil\x1b[31m\nname", 1)]
    assert all(datetime.fromisoformat(one["started_at"]).tzinfo for one in found)
    assert "running" not in json.loads(cli_("ls", "--json").stdout)


@pytest.mark.spec("LEASE-20")
def test_explain_names_them(cli_, running):
    said = cli_("explain", running).stdout
    assert "executes its steps 'charge' since" in said
    assert "try 2)" in said
