"""Schedules in a rehearsal: they fire when time passes, and a crashed worker loses none."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

import holdfast as hf
from holdfast.testing import Rehearsal, Stuck
from tests.laws.effort import longer


@pytest.fixture
def app():
    app = hf.App("memory://")

    @app.workflow("shop.report.v1")
    async def report(ctx: hf.Context, day: str) -> str:
        return await ctx.step("write", lambda: f"report for {day}")

    return app


@pytest.mark.spec("SCHED-1", "TEST-1")
@pytest.mark.parametrize("store", ["memory", *longer("sqlite")])
def test_a_turned_clock_fires_schedules_at_their_instants(app, store):
    """A nightly schedule fires once in each night of a month."""
    with Rehearsal(app, store=store) as stage:
        stage.do(
            stage.app.schedule("nightly", "shop.report.v1", "today", cron="0 3 * * *", zone="Europe/Berlin")
        )
        stage.advance(hours=1)
        assert stage.runs() == []
        stage.advance(days=30)
        runs = [run.get() for run in stage.runs("shop.report.v1")]
        first = datetime(2026, 1, 1, 2, tzinfo=UTC)
        assert [run.created_at for run in runs] == [first + n * timedelta(days=1) for n in range(30)]
        assert {run.result for run in runs} == {"report for today"}


@pytest.mark.spec("SCHED-1", "TEST-1")
def test_a_year_of_nights_passes_the_changes_of_the_clock(app):
    """The schedule fires at three o'clock in Berlin, in summer time too."""
    with Rehearsal(app, at=datetime(2026, 3, 20, tzinfo=UTC)) as stage:
        stage.do(stage.app.schedule("weekly", "shop.report.v1", "w", cron="0 3 * * 1", zone="Europe/Berlin"))
        stage.advance(days=270)
        hours = [run.get().created_at.hour for run in stage.runs()]
        assert (hours[0], hours[1], hours[-1]) == (2, 1, 2)
        assert len(hours) == 39


@pytest.mark.spec("SCHED-1")
def test_a_worker_that_crashes_loses_no_firing(app):
    """Another worker takes over."""
    with Rehearsal(app) as stage:
        stage.do(stage.app.schedule("hourly", "shop.report.v1", "x", every=hf.hours(1)))
        stage.advance(minutes=59)
        stage.crash()
        stage.advance(hours=2)
        assert [run.result() for run in stage.runs()] == ["report for x"] * 2


@pytest.mark.slow
@pytest.mark.spec("TEST-1")
def test_a_run_that_nobody_wakes_is_stuck_also_beside_a_schedule(app):
    """A schedule makes time go on for ever: the run is reported soon, unless a schedule wakes it."""

    @app.workflow("shop.order.v1")
    async def order(ctx: hf.Context) -> None:
        await ctx.await_event("paid")

    @app.workflow("shop.payday.v1")
    async def payday(ctx: hf.Context) -> None:
        ctx.emit("paid", None)

    with Rehearsal(app) as stage:
        stage.do(stage.app.schedule("hourly", "shop.report.v1", "x", every=hf.hours(1)))
        run = stage.start("shop.order.v1")
        with pytest.raises(Stuck, match=r"has not ended by 2026-01-2.*waits for an event on 'paid'"):
            run.result()
        stage.do(stage.app.schedule("monthly", "shop.payday.v1", cron="0 0 1 * *"))
        run.result()
        assert stage.now >= datetime(2026, 2, 1, tzinfo=UTC)
